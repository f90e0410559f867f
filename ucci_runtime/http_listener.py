"""HTTP of routers, gateways and probes: a listener whose callers cannot keep it from others, and routes of a status.

The library has no deadline for a request's head, and none for a caller who does not take an answer. Here a connection
without a request that is being answered ends after its patience, whether its caller is silent, sends a head that never
ends or does not read; one that was answered is kept for longer.

``/healthz`` answers while the loop turns and says whether the clients hear the broker: 503 only where they do not and
others do, since a broker that is away is no reason to restart anything. ``/readyz`` says what is missing. Callers of a
status need no key, so nothing that they do may keep more than a connection, and that not for long: they are few, and
each ends after a minute, whether its caller asks, is silent or does not read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, NamedTuple

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from schemas.status import RouterStatus
from ucci_runtime.broker.contact import Health, readiness
from ucci_runtime.process import affordable_connections
from ucci_runtime.refusals import SECURITY_HEADERS, RequestHosts

_log = structlog.get_logger()

#: How long a connection is kept after an answer, for the next request: longer than clients and load balancers keep
#: theirs, commonly up to 60 s. One that ends here first breaks under a request that is on its way.
KEPT_S = 75.0

#: Of a connection to a router's status, whatever happens on it; callers who keep theirs make another one.
LIFETIME_S = 60.0

#: Beyond it the oldest connection to the status makes room: probes and scrapers need one for milliseconds.
MAX_CONNECTIONS = 128

_BACKLOG: Final = 512
#: Connections accepted in one turn of the loop: the limit sees each before the next one takes a file.
_ACCEPTED: Final = 1

#: Statuses of a path, or of a method on it, that is not there.
NOWHERE: Final = (404, 405)

_PATH_CHARS: Final = 100
_FORBIDDEN: Final = 403
_INTERNAL: Final = 500

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Makes an error's answer of its code, its line for people, and its status.
ErrorShape = Callable[[str, str, int], web.Response]


class Bounds(NamedTuple):
    """What the callers of a listener may keep."""

    #: Beyond it, or beyond a quarter of the files of the process, the one that has waited longest makes room; a request
    #: whose body has not come counts as waiting, after all others.
    connections: int
    #: How long a connection lasts without a request that is being answered.
    patience_s: float
    #: Whether a connection lasts as long as its answer takes, and ``KEPT_S`` after it; otherwise it ends when its
    #: patience does, whatever happens on it.
    spares_answers: bool


class HttpListener:
    """Serves an application, under the name of its service alone."""

    def __init__(self, app: web.Application, host: str, port: int, bounds: Bounds, name: str = "stream-router") -> None:
        self._host = host
        self._port = port
        self._bounds = bounds
        self._name = name
        if bounds.spares_answers:
            app.middlewares.insert(0, self._spare)
        app.on_response_prepare.append(self._sign)
        # A caller who left is not worth the models' time, and what a compressed body unpacks to is not bounded.
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=KEPT_S, handler_cancellation=True, auto_decompress=False
        )
        self._listening: asyncio.Server | None = None
        self._waiting: OrderedDict[RequestHandler, asyncio.TimerHandle] = OrderedDict()
        self._answering: dict[RequestHandler, web.Request] = {}

    @property
    def port(self) -> int:
        """The port that is, or was, listened on."""
        assert self._listening is not None
        return self._port

    async def start(self) -> None:
        """Listen. Raises OSError when the address is taken."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._connection, self._host, self._port, backlog=_ACCEPTED)
        for one in self._listening.sockets:
            # The library tells the kernel the same number, of connections that wait to be accepted.
            with one.dup() as listening:
                listening.listen(_BACKLOG)
        self._port = int(self._listening.sockets[0].getsockname()[1])

    def stop_accepting(self) -> None:
        """Take no further connections; those that are there go on."""
        if self._listening is not None:
            self._listening.close()

    async def close(self, grace_s: float = 0.0) -> None:
        """End all connections: those that wait for a request at once, those that are being answered after a grace.

        ``grace_s``: longest time for handlers to return, and as long again for their answers to be sent.
        """
        self.stop_accepting()
        for connection in list(self._waiting):
            self._end(connection)
        server = self._runner.server
        if server is not None and grace_s:
            await server.shutdown(grace_s)
        for connection in list(self._answering):
            self._end(connection)
        await self._runner.cleanup()

    def _connection(self) -> RequestHandler:
        assert self._runner.server is not None
        connection: RequestHandler = self._runner.server()
        for gone in [one for one in self._waiting if one.transport is None]:
            self._stop_waiting(gone)
        patience_s = self._bounds.patience_s
        while len(self._waiting) + len(self._answering) >= affordable_connections(self._bounds.connections):
            unread = (one for one, request in self._answering.items() if not request.content.is_eof())
            if (oldest := next(iter(self._waiting), None) or next(unread, None)) is None:
                # Every other one is being answered: this one ends as soon as it has a transport.
                patience_s = 0.0
                break
            self._end(oldest)
        self._await_request(connection, patience_s)
        return connection

    def _await_request(self, connection: RequestHandler, patience_s: float) -> None:
        self._waiting[connection] = asyncio.get_running_loop().call_later(patience_s, self._end, connection)

    def _end(self, connection: RequestHandler) -> None:
        """End a connection at once: closed in order, it would wait for a caller who does not read."""
        self._answering.pop(connection, None)
        self._stop_waiting(connection)
        if connection.transport is not None:
            connection.transport.abort()

    async def _sign(self, _request: web.Request, response: web.StreamResponse) -> None:
        # The library would name itself and Python, with their versions.
        response.headers["Server"] = self._name

    def _stop_waiting(self, connection: RequestHandler) -> None:
        if (timer := self._waiting.pop(connection, None)) is not None:
            timer.cancel()

    @web.middleware
    async def _spare(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = request.protocol
        self._stop_waiting(connection)
        self._answering[connection] = request
        try:
            return await handler(request)
        finally:
            self._answering.pop(connection, None)
            if connection.transport is not None:
                self._await_request(connection, KEPT_S)


def application(
    hosts: RequestHosts, setting: str, error: ErrorShape, routes: Iterable[web.RouteDef]
) -> web.Application:
    """Return an application that refuses foreign names, and answers a fault of ours with nothing of its insides.

    ``setting`` is where names are allowed. Each answer has the headers that browsers obey.
    """
    app = web.Application(middlewares=[_guarded(hosts, setting, error)])
    app.on_response_prepare.append(_add_headers)
    app.add_routes(routes)
    return app


def _guarded(hosts: RequestHosts, setting: str, error: ErrorShape) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host")
        if not hosts.allows(host):
            return error("foreign_host", RequestHosts.refusal(host, setting), _FORBIDDEN)
        try:
            return await handler(request)
        except web.HTTPException as refused:
            why = refused.reason
            if refused.status in NOWHERE:
                why = f"{request.method} {request.rel_url.raw_path[:_PATH_CHARS]} is not served here"
            return error(refused.reason.lower().replace(" ", "_"), why, refused.status)
        except Exception as fault:  # noqa: BLE001 the caller learns that it failed, the log why
            _log.error("request failed", path=request.path, exc_info=fault)
            return error("internal", "this is a fault of the service; it is in its log", _INTERNAL)

    return guard


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)


