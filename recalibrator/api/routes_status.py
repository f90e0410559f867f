"""Status out: workloads, their history, routers, versions; and a stream that tells when to look again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from recalibrator.api.http_answers import UNCHANGED, documented, tagged
from recalibrator.api.http_context import Context
from recalibrator.api.read_model.history import since as since_time
from recalibrator.api.read_model.version_lines import VersionLine, changes
from recalibrator.errors import Refused
from schemas.calibration import CalibrationVersion
from schemas.event import rfc3339
from schemas.status import DeadLetterStatus, RecalibratorStatus, RouterStatus, WorkloadStatus

STREAM_INTERVAL_S = 0.5
KEEP_ALIVE_S = 15.0

_NOT_FOUND, _UNPROCESSABLE = 404, 422
_MAX_DIGITS = 16


class AllStatuses(BaseModel):
    """Everything that is known as of now."""

    workloads: list[WorkloadStatus]
    routers: list[RouterStatus]
    recalibrators: list[RecalibratorStatus]
    dead_letters: DeadLetterStatus


class _EventStream(StreamingResponse):
    media_type = "text/event-stream"


class StatusRoutes:
    """The routes that show what is.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._listed: dict[str, tuple[int, bytes]] = {}
        self.router = APIRouter(tags=["status"])
        self._add("/v1/status", self.all_statuses, AllStatuses)
        self._add("/v1/status/{workload}", self.one_status, WorkloadStatus)
        self._add("/v1/status/{workload}/history", self.history, None)
        self._add("/v1/calibrations/{workload}", self.versions, None)
        self._add("/v1/calibrations/{workload}/{version}", self.version, CalibrationVersion)
        self.router.add_api_route(
            "/v1/stream",
            self.stream,
            methods=["GET"],
            response_class=_EventStream,
            responses=documented(401, 403),
        )

    def _add(self, path: str, endpoint: Callable[..., Awaitable[Response]], answer: type[BaseModel] | None) -> None:
        refusals = documented(401, 403, 404, 422) if "{" in path else documented(401, 403)
        # Answers are bytes already; the model is what the document tells of them.
        self.router.add_api_route(
            path, endpoint, methods=["GET"], response_model=answer, responses=UNCHANGED | refusals
        )

    async def all_statuses(self, request: Request) -> Response:
        """Return every workload's, router's and recalibrator's latest status, and the dead letters by reason."""
        self._context.authorise(request, "read")
        return tagged(request, self._context.served.all_json(self._context.clock.now()))

    async def one_status(self, request: Request, workload: str) -> Response:
        """Return one workload's latest status."""
        self._context.authorise(request, "read")
        self._context.require_workload(workload)
        return tagged(request, self._context.served.workload_json(workload, self._context.clock.now()))

    async def history(
        self, request: Request, workload: str, since: Annotated[str | None, Query(max_length=64)] = None
    ) -> Response:
        """Return how the workload stood, oldest first, from a time on."""
        self._context.authorise(request, "read")
        self._context.require_workload(workload)
        start = None if since is None else _moment(since)
        points = since_time(self._context.view.points(workload), start)
        listed = b",".join(point.encoded for point in points)
        return tagged(request, b'{"workload":' + to_json(workload) + b',"points":[' + listed + b"]}")

    async def versions(self, request: Request, workload: str) -> Response:
        """Return a workload's versions, newest first."""
        self._context.authorise(request, "read")
        self._context.require_workload(workload)
        view = self._context.view
        revision = view.versions_revision_of(workload)
        known = self._listed.get(workload)
        if known is None or known[0] != revision:
            lines = [_line(line, view.line(workload, line.parent_version)) for line in view.versions(workload)]
            known = self._listed[workload] = (revision, to_json({"workload": workload, "versions": lines}))
        return tagged(request, known[1])

    async def version(self, request: Request, workload: str, version: VersionInPath) -> Response:
        """Return one version as it was published."""
        self._context.authorise(request, "read")
        self._context.require_workload(workload)
        found = self._context.view.version_json(workload, version_number(version))
        if found is None:
            raise unknown_version(workload, version)
        return tagged(request, found)

    async def stream(self, request: Request) -> Response:
        """Send an event whenever something changed (Server-Sent Events); the data is a revision number."""
        self._context.authorise(request, "read")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return _EventStream(self._changes(), headers=headers)

    async def _changes(self) -> AsyncIterator[bytes]:
        told, quiet_s = -1, 0.0
        while "closing" not in self._context.missing():
            revision = self._context.view.revision + self._context.letters.revision
            if revision != told:
                told, quiet_s = revision, 0.0
                yield b"event: changed\ndata: %d\n\n" % revision
            elif quiet_s >= KEEP_ALIVE_S:
                quiet_s = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(STREAM_INTERVAL_S)
            quiet_s += STREAM_INTERVAL_S


VersionInPath = Annotated[str, Path(json_schema_extra={"pattern": f"^[0-9]{{1,{_MAX_DIGITS}}}$"})]
"""Checked by :func:`version_number`, whose refusal names the remedy."""


def version_number(given: str) -> int:
    """Return the number in a path.

    Raises
    ------
    Refused
        422.
    """
    if not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        raise Refused(_UNPROCESSABLE, "invalid_field", f"version: {given[:60]!r} is not a version number", "version")
    return int(given)


def unknown_version(workload: str, version: object) -> Refused:
    """Return the refusal of a version that is not in the history."""
    message = f"version {version} of {workload} is not in the history: see /v1/calibrations/{workload}"
    return Refused(_NOT_FOUND, "unknown_version", message, "version")


def _moment(given: str) -> datetime:
    try:
        # In a query string an unescaped plus is a space.
        moment = datetime.fromisoformat(given.replace(" ", "+"))
    except ValueError:
        message = f"since: {given[:60]!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"
        raise Refused(_UNPROCESSABLE, "invalid_field", message, "since") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _line(line: VersionLine, parent: VersionLine | None) -> dict[str, Any]:
    return {
        "version": line.version,
        "created_at": rfc3339(line.created_at),
        "state": line.state,
        "trigger": line.trigger,
        "uncertainty_threshold": line.uncertainty_threshold,
        "threshold": line.threshold,
        "micro_f1": None if line.micro_f1 is None else line.micro_f1.model_dump(),
        "escalation_rate": line.escalation_rate,
        "labels": line.labels,
        "parent_version": line.parent_version,
        "content_of": line.content_of,
        "changed": changes(line, parent),
    }
