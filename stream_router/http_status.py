"""The router's HTTP: is it alive, is it ready, its metrics, its status.

``/healthz`` answers while the loop turns and never asks the broker: a broker that is away is no reason to restart a
router. ``/readyz`` says what is missing. Callers need no key, so nothing that they do may keep more than a connection,
and that not for long: they are few, and each ends after a minute, whether its caller asks, is silent or does not read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from schemas.status import RouterStatus
from ucci_runtime.browser_safety import SECURITY_HEADERS, RequestHosts

_log = structlog.get_logger()

LIFETIME_S = 60.0
"""Of a connection, whatever happens on it; callers who keep theirs make another one."""

KEPT_S = 15.0
"""How long a connection is kept after an answer, for the next request."""

MAX_CONNECTIONS = 128
"""Beyond it the oldest connection makes room: probes and scrapers need one for milliseconds."""

_NAME: Final = "stream-router"
_FORBIDDEN: Final = 403
_INTERNAL: Final = 500
_UNAVAILABLE: Final = 503

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StatusServer:
    """Serves ``/healthz``, ``/readyz``, ``/metrics`` and ``/v1/status``.

    Parameters
    ----------
    host, port : str, int
        Port 0 takes a free one; see :attr:`port`.
    hosts : RequestHosts
        Names under which requests may come.
    status : callable
        Returns the status as of now.
    missing : callable
        Returns what is missing for being ready; empty when ready.
    registry : CollectorRegistry
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        hosts: RequestHosts,
        status: Callable[[], RouterStatus],
        missing: Callable[[], tuple[str, ...]],
        registry: CollectorRegistry,
    ) -> None:
        self._host = host
        self._port = port
        self._hosts = hosts
        self._status = status
        self._missing = missing
        self._registry = registry
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._connections: OrderedDict[RequestHandler, asyncio.TimerHandle] = OrderedDict()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen.

        Raises
        ------
        OSError
            When the address is taken.
        """
        app = web.Application(middlewares=[self._guard])
        app.on_response_prepare.append(_add_headers)
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/v1/status", self._v1_status),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEPT_S)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._connection, self._host, self._port)

    async def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._connections):
            self._end(connection)
        if self._runner is not None:
            await self._runner.cleanup()

    def _connection(self) -> RequestHandler:
        """Return what serves one connection that was just accepted."""
        assert self._runner is not None
        assert self._runner.server is not None
        connection: RequestHandler = self._runner.server()
        for gone in [one for one in self._connections if one.transport is None]:
            self._connections.pop(gone).cancel()
        while len(self._connections) >= MAX_CONNECTIONS:
            self._end(next(iter(self._connections)))
        ends = asyncio.get_running_loop().call_later(LIFETIME_S, self._end, connection)
        self._connections[connection] = ends
        return connection

    def _end(self, connection: RequestHandler) -> None:
        """End a connection at once: closed in order, it would wait for a caller who does not read."""
        timer = self._connections.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if connection.transport is not None:
            connection.transport.abort()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse foreign names, and answer a fault of our own with nothing of its insides."""
        host = request.headers.get("Host")
        if not self._hosts.allows(host):
            message = RequestHosts.refusal(host, "router.allowed_hosts")
            return _error("foreign_host", message, _FORBIDDEN)
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.reason.lower().replace(" ", "_"), error.reason, error.status)
        except Exception as error:  # noqa: BLE001 the caller learns that it failed, the log why
            _log.error("request failed", path=request.path, exc_info=error)
            return _error("internal", "this is a fault of the service; it is in its log", _INTERNAL)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _readyz(self, _request: web.Request) -> web.Response:
        missing = self._missing()
        if missing:
            return web.json_response({"status": "not ready", "missing": list(missing)}, status=_UNAVAILABLE)
        return web.json_response({"status": "ready"})

    async def _metrics(self, _request: web.Request) -> web.Response:
        self._status()
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _v1_status(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._status().to_json(), content_type="application/json")


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    # The library would name itself and Python, with their versions.
    response.headers["Server"] = _NAME


def _error(code: str, message: str, status: int) -> web.Response:
    """Return an error in the shape of the recalibrator's."""
    return web.json_response({"error": {"code": code, "message": message, "field": None}}, status=status)