def probe_routes(
    missing: Callable[[], Collection[str]],
    registry: CollectorRegistry,
    health: Callable[[], Health] = Health,
    *,
    before_metrics: Callable[[], object] = lambda: None,
) -> list[web.RouteDef]:
    """Return the routes ``/healthz``, ``/readyz`` and ``/metrics`` of a process."""

    async def healthz(_request: web.Request) -> web.Response:
        body, code = health().answer()
        return web.json_response(body, status=code)

    async def readyz(_request: web.Request) -> web.Response:
        body, code = readiness(missing())
        return web.json_response(body, status=code)

    async def metrics(_request: web.Request) -> web.Response:
        before_metrics()
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]


def status_routes(
    status: Callable[[], RouterStatus],
    missing: Callable[[], Collection[str]],
    registry: CollectorRegistry,
    health: Callable[[], Health] = Health,
) -> list[web.RouteDef]:
    """Return the same routes, with the gauges of a router's status among the metrics, and ``/v1/status``."""

    async def v1_status(_request: web.Request) -> web.Response:
        return web.Response(body=status().to_json(), content_type="application/json")

    return [*probe_routes(missing, registry, health, before_metrics=status), web.get("/v1/status", v1_status)]


def status_listener(host: str, port: int, hosts: RequestHosts, routes: list[web.RouteDef]) -> HttpListener:
    """Return what serves the status of a router that takes its queries from the topic."""
    app = application(hosts, "router.allowed_hosts", _error, routes)
    return HttpListener(app, host, port, Bounds(MAX_CONNECTIONS, LIFETIME_S, spares_answers=False))


def _error(code: str, message: str, status: int) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message, "field": None}}, status=status)
