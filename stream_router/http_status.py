"""The router's HTTP: is it alive, is it ready, its metrics, its status.

``/healthz`` answers while the loop turns and never asks the broker: a broker that is away is no reason to restart a
router. ``/readyz`` says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from schemas.status import RouterStatus

_UNAVAILABLE: Final = 503


class StatusServer:
    """Serves ``/healthz``, ``/readyz``, ``/metrics`` and ``/v1/status``.

    Parameters
    ----------
    host, port : str, int
        Port 0 takes a free one; see :attr:`port`.
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
        status: Callable[[], RouterStatus],
        missing: Callable[[], tuple[str, ...]],
        registry: CollectorRegistry,
    ) -> None:
        self._host = host
        self._port = port
        self._status = status
        self._missing = missing
        self._registry = registry
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._runner is not None
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Listen.

        Raises
        ------
        OSError
            When the address is taken.
        """
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/v1/status", self._v1_status),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

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
