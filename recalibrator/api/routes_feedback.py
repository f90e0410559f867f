"""Feedback by HTTP: one event, a batch, Label Studio's webhook. 202 only after the broker has acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from recalibrator.api.http_answers import (
    BATCH_ANSWERS,
    EVENT_LINES,
    LABEL_STUDIO_HOOK,
    ONE_EVENT,
    JsonLines,
    TakenEvent,
    TakenHook,
    documented,
    error_body,
    json_answer,
)
from recalibrator.api.http_context import Context
from recalibrator.api.http_requests import (
    JSON_TYPES,
    JSONL_TYPES,
    LineLimits,
    body_lines,
    invalid_field,
    parse_feedback,
    parse_object,
    read_body,
    require_past,
    require_type,
)
from recalibrator.labelling.feedback_checks import FeedbackWarning, RecentRevisions, feedback_warnings
from recalibrator.labelling.label_studio import UNKNOWN_PROJECT, LabelStudioReader, RecentAnnotations
from recalibrator.labelling.label_tool import InvalidAnnotation, query_id_in
from schemas.event import MAX_ID_CHARS, MAX_RECORD_BYTES
from schemas.feedback import FeedbackEvent
from schemas.topics import FEEDBACK
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.refusals import RequestRefused

#: How much larger than one event's a batch's body may be.
BATCH_FACTOR = 10

#: No line that holds an event is shorter: a body of more lines than would fit is no batch.
SMALLEST_EVENT_BYTES = len(b'{"query_id":"q","entities":null}')

RETRY_AFTER_S = 5
#: Label Studio gives up after 1.0 s.
HOOK_TIMEOUT_S = 0.9

#: Lines after which the batch waits for the broker, and other requests have their turn: some 40 ms.
MAX_UNSETTLED = 1_000

_MAX_SOURCES = 64
_MAX_PROJECT_DIGITS = 9
_ACCEPTED, _UNAVAILABLE = 202, 503


class FeedbackRoutes:
    """The routes that take feedback."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topic = FEEDBACK.name(context.settings.topics.prefix)
        self._limit = context.settings.recalibrator.max_body_bytes
        self._fields = {name: workload.fields for name, workload in context.settings.workloads.items()}
        self._annotations = RecentAnnotations()
        self._revisions = RecentRevisions()
        self._sources: set[str] = set()
        self.router = APIRouter(tags=["feedback"])
        self._add("/v1/feedback", self.take_one, TakenEvent, ONE_EVENT, documented(409))
        self._add("/v1/feedback:batch", self.take_batch, None, EVENT_LINES, BATCH_ANSWERS)
        self._add("/v1/hooks/label-studio", self.take_hook, TakenHook, LABEL_STUDIO_HOOK, documented(404))

    async def take_one(self, request: Request) -> Response:
        """Take one ``FeedbackEvent``; the header Idempotency-Key stands in for a missing ``feedback_id``.

        A key names only the labelers that it is bound to, and stands for its only one where none is named; a key of
        the scope ``relay`` names any.
        """
        caller = self._context.authorise(request, "feedback")
        require_type(request, JSON_TYPES)
        key = _idempotency_key(request)
        event, warnings = await self.take(await read_body(request, self._limit), caller, key)
        return json_answer({"query_id": event.query_id, "feedback_id": event.identity()} | _warned(warnings), _ACCEPTED)

    async def take(
        self, data: bytes, caller: str, key: str | None = None
    ) -> tuple[FeedbackEvent, list[FeedbackWarning]]:
        """Take one event as JSON from a caller who may give feedback; return it once the broker has acknowledged it.

        ``key``: stands in for a missing ``feedback_id``. Raises RequestRefused for a faulty event, a labeler that is
        not the caller's, a stale revision, or a spent quota, and BrokerUnreachable.
        """
        event, warnings = self._checked(data, caller, key)
        self._context.keys.quotas.spend(caller, 1, self._context.clock.monotonic())
        await self._queue(event)
        self._note_taken(event)
        return event, warnings

    async def take_batch(self, request: Request) -> Response:
        """Take a ``FeedbackEvent`` a line; answers ``{"line", "status", "error"}`` for each.

        With the header Idempotency-Key, line n without a ``feedback_id`` gets ``KEY:n``.
        """
        caller = self._context.authorise(request, "feedback")
        require_type(request, JSONL_TYPES)
        key = _idempotency_key(request)
        self._context.keys.quotas.spend(caller, 0, self._context.clock.monotonic())
        batch = _Batch(self._note_taken)
        try:
            await self._take_lines(request, batch, caller, key)
        finally:
            # What was taken before a refusal of the whole is in the topic all the same.
            await batch.settle()
            self._context.keys.quotas.owe(caller, max(batch.lines, 1), self._context.clock.monotonic())
        if batch.statuses == {_UNAVAILABLE}:
            raise _broker_away("no line was acknowledged by the broker: send the batch again")
        return JsonLines(bytes(batch.answer), 202 if batch.statuses <= {_ACCEPTED} else 207)

    async def take_hook(self, request: Request) -> Response:
        """Take one webhook of Label Studio; what is not about an annotation is acknowledged and left.

        Its key has the scope ``relay``, or is bound to the annotator: ``label-studio:`` and the user's number.
        """
        caller = self._context.authorise(request, "feedback")
        require_type(request, JSON_TYPES)
        hook = parse_object(await read_body(request, self._limit))
        reader = LabelStudioReader(self._default_project(request), self._fields_of(request, hook))
        try:
            created, deleted = reader.feedback(hook), reader.deleted(hook)
        except InvalidAnnotation as fault:
            raise RequestRefused(422, fault.reason, str(fault), fault.field) from None
        now = self._context.clock.now()
        if created is not None:
            require_past(created, now)
        known = [event for key in deleted if (event := self._annotations.retraction(key, now)) is not None]
        events = known if created is None else [created]
        for event in events:
            self._context.keys.labeler(caller, event.labeler)
        self._context.keys.quotas.spend(caller, len(events), self._context.clock.monotonic())
        await self._queue_in_time(events)
        for event in events:
            self._note_taken(event)
            (self._annotations.forget if event.retracted else self._annotations.remember)(event)
        if len(known) < len(deleted):
            self._context.metrics.count("deletions_unknown", len(deleted) - len(known))
        about = {} if created is None else {"query_id": created.query_id} | _warned(self._warnings(created))
        return json_answer({"taken": len(events)} | about, _ACCEPTED)

    def _default_project(self, request: Request) -> int | None:
        """Return the project of annotations that name none: as the address says, or any where only one is possible.

        Raises RequestRefused: 404 for an unknown workload, 422 for a project that is no number.
        """
        given, workload = request.query_params.get("project"), request.query_params.get("workload")
        if given is not None:
            if not (given.isascii() and given.isdigit() and len(given) <= _MAX_PROJECT_DIGITS):
                raise invalid_field("project", f"{given[:60]!r} is not the number of a project of Label Studio")
            return int(given)
        if workload is not None:
            self._context.require_workload(workload)
        is_clear = workload is not None or self._context.settings.only_workload is not None
        return UNKNOWN_PROJECT if is_clear else None

    def _fields_of(self, request: Request, hook: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
        """Return the fields of the workload that a hook's query is of; where that is not known, those of each."""
        task = hook.get("task")
        query_id = query_id_in(task.get("data"), task.get("meta")) if isinstance(task, dict) else None
        workload = self._context.queue.workload_of(query_id) if query_id is not None else None
        own = self._fields.get(workload or request.query_params.get("workload", ""))
        return tuple(self._fields.values()) if own is None else (own,)

    def _warnings(self, event: FeedbackEvent) -> list[FeedbackWarning]:
        # What is not requested is known once the requests have been read.
        workloads = self._context.settings.workloads
        return feedback_warnings(event, workloads, None if self._context.missing() else self._context.queue)

    async def _take_lines(self, request: Request, batch: _Batch, caller: str, key: str | None) -> None:
        limit = self._limit * BATCH_FACTOR
        async for lines in body_lines(request, LineLimits(limit, self._limit, limit // SMALLEST_EVENT_BYTES)):
            for line in lines:
                batch.lines += 1
                if line.strip():
                    batch.unsettled.append((batch.lines, self._begun(line, caller, key and f"{key}:{batch.lines}")))
                if len(batch.unsettled) >= MAX_UNSETTLED:
                    await batch.settle()

    def _begun(self, line: bytes, caller: str, key: str | None) -> RequestRefused | _Waiting:
        """Hand a line to the producer, or return why it is not taken."""
        try:
            event, warnings = self._checked(line, caller, key)
            return _Waiting(event, self._queue(event), warnings)
        except RequestRefused as error:
            return error

    def _checked(self, data: bytes, caller: str, key: str | None) -> tuple[FeedbackEvent, list[FeedbackWarning]]:
        """Return the event of a body or line, under its idempotency key, by a labeler that the caller may name.

        One without a revision becomes its labeler's newest.
        """
        event = parse_feedback(data)
        require_past(event, self._context.clock.now())
        labeler = self._context.keys.labeler(caller, event.labeler)
        warnings = self._warnings(event)
        is_numbered = "revision" in event.model_fields_set
        event = event.model_copy(update={"feedback_id": event.feedback_id or key, "labeler": labeler})
        if not is_numbered:
            event = event.model_copy(update={"revision": self._revisions.following(event)})
        elif (newer := self._revisions.newer(event)) is not None:
            message = f"revision: {event.revision} is older than {newer}, already taken: send a higher one, or none"
            raise RequestRefused(409, "stale_revision", message, "revision")
        return event, warnings

    def _queue(self, event: FeedbackEvent) -> asyncio.Future[None]:
        """Hand an event to the producer. Raises RequestRefused: 413 where it is too long to be read again."""
        key, value = event.query_id.encode(), event.to_json()
        if len(key) + len(value) > MAX_RECORD_BYTES:
            raise RequestRefused(413, "too_large", f"a record of more than {MAX_RECORD_BYTES} bytes: send less")
        return self._context.producer.queue(self._topic, key, value)

    async def _queue_in_time(self, events: Sequence[FeedbackEvent]) -> None:
        """Hand events to the producer, and wait for the broker for as long as Label Studio waits.

        What was acknowledged while this process stood still counts; a time-out around the wait would refuse it. Raises
        RequestRefused or BrokerUnreachable.
        """
        queued = [self._queue(event) for event in events]
        if not queued:
            return
        ended, late = await asyncio.wait(queued, timeout=HOOK_TIMEOUT_S, return_when=asyncio.FIRST_EXCEPTION)
        for one in late:
            one.cancel()
        if failures := [error for one in ended if (error := one.exception()) is not None]:
            raise failures[0]
        if late:
            raise _broker_away("the broker did not acknowledge in Label Studio's time; reconcile later")

    def _note_taken(self, event: FeedbackEvent) -> None:
        self._revisions.remember(event)
        source = event.source or "http"
        if len(self._sources) < _MAX_SOURCES:
            self._sources.add(source)
        # Senders choose the source: one value of the metric's label for each would grow without bound.
        self._context.metrics.count("feedback", source=source if source in self._sources else "other")

    def _add(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        answer: type[BaseModel] | None,
        body: dict[str, Any],
        answers: dict[int | str, dict[str, Any]],
    ) -> None:
        self.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            status_code=_ACCEPTED,
            response_model=answer,
            response_class=JsonLines if answer is None else JSONResponse,
            responses=documented(400, 401, 403, 408, 413, 415, 422, 429, 503) | answers,
            openapi_extra=body,
        )


def _idempotency_key(request: Request) -> str | None:
    """Return that header, None where it is empty. Raises RequestRefused: 422 when it could be no ``feedback_id``."""
    key = request.headers.get("idempotency-key")
    if key and len(key) > MAX_ID_CHARS:
        raise invalid_field("Idempotency-Key", f"longer than {MAX_ID_CHARS} characters")
    return key or None


def _broker_away(message: str) -> RequestRefused:
    return RequestRefused(_UNAVAILABLE, "broker_away", message, retry_after_s=RETRY_AFTER_S)


def unavailable(error: BrokerUnreachable) -> RequestRefused:
    """Return the refusal that stands for a broker that does not acknowledge."""
    return _broker_away(f"the broker is away: {error}; nothing was taken for sure, send it again")


class _Waiting(NamedTuple):
    event: FeedbackEvent
    acknowledged: asyncio.Future[None]
    warnings: list[FeedbackWarning]


@dataclass(slots=True)
class _Batch:
    #: Called with each event that the broker has acknowledged.
    on_taken: Callable[[FeedbackEvent], None]
    #: How many have come, empty ones included.
    lines: int = 0
    #: Those without an answer, by number: refused, or on their way to the broker.
    unsettled: list[tuple[int, RequestRefused | _Waiting]] = field(default_factory=list)
    #: ``{"line", "status", "error"}`` a line, in the lines' order; ``warnings`` where there are some.
    answer: bytearray = field(default_factory=bytearray)
    statuses: set[int] = field(default_factory=set)

    async def settle(self) -> None:
        """Wait until the broker has answered for every line so far."""
        if waiting := [one.acknowledged for _, one in self.unsettled if isinstance(one, _Waiting)]:
            await asyncio.wait(waiting)
        else:
            await asyncio.sleep(0)
        for number, one in self.unsettled:
            if isinstance(one, RequestRefused):
                self._add(number, one.status, error_body(one.code, str(one), one.field)["error"])
            elif (failure := one.acknowledged.exception()) is not None:
                self._add(number, _UNAVAILABLE, error_body("broker_away", str(failure))["error"])
            else:
                self.on_taken(one.event)
                self._add(number, _ACCEPTED, None, one.warnings)
        self.unsettled.clear()

    def _add(
        self, number: int, status: int, error: dict[str, Any] | None, warnings: Sequence[FeedbackWarning] = ()
    ) -> None:
        self.statuses.add(status)
        content = {"line": number, "status": status, "error": error} | _warned(warnings)
        # Clients that split text into lines know more ends of a line than this one, in what a warning quotes.
        self.answer += to_json(content, ensure_ascii=True) + b"\n"


def _warned(warnings: Sequence[FeedbackWarning]) -> dict[str, Any]:
    """Return the member ``warnings`` of an answer; answers without one stay as they were."""
    return {"warnings": [warning._asdict() for warning in warnings]} if warnings else {}
