"""Commands of operators: roll back, pin, pause, try a version. Each becomes a record in the log of observations.

Nothing is done here: the fit applies the command when it reads it, so that a version always has its place in one order,
and who asked, when and why stays on record. An answer waits, within bounds, until the fit has said what became of it.
"""

from __future__ import annotations

import asyncio
import math
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from uuid import uuid4

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from recalibrator.api.http_answers import documented, json_answer
from recalibrator.api.http_context import Context
from recalibrator.api.http_requests import (
    JSON_TYPES,
    VersionInPath,
    invalid_field,
    moment_in_query,
    parse_object,
    read_body,
    require_type,
    unknown_version,
    version_number,
)
from schemas.calibration import CalibrationVersion
from schemas.command import Action, Command
from schemas.event import MAX_NAME_CHARS
from schemas.status import CommandOutcome
from schemas.topics import OBSERVATIONS
from ucci_runtime.refusals import RequestRefused

_ON_VERSION: tuple[Action, ...] = ("activate", "pin", "shadow")
_ON_WORKLOAD: tuple[Action, ...] = ("unpin", "pause", "resume", "refit", "promote", "stop_trial", "end_large_only")
_NEEDING_VERSION: tuple[Action, ...] = ("activate", "shadow", "canary")
_ON_LABELER: tuple[Action, ...] = ("believe", "compare_again")
_ACCEPTED = 202
_MAX_BODY_BYTES = 20_000
_MAX_REASON_CHARS = 4_096
#: How long an answer waits for the fit's outcome, unless asked otherwise, and at most.
DEFAULT_WAIT_S, MAX_WAIT_S = 5.0, 30.0

_LOOK_S = 0.02
_REASON_MEANING = "One line, kept with the command; in the body or in the address."
_REASON = {"type": "string", "maxLength": _MAX_REASON_CHARS, "description": _REASON_MEANING}
_HOLD = {
    "type": "boolean",
    "default": True,
    "description": "Whether the version stays in force until the workload is unpinned; else a refit may replace it.",
}
_IN_ADDRESS = {"name": "reason", "in": "query", "required": False, "description": _REASON_MEANING, "schema": _REASON}


class CommandAnswer(Command):
    """The command as it stands in the log, and its outcome; null where no fit gave one in time."""

    outcome: CommandOutcome | None = None


class Order(NamedTuple):
    """What a caller wants done: an action and its arguments."""

    action: Action
    version: int | None = None
    share: float | None = None
    hold: bool | None = None
    until: datetime | None = None
    labeler: str | None = None


WaitSeconds = Annotated[
    float, Query(ge=0.0, le=MAX_WAIT_S, description="Longest wait for the outcome, where a fit is known to run.")
]


