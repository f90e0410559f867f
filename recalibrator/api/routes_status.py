"""What is served for reading: status, history, versions, label requests, and a stream of change notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from recalibrator.api.http_answers import UNCHANGED, documented, tagged
from recalibrator.api.http_context import Context
from recalibrator.api.http_requests import VersionInPath, moment_in_query, unknown_version, version_number
from recalibrator.api.read_model.history import since as since_time
from recalibrator.api.read_model.version_lines import VersionLine, changes
from recalibrator.labelling.queue import label_budget, queue_document
from schemas.calibration import CalibrationVersion
from schemas.event import MAX_ID_CHARS, rfc3339
from schemas.label_requested import RequestReason
from schemas.status import DeadLetterStatus, RecalibratorStatus, RouterStatus, WorkloadStatus

STREAM_INTERVAL_S = 0.5
KEEP_ALIVE_S = 15.0


class AllStatuses(BaseModel):
    """Everything that is known as of now."""

    workloads: list[WorkloadStatus]
    routers: list[RouterStatus]
    recalibrators: list[RecalibratorStatus]
    dead_letters: DeadLetterStatus


class _EventStream(StreamingResponse):
    media_type = "text/event-stream"


class StatusRoutes:
    """The routes that show what is."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._listed: dict[str, tuple[object, bytes]] = {}
        self.router = APIRouter(tags=["status"])
        self._add("/v1/status", self.all_statuses, AllStatuses)
        self._add("/v1/status/{workload:segment}", self.one_status, WorkloadStatus)
        self._add("/v1/status/{workload:segment}/history", self.history, None)
        self._add("/v1/calibrations/{workload:segment}", self.versions, None)
        self._add("/v1/calibrations/{workload:segment}/{version}", self.version, CalibrationVersion)
        self.router.add_api_route(
            "/v1/stream", self.stream, methods=["GET"], response_class=_EventStream, responses=documented(401, 403)
        )

    def _add(self, path: str, endpoint: Callable[..., Awaitable[Response]], answer: type[BaseModel] | None) -> None:
        refusals = documented(401, 403, 404, 422) if "{" in path else documented(401, 403)
        # Answers are bytes already; the model describes them in the OpenAPI document.
        self.router.add_api_route(
            path, endpoint, methods=["GET"], response_model=answer, responses=UNCHANGED | refusals
        )

    async def all_statuses(self, request: Request) -> Response:
        """Return every workload's, router's and recalibrator's latest status, and the dead letters by reason."""
        self._context.authorise(request, "read")
        return tagged(request, self._context.documents.all_json(self._context.clock.now()))

    async def one_status(self, request: Request, workload: str) -> Response:
        """Return one workload's latest status."""
        self._context.authorise(request, "read", workload)
        return tagged(request, self._context.documents.workload_json(workload, self._context.clock.now()))

    async def history(
        self, request: Request, workload: str, since: Annotated[str | None, Query(max_length=64)] = None
    ) -> Response:
        """Return how the workload stood, oldest first, from a time on."""
        self._context.authorise(request, "read", workload)
        start = None if since is None else moment_in_query("since", since)
        listed = b",".join(point.encoded for point in since_time(self._context.cache.points(workload), start))
        return tagged(request, b'{"workload":' + to_json(workload) + b',"points":[' + listed + b"]}")

    async def versions(self, request: Request, workload: str) -> Response:
        """Return a workload's versions, newest first."""
        self._context.authorise(request, "read", workload)
        cache = self._context.cache
        found = cache.versions(workload)
        known, key = self._listed.get(workload), (len(found), found[:1])
        if known is None or known[0] != key:
            lines = [_line(line, cache.line(workload, line.parent_version)) for line in found]
            known = self._listed[workload] = (key, to_json({"workload": workload, "versions": lines}))
        return tagged(request, known[1])

    async def version(self, request: Request, workload: str, version: VersionInPath) -> Response:
        """Return one version as it was published."""
        self._context.authorise(request, "read", workload)
        found = self._context.cache.version_json(workload, version_number(version))
        if found is None:
            raise unknown_version(workload, version)
        return tagged(request, found)

    async def stream(self, request: Request) -> Response:
        """Send an event whenever something changed (Server-Sent Events); the data is a revision number."""
        self._context.authorise(request, "read")
        return _EventStream(self._changes(), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def _changes(self) -> AsyncIterator[bytes]:
        sent, quiet_s = -1, 0.0
        while "closing" not in self._context.missing():
            # Of a Kafka that is away no record tells.
            heard = self._context.documents.headlines.heard()
            revision = self._context.cache.revision + self._context.letters.revision
            revision += heard is not None and heard.is_away
            if revision != sent:
                sent, quiet_s = revision, 0.0
                yield b"event: changed\ndata: %d\n\n" % revision
            elif quiet_s >= KEEP_ALIVE_S:
                quiet_s = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(STREAM_INTERVAL_S)
            quiet_s += STREAM_INTERVAL_S


_SHOWN = (
    *("state", "trigger", "uncertainty_threshold", "threshold", "micro_f1", "micro_f1_95", "escalation_rate"),
    *("labels", "parent_version", "content_of"),
)


def _line(line: VersionLine, parent: VersionLine | None) -> dict[str, Any]:
    shown = {name: getattr(line, name) for name in _SHOWN}
    return {"version": line.version, "created_at": rfc3339(line.created_at), **shown, "changed": changes(line, parent)}


class LabelRoutes:
    """The routes for labelers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.router = APIRouter(tags=["labels"])
        path, refusals = "/v1/label-requests/{workload:segment}", documented(401, 403, 404, 422)
        self.router.add_api_route(path, self.requests, methods=["GET"], responses=refusals)

    async def requests(
        self,
        request: Request,
        workload: str,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        reason: RequestReason | None = None,
        cursor: Annotated[str | None, Query(max_length=MAX_ID_CHARS + 20)] = None,
    ) -> Response:
        """Return what to label next, newest first, and the label budget; ``cursor`` is ``next`` of the page before.

        Requests of the reason ``audit`` are for trusted labelers alone; ``audits`` says who they are.
        """
        context = self._context
        context.authorise(request, "read", workload)
        page = context.page(workload, limit, reason, cursor)
        configured = context.settings.workloads[workload]
        budget = label_budget(context.cache.status(workload) or WorkloadStatus.cold_start(workload, configured.target))
        return tagged(request, to_json(queue_document(page, budget, configured.trusted_labelers)))
