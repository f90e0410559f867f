"""The router's HTTP: is it alive, is it ready, its metrics, its status.

``/healthz`` answers while the loop turns and says whether the clients hear the broker: 503 only where they do not and
others do, since a broker that is away is no reason to restart a router. ``/readyz`` says what is missing. Callers need
no key, so nothing that they do may keep more than a connection, and that not for long: they are few, and each ends
after a minute, whether its caller asks, is silent or does not read.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from schemas.status import RouterStatus
from stream_router.http_listener import Bounds, HttpListener, add_headers, guarded
from ucci_runtime.broker.contact import Health
from ucci_runtime.browser_safety import RequestHosts

#: Of a connection, whatever happens on it; callers who keep theirs make another one.
LIFETIME_S = 60.0

#: Beyond it the oldest connection makes room: probes and scrapers need one for milliseconds.
MAX_CONNECTIONS = 128

_UNAVAILABLE = 503


class StatusRoutes:
    """Answers ``/healthz``, ``/readyz``, ``/metrics`` and ``/v1/status``."""

    def __init__(
        self,
        status: Callable[[], RouterStatus],
        missing: Callable[[], tuple[str, ...]],
        registry: CollectorRegistry,
        health: Callable[[], Health] = Health,
    ) -> None:
        self._status = status
        self._missing = missing
        self._registry = registry
        self._health = health

    def table(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._metrics),
            web.get("/v1/status", self._v1_status),
        ]

    async def _healthz(self, _request: web.Request) -> web.Response:
        body, status = self._health().answer()
        return web.json_response(body, status=status)

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


class StatusServer:
    """Serves the status of a router that takes its queries from the topic."""

    def __init__(self, host: str, port: int, *, hosts: RequestHosts, routes: StatusRoutes) -> None:
        app = web.Application(middlewares=[guarded(hosts, "router.allowed_hosts", _error)])
        app.on_response_prepare.append(add_headers)
        app.add_routes(routes.table())
        self._listener = HttpListener(app, host, port, Bounds(MAX_CONNECTIONS, LIFETIME_S, spares_answers=False))

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._listener.port

    async def start(self) -> None:
        """Listen. Raises OSError when the address is taken."""
        await self._listener.start()

    async def close(self) -> None:
        """Stop listening."""
        await self._listener.close()


def _error(code: str, message: str, status: int) -> web.Response:
    """Return an error in the shape of the recalibrator's."""
    return web.json_response({"error": {"code": code, "message": message, "field": None}}, status=status)