class CommandRoutes:
    """The routes that command the fit."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topic = OBSERVATIONS.name(context.settings.topics.prefix)
        self.router = APIRouter(tags=["commands"])
        for action in _ON_VERSION:
            self._add(f"/v1/calibrations/{{workload:segment}}/{{version}}:{action}", self._on_version(action))
        self._add("/v1/calibrations/{workload:segment}/{version}:canary", self.canary)
        self._add("/v1/calibrations/{workload:segment}:large-only", self.large_only)
        for action in (*_ON_WORKLOAD, *_ON_LABELER):
            act = self._on_labeler(action) if action in _ON_LABELER else self._on_workload(action)
            self._add(f"/v1/calibrations/{{workload:segment}}:{action.replace('_', '-')}", act)

    async def issue(self, workload: str, order: Order, caller: str, reason: str, wait_s: float = 0.0) -> CommandAnswer:
        """Put a command in the log, and wait until the broker has it and, for a while, until the fit has applied it.

        ``wait_s``: longest wait for the fit, in seconds. Raises BrokerUnreachable, and RequestRefused: 404 for an
        unknown workload or version, 409 for a promotion without a trial, 422 where a version is needed.
        """
        self._context.require_workload(workload)
        action, version, content = order.action, order.version, dict[str, Any]()
        if action == "promote":
            self._require_trial(workload)
        if version is None and action in _NEEDING_VERSION:
            raise invalid_field("version", f"is required to {action}", "missing_field")
        if version is not None:
            record = self._context.cache.version_json(workload, version)
            if record is None:
                raise unknown_version(workload, version)
            known = CalibrationVersion.from_json(record)
            # The history holds more versions than the fit keeps.
            content = {"map": known.map, "uncertainty_threshold": known.uncertainty_threshold}
            content |= {"signal": known.signal.kind, "basis": known.basis}
        command = Command(
            workload=workload,
            **order._asdict(),
            **content,
            issued_by=caller,
            issued_at=self._context.clock.now(),
            reason=reason,
            command_id=uuid4().hex,
        )
        await self._context.producer.queue(self._topic, workload.encode(), command.to_json())
        self._context.metrics.count("commands", action=action)
        return CommandAnswer(**command.model_dump(), outcome=await self._outcome(command, wait_s))

    async def _outcome(self, command: Command, wait_s: float) -> CommandOutcome | None:
        """Return what the status says of a command, once it does; at once where no fit is known to run."""
        context, loop = self._context, asyncio.get_running_loop()
        until = loop.time() + wait_s
        while context.documents.has_running("fit", context.clock.now()):
            status = context.cache.status(command.workload)
            for outcome in () if status is None else status.commands:
                if outcome.command_id == command.command_id:
                    return outcome
            if loop.time() >= until:
                break
            await asyncio.sleep(_LOOK_S)
        return None

    def _require_trial(self, workload: str) -> None:
        status = self._context.cache.status(workload)
        if status is None or status.on_trial is None:
            message = f"no version of {workload} is on trial: start one with :shadow or :canary, or :activate a version"
            raise RequestRefused(409, "no_trial", message)

    async def canary(
        self,
        request: Request,
        workload: str,
        version: str,
        share: Annotated[str, Query(max_length=20)],
        wait_s: WaitSeconds = DEFAULT_WAIT_S,
    ) -> Response:
        """Command the fit to have this version decide a share of queries."""
        caller, reason, _ = await self._given(request)
        order = Order("canary", version_number(version), checked_share(share))
        return _answer(await self.issue(workload, order, caller, reason, wait_s))

    async def large_only(
        self,
        request: Request,
        workload: str,
        until: Annotated[str, Query(max_length=40, description="RFC 3339; without it, until the cascade pays.")] = "",
        wait_s: WaitSeconds = DEFAULT_WAIT_S,
    ) -> Response:
        """Command the fit to have the large model answer alone; the small one is asked of a drawn share of queries."""
        caller, reason, _ = await self._given(request)
        order = Order("large_only", until=moment_in_query("until", until) if until else None)
        return _answer(await self.issue(workload, order, caller, reason, wait_s))

    def _on_version(self, action: Action) -> Any:
        async def act(
            request: Request, workload: str, version: VersionInPath, wait_s: WaitSeconds = DEFAULT_WAIT_S
        ) -> Response:
            caller, reason, body = await self._given(request)
            hold = checked_hold(body.get("hold", True)) if action == "activate" else None
            order = Order(action, version_number(version), hold=hold)
            return _answer(await self.issue(workload, order, caller, reason, wait_s))

        return _named(act, f"{action}_version", f"{action} this version")

    def _on_workload(self, action: Action) -> Any:
        async def act(request: Request, workload: str, wait_s: WaitSeconds = DEFAULT_WAIT_S) -> Response:
            caller, reason, _ = await self._given(request)
            return _answer(await self.issue(workload, Order(action), caller, reason, wait_s))

        return _named(act, f"{action}_workload", f"{action.replace('_', ' ')} this workload")

    def _on_labeler(self, action: Action) -> Any:
        async def act(
            request: Request,
            workload: str,
            labeler: Annotated[str, Query(max_length=MAX_NAME_CHARS, description="As feedback names that person.")],
            wait_s: WaitSeconds = DEFAULT_WAIT_S,
        ) -> Response:
            caller, reason, _ = await self._given(request)
            order = Order(action, labeler=checked_labeler(action, labeler))
            return _answer(await self.issue(workload, order, caller, reason, wait_s))

        what = "count all labels of this labeler" if action == "believe" else "compare this labeler with others again"
        return _named(act, f"{action}_labeler", what)

    async def _given(self, request: Request) -> tuple[str, str, dict[str, Any]]:
        """Return the caller, the reason and the body of a request."""
        caller = self._context.authorise(request, "admin")
        require_type(request, JSON_TYPES)
        data = await read_body(request, _MAX_BODY_BYTES)
        body = parse_object(data) if data else {}
        given = [one for one in (*request.query_params.getlist("reason"), body.get("reason")) if one is not None]
        if len(given) > 1:
            raise invalid_field("reason", "is given more than once: send it in the body or in the address")
        return caller, checked_reason(given[0] if given else ""), body

    def _add(self, path: str, endpoint: Any) -> None:
        properties = {"reason": _REASON} | ({"hold": _HOLD} if path.endswith(":activate") else {})
        content = {"application/json": {"schema": {"type": "object", "properties": properties}}}
        self.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            status_code=_ACCEPTED,
            response_model=CommandAnswer,
            responses=documented(400, 401, 403, 404, 408, 409, 413, 415, 422, 503),
            openapi_extra={"requestBody": {"required": False, "content": content}, "parameters": [_IN_ADDRESS]},
        )


def _named(act: Any, name: str, what: str) -> Any:
    act.__name__, act.__doc__ = name, f"Command the fit to {what}."
    return act


def checked_hold(given: object) -> bool:
    """Return whether a roll-back holds. Raises RequestRefused: 422."""
    if not isinstance(given, bool):
        raise invalid_field("hold", f"must be true or false (got {str(given)[:60]!r})")
    return given


def checked_reason(given: object) -> str:
    """Return a reason that a command can carry. Raises RequestRefused: 422."""
    if not isinstance(given, str) or len(given) > _MAX_REASON_CHARS or not given.isprintable():
        raise invalid_field("reason", f"must be one line of text of at most {_MAX_REASON_CHARS} characters")
    return given


def checked_labeler(action: str, given: str) -> str | None:
    """Return the name of a labeler where an action needs one, else None. Raises RequestRefused: 422."""
    if action not in _ON_LABELER:
        return None
    if not 0 < len(given) <= MAX_NAME_CHARS:
        problem = f"is required to {action}; send the name as feedback gives it, at most {MAX_NAME_CHARS} characters"
        raise invalid_field("labeler", problem)
    return given


def checked_share(given: str) -> float:
    """Return a share of queries that a command can carry. Raises RequestRefused: 422."""
    try:
        share = float(given)
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise invalid_field("share", f"must be a number above 0 and up to 1, such as 0.1 (got {given[:60]!r})")
    return share


def _answer(answer: CommandAnswer) -> Response:
    return json_answer(answer.to_json(), _ACCEPTED)
