"""The API stage: the application, the HTTP server on a thread of its own, and the loop that keeps the read model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version

import structlog
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recalibrator.api.http_answers import JSON, document_of, error_body, json_answer, refusal
from recalibrator.api.http_context import Context, Shared
from recalibrator.api.http_requests import drain, segmented_path
from recalibrator.api.http_server import HttpServer
from recalibrator.api.keys import Keys
from recalibrator.api.prometheus_status import StatusMetrics
from recalibrator.api.read_model.dead_letter_log import MOST_KEPT, DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.api.routes_commands import CommandRoutes
from recalibrator.api.routes_feedback import FeedbackRoutes, unavailable
from recalibrator.api.routes_label_form import LabelFormRoutes
from recalibrator.api.routes_movement import MOST_READ, MovementRoutes
from recalibrator.api.routes_page import PageRoutes
from recalibrator.api.routes_status import LabelRoutes, StatusRoutes
from recalibrator.labelling.queue import LabelQueue
from recalibrator.prometheus_metrics import Metrics
from recalibrator.stage import ReaderName, Stage
from schemas.settings import RecalibratorSettings, Settings
from schemas.topics import (
    CALIBRATION_HISTORY,
    DEAD_LETTERS,
    HAPPENINGS,
    LABEL_REQUESTS,
    RECALIBRATORS,
    RESULTS,
    ROUTERS,
    STATUS,
    Topic,
)
from ucci_runtime.broker.contact import readiness
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.ports import Broker
from ucci_runtime.refusals import SECURITY_HEADERS, RequestHosts, RequestRefused

_log = structlog.get_logger()
_POLL_S = 0.1
_REQUEST_TIMEOUT, _INTERNAL = 408, 500

#: The topics that the API serves whole.
VIEWED = (STATUS, ROUTERS, RECALIBRATORS, CALIBRATION_HISTORY, HAPPENINGS, LABEL_REQUESTS)


def create_app(context: Context) -> FastAPI:
    """Return the ASGI application: the routes put together, with every failure in the one shape of errors."""
    commands, feedback = CommandRoutes(context), FeedbackRoutes(context)
    statuses = StatusMetrics(context.cache.workloads, context.documents, context.clock.now)
    pages = (PageRoutes(context, commands), LabelFormRoutes(context, feedback))
    routes = (StatusRoutes(context), MovementRoutes(context), LabelRoutes(context), feedback, commands, *pages)
    app = _with_probes(context, [one.router for one in routes], statuses.text)
    _add_handlers(app)
    app.openapi = document_of(app, has_keys=bool(context.settings.recalibrator.api_keys))  # type: ignore[method-assign]

    async def openapi(_request: Request) -> Response:
        # Made at the first request, which takes .4 s; other requests do not wait for it.
        return json_answer(await asyncio.to_thread(app.openapi))

    app.add_route("/openapi.json", openapi, include_in_schema=False)
    app.add_middleware(_count_requests, metrics=context.metrics)
    app.add_middleware(_drain_refused)
    app.add_middleware(_keep_segments)
    app.add_middleware(_guard_browsers, options=context.settings.recalibrator)
    return app


def waiting_server(settings: Settings, shared: Shared, listening: socket.socket | None = None) -> HttpServer:
    """Return a server, not started yet, of a process without a broker: it answers probes, and 503 for all else.

    An :class:`ApiStage` takes it over. ``listening``: where it was bound already.
    """
    app, options = _with_probes(shared), settings.recalibrator

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
    async def wait(path: str) -> Response:  # noqa: ARG001 whatever it is
        return refusal(unavailable(BrokerUnreachable("; ".join(shared.missing()) or "starting")))

    app.add_middleware(_guard_browsers, options=options)
    return HttpServer(app, options.http_host, options.http_port, listening)


class ApiStage(Stage):
    """Serves what the compacted topics say; driven by one thread through :meth:`turn`.

    ``server``: what has answered so far, see :func:`waiting_server`; else a new one. Raises OSError: address taken.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        shared: Shared,
        viewed: Sequence[Topic] = VIEWED,
        server: HttpServer | None = None,
    ) -> None:
        prefix = settings.topics.prefix
        self._cache = TopicCache(tuple(settings.workloads), prefix)
        self._letters = DeadLetterLog(tuple(settings.workloads))
        self._queue = LabelQueue.configured(settings)
        self._reader = broker.topic_reader(ReaderName.VIEW.value, [topic.name(prefix) for topic in viewed])
        self._tail = broker.topic_reader(ReaderName.DEAD_LETTERS.value, [DEAD_LETTERS.name(prefix)], tail=MOST_KEPT)
        self._results = partial(broker.topic_reader, ReaderName.RESULTS.value, [RESULTS.name(prefix)], tail=MOST_READ)
        self._producer = broker.publisher("api-producer")
        self._shared = shared
        self._server = server or waiting_server(settings, shared)
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Answer the requests to come under these settings; quotas restart."""
        shared = self._shared
        context = Context(
            shared.metrics,
            shared.clock,
            shared.missing,
            shared.health,
            settings=settings,
            keys=Keys(settings.recalibrator.api_keys),
            cache=self._cache,
            letters=self._letters,
            documents=StatusDocuments(settings, self._cache, self._letters, lambda: shared.health().heard),
            queue=self._queue,
            producer=self._producer,
            results=self._results,
        )
        self._server.use(create_app(context))

    @property
    def http_port(self) -> int:
        """The port that is listened on."""
        return self._server.port

    @property
    def is_ready(self) -> bool:
        """Whether every topic was read to its end once."""
        return self._reader.has_reached_ends

    def start(self) -> None:
        """Serve from now on; ``/readyz`` says what is still missing."""
        self._server.start()

    def turn(self) -> None:
        """Take what has come; blocks up to 0.1 s."""
        for record in self._reader.poll(_POLL_S):
            topic, key, value = record.source.topic, record.key, record.value
            if not (self._cache.take(topic, key, value, record.timestamp_ms) or self._queue.take(topic, key, value)):
                self._shared.metrics.count("view_records_ignored", topic=topic)
        for letter in self._tail.poll(0.0):
            self._letters.take(letter.key, letter.value, dict(letter.headers), letter.timestamp_ms)

    def close(self) -> None:
        """Answer what is being answered, deliver what is queued, and end."""
        self._server.close()
        self._producer.close()
        self._reader.close()
        self._tail.close()


def _guard_browsers(app: ASGIApp, options: RecalibratorSettings) -> ASGIApp:
    """Refuse requests under a foreign host name, and add the headers that browsers obey to every answer."""
    hosts = RequestHosts.of(options.http_host, options.allowed_hosts)

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = Headers(scope=scope).get("host") if scope["type"] == "http" else None
        answer = app
        if scope["type"] == "http" and not hosts.allows(host):
            message = RequestHosts.refusal(host, "recalibrator.allowed_hosts")
            answer = refusal(RequestRefused(403, "foreign_host", message, "Host"))
        await answer(scope, receive, guarded)

    return guard


def _keep_segments(app: ASGIApp) -> ASGIApp:
    """Keep the slashes that are encoded within a segment of the path, as in the name of a workload."""

    async def keep(scope: Scope, receive: Receive, send: Send) -> None:
        if raw_path := scope.get("raw_path"):
            scope["path"] = segmented_path(raw_path)
        await app(scope, receive, send)

    return keep


def _drain_refused(app: ASGIApp) -> ASGIApp:
    """Read, within bounds, what a client still sends of a body whose answer is there already.

    A connection that is closed over unread data is reset, and the client never sees why it was refused.
    """

    async def drain_rest(scope: Scope, receive: Receive, send: Send) -> None:
        has_more, may_come = True, False

        async def received() -> Message:
            nonlocal has_more
            message = await receive()
            has_more = message["type"] == "http.request" and bool(message.get("more_body"))
            return message

        async def answered(message: Message) -> None:
            nonlocal may_come
            if message["type"] == "http.response.start":
                may_come = has_more and _sends_body(scope) and message["status"] != _REQUEST_TIMEOUT
            ends = message["type"] == "http.response.body" and not message.get("more_body")
            if not (ends and may_come and has_more):
                await send(message)
                return
            # The whole answer is on its way, only its end is not marked yet: that would close the connection.
            await send({**message, "more_body": True})
            await drain(received)
            await send({"type": "http.response.body", "body": b""})

        await app(scope, received, answered)

    return drain_rest


def _sends_body(scope: Scope) -> bool:
    """Return whether a client sends a body without waiting to be asked for it."""
    names = Headers(scope=scope)
    return "expect" not in names and ("transfer-encoding" in names or names.get("content-length", "0") != "0")


def _count_requests(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """Count answers by route and status; wraps nothing else, so that bodies and answers pass unbuffered."""

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        def note(status: int) -> None:
            metrics.count("http_requests", route=getattr(scope.get("route"), "path_format", "none"), status=str(status))

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(int(message["status"]))
            await send(message)

        try:
            await app(scope, receive, counted)
        except Exception:
            # Answered outside of here.
            note(_INTERNAL)
            raise

    return count


def _with_probes(process: Shared, routers: Sequence[APIRouter] = (), statuses: Callable[[], bytes] = bytes) -> FastAPI:
    """Return an application of these routes that answers probes; ``statuses``: returns metrics of workloads."""
    # The interactive pages of the framework load scripts from another host.
    app = FastAPI(title="recalibrator", version=version("ucci-stream"), docs_url=None, redoc_url=None, openapi_url=None)
    for router in routers:
        app.include_router(router)

    @app.get("/healthz", tags=["probes"])
    async def healthz() -> Response:
        """Answer as long as the process runs; say whether it and the broker talk, 503 where a restart would help."""
        return json_answer(*process.health().answer())

    @app.get(
        "/readyz",
        tags=["probes"],
        responses={503: {"description": "Not ready; names what is missing", "content": {JSON: {}}}},
    )
    async def readyz() -> Response:
        """Return whether every stage has caught up."""
        return json_answer(*readiness(process.missing()))

    @app.get("/metrics", tags=["probes"], response_class=PlainTextResponse)
    async def exposed() -> Response:
        """Return the metrics in Prometheus' text format."""
        # Many workloads take tens of milliseconds; other requests do not wait for them.
        workloads = await asyncio.to_thread(statuses)
        return Response(generate_latest(process.metrics.registry) + workloads, media_type=CONTENT_TYPE_LATEST)

    return app


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestRefused)
    async def on_refused(_request: Request, error: RequestRefused) -> Response:
        return refusal(error)

    @app.exception_handler(BrokerUnreachable)
    async def on_broker_away(_request: Request, error: BrokerUnreachable) -> Response:
        return refusal(unavailable(error))

    @app.exception_handler(HTTPException)
    async def on_http_error(_request: Request, error: HTTPException) -> Response:
        body = error_body(error.detail.lower().replace(" ", "_"), error.detail)
        return json_answer(body, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][1:]) or None
        return json_answer(error_body("invalid_field", f"{name}: {first['msg']}", name), 422)

    @app.exception_handler(Exception)
    async def on_failure(request: Request, error: Exception) -> Response:
        _log.error("request failed", path=request.url.path, exc_info=error)
        # Sent from outside of all that adds headers.
        body = error_body("internal", "this is a fault of the service; it is in its log")
        return json_answer(body, _INTERNAL, SECURITY_HEADERS)
