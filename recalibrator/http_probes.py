"""Probes and metrics of a process that runs without the API stage; with it, the API answers the same paths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread

from aiohttp import web
from prometheus_client import CollectorRegistry

from ucci_runtime.broker.contact import Health
from ucci_runtime.http_listener import Bounds, HttpListener, probe_routes

#: How long a connection lasts; a prober that keeps its own makes another one.
STRAY_TIMEOUT_S = 10.0

#: The most open at once. A probe ends in milliseconds, so the oldest is none.
MAX_CONNECTIONS = 64


class ProbeServer:
    """Serves ``/healthz``, ``/readyz`` and ``/metrics`` on a thread of its own.

    ``/healthz`` answers while the process runs, 503 only where the broker answers others and not this process;
    ``/readyz`` names what is not ready. Raises OSError when the address is taken.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        missing: Callable[[], list[str]],
        registry: CollectorRegistry,
        health: Callable[[], Health] = Health,
        stray_timeout_s: float = STRAY_TIMEOUT_S,
    ) -> None:
        app = web.Application()
        app.add_routes([*probe_routes(missing, registry, health), web.get("/{path:.*}", _unknown)])
        bounds = Bounds(MAX_CONNECTIONS, stray_timeout_s, spares_answers=False)
        self._listener = HttpListener(app, host, port, bounds, "recalibrator")
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._listener.start())
        self._thread = Thread(target=self._loop.run_forever, name="probes", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._listener.port

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening; only once started."""
        asyncio.run_coroutine_threadsafe(self._listener.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _unknown(_request: web.Request) -> web.Response:
    return web.json_response({"status": "unknown path"}, status=404)
