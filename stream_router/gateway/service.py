"""The only place where the gateway's parts are built, started and ended.

On SIGTERM: take no further queries, answer those in flight within the drain time, deliver what is queued for the
broker, leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from secrets import token_hex

import structlog
from pydantic import SecretStr

from schemas.event import MAX_RECORD_BYTES
from schemas.settings import GatewaySettings, Settings
from schemas.settings_reread import OF_GATEWAY
from schemas.topics import CALIBRATION, CALIBRATION_TRIAL, DEAD_LETTERS, FEEDBACK, RESULTS, ROUTERS
from stream_router.gateway.admission import Admission
from stream_router.gateway.http_api import GatewayApi, Output
from stream_router.otel_tracing import Tracing
from stream_router.process import CLOSE_S, MAX_DRAIN_S, AnswererFactory, RouterProcess
from ucci_runtime.broker.ports import Broker, CheckedTopics, Connect
from ucci_runtime.broker.records import Lag

_log = structlog.get_logger()

#: By this name a broker makes the publisher of results.
RESULTS_PUBLISHER = "gateway"


def _with_own_draws(settings: Settings) -> Settings:
    """Return settings with a key of the draws: callers name queries, and none is read again after a crash."""
    if settings.router.draw_key is not None:
        return settings
    router = settings.router.model_copy(update={"draw_key": SecretStr(token_hex(32))})
    return settings.model_copy(update={"router": router})


class GatewayService(RouterProcess):
    """One gateway. ``build_answerer``: what it builds does not wait for servers that are down."""

    tables = OF_GATEWAY
    serves = "http"
    needed = (RESULTS, DEAD_LETTERS, CALIBRATION, ROUTERS)
    #: Newer than the first gateways.
    optional = (CALIBRATION_TRIAL, FEEDBACK)
    greeting = "serving"

    def __init__(
        self, settings: Settings, connect: Connect, build_answerer: AnswererFactory, tracing: Tracing | None = None
    ) -> None:
        super().__init__(settings, connect, lambda given, *parts: build_answerer(_with_own_draws(given), *parts))
        self._admission = Admission(settings.gateway.max_in_flight)
        self._api = GatewayApi(
            settings,
            self._answerer,
            self._admission,
            metrics=self.metrics,
            clock=self._clock,
            tracing=tracing or Tracing(),
        )
        self._listener = self._api.listener(self._routes)

    @property
    def _options(self) -> GatewaySettings:
        return self._settings.gateway

    def _use(self, settings: Settings) -> None:
        self._api.use(settings)

    def _load(self) -> tuple[int, Mapping[int, Lag]]:
        return self._admission.in_flight, {}

    def _missing(self) -> tuple[str, ...]:
        return self._lacking(
            self._broker_away or self._admission.broker_away,
            # Queries are taken from then on, if need be by the versions from disk.
            is_calibration_read=self._admission.is_open,
        )

    def _open(self, broker: Broker, checked: CheckedTopics) -> None:
        most = min(checked.max_record_bytes, MAX_RECORD_BYTES)
        takes_feedback = FEEDBACK not in checked.missing
        self._api.output = Output(broker.publisher(RESULTS_PUBLISHER), most, takes_feedback=takes_feedback)

    def _take_queries(self) -> None:
        self._admission.is_open = True

    async def _drain(self) -> None:
        assert self._api.output is not None
        began_s = self._clock.monotonic()
        self._listener.stop_accepting()
        self._admission.is_closed = True
        if self._failure is None:
            await self._admission.drained(MAX_DRAIN_S)
        given_up = self._admission.in_flight
        await self._listener.close(CLOSE_S)
        self._closing.set()
        await asyncio.to_thread(self._api.output.publisher.close)
        self._feed.close()
        if self._feed.is_alive():
            await asyncio.to_thread(self._feed.join, CLOSE_S)
        _log.info("ended", seconds=round(self._clock.monotonic() - began_s, 3), given_up=given_up)
