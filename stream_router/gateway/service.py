"""The only place where the gateway's parts are built, started and ended.

It serves its probes first, then waits for a broker and for the end of the calibration topic. On SIGTERM: take no
further queries, answer those in flight within the drain time, deliver what is queued for the broker, leave.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from secrets import token_hex
from threading import Event

import structlog
from pydantic import SecretStr

from schemas.event import MAX_RECORD_BYTES
from schemas.settings import Settings
from schemas.settings_reread import OF_GATEWAY, Reread, running_settings
from schemas.status import RouterStatus
from schemas.topics import CALIBRATION, CALIBRATION_TRIAL, DEAD_LETTERS, FEEDBACK, RESULTS, ROUTERS
from stream_router.calibration.feed_thread import CalibrationFeed
from stream_router.gateway.admission import Admission
from stream_router.gateway.http_api import GatewayApi, Output
from stream_router.http_status import StatusRoutes
from stream_router.otel_tracing import PassedOn
from stream_router.ports import Tracing
from stream_router.process import (
    MAX_DRAIN_S,
    STATUS_S,
    AnswererFactory,
    Ending,
    active_versions,
    await_calibration,
    await_topics,
    note_loads,
    note_servers,
    open_feed,
    status_beat,
    taken_over,
)
from stream_router.prometheus_metrics import Metrics
from stream_router.status import Backlog, Identity, Readiness, Versions, router_status
from ucci_runtime.broker.ports import Broker, CheckedTopics, Connect, Publisher, health_of
from ucci_runtime.clock import Clock
from ucci_runtime.heartbeat_thread import PUBLISHER, Beat, HeartbeatThread
from ucci_runtime.process import SystemClock

_log = structlog.get_logger()

#: By this name a broker makes the publisher of results.
RESULTS_PUBLISHER = "gateway"

_TOUCHED = (RESULTS, DEAD_LETTERS, CALIBRATION, ROUTERS)
#: Newer than the first gateways.
_OPTIONAL = (CALIBRATION_TRIAL, FEEDBACK)
_CLOSE_S = 1.0


def _with_own_draws(settings: Settings) -> Settings:
    """Return settings with a key of the draws: callers name queries, and none is read again after a crash."""
    if settings.router.draw_key is not None:
        return settings
    router = settings.router.model_copy(update={"draw_key": SecretStr(token_hex(32))})
    return settings.model_copy(update={"router": router})


class GatewayService:
    """One gateway.

    ``build_answerer``: see :class:`~stream_router.process.AnswererFactory`; what it builds does not wait for servers
    that are down.
    """

    def __init__(
        self,
        settings: Settings,
        connect: Connect,
        build_answerer: AnswererFactory,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._clock: Clock = SystemClock()
        self.metrics = Metrics()
        self._ending = Ending()
        self._active = active_versions(settings)
        self._answerer = build_answerer(_with_own_draws(settings), self._active, self._clock, self.metrics)
        self._admission = Admission(settings.gateway.max_in_flight)
        self._api = GatewayApi(
            settings,
            self._answerer,
            self._admission,
            metrics=self.metrics,
            clock=self._clock,
            tracing=tracing or PassedOn(),
        )
        self._feed = CalibrationFeed(
            settings, self._active, clock=self._clock, on_failure=self._ending.fail, metrics=self.metrics
        )
        self._identity = Identity(
            settings.gateway.instance_id, self._clock.now(), running_settings(settings, OF_GATEWAY), serves="http"
        )
        self._closing, self._ended = Event(), Event()
        self._topics_away: str | None = None
        self._broker: Broker | None = None
        routes = StatusRoutes(
            self.status,
            lambda: self._readiness().missing,
            self.metrics.registry,
            lambda: health_of(self._broker, self._topics_away),
        )
        self._listener = self._api.listener(routes)

    @property
    def hangs(self) -> bool:
        """Whether a broker call may never return: end the process without clean-up then."""
        return self._feed.is_alive()

    @property
    def http_port(self) -> int:
        """The port that is listened on, once it runs."""
        return self._listener.port

    def end(self) -> None:
        """Drain and leave; callable from the loop's thread."""
        self._ending.asked.set()

    def take_over(self, found: Settings) -> Reread:
        """Apply what may change from a reloaded file; in the event loop.

        Queries in flight end as they began; those to come go by the new settings. Raises ConfigError; nothing has
        changed then.
        """
        done = taken_over(self._settings, found, OF_GATEWAY, self._answerer, self._active)
        self._settings = done.settings
        self._api.use(done.settings)
        self._identity = replace(self._identity, settings=running_settings(done.settings, OF_GATEWAY))
        return done

    async def run(self) -> None:
        """Run until :meth:`end` or a failure.

        Raises UcciError when something that only a person can fix ended it; raises OSError when the address is taken.
        """
        self._ending.begin()
        broker = self._broker = self._connect(
            self._settings.gateway.instance_id,
            count=self.metrics.count,
            on_final=self._ending.fail,
            closing=self._closing,
        )
        await self._listener.start()
        _log.info("serving", host=self._settings.gateway.http_host, port=self._listener.port)
        try:
            check = partial(broker.check, _TOUCHED, (RESULTS, DEAD_LETTERS), _OPTIONAL)
            checked = await await_topics(check, self._ending.asked, self._clock, self._note_broker)
            if checked is not None:
                options = self._settings.gateway
                owner = (options.instance_id, options.state_dir)
                await asyncio.to_thread(open_feed, self._feed, broker, checked, self._settings, owner)
                await self._serve(broker, checked)
        finally:
            await self._listener.close()
        self._ending.raise_failure()

    def status(self) -> RouterStatus:
        """Return the status as of now, and set the gauges by it."""
        readiness, models = self._readiness(), self._answerer.health()
        self.metrics.gauge("in_flight", self._admission.in_flight)
        self.metrics.gauge("ready", not readiness.missing)
        note_loads(models, self.metrics)
        return router_status(
            self._identity,
            now=self._clock.now(),
            readiness=readiness,
            versions=Versions(self._active.versions(), self._active.rejected()),
            models=models,
            backlog=Backlog(self._admission.in_flight, {}),
            counters=self.metrics.totals(),
        )

    async def _serve(self, broker: Broker, checked: CheckedTopics) -> None:
        """Start the parts in the order of the flow, wait for the end, stop them in the reverse order."""
        publisher = broker.publisher(RESULTS_PUBLISHER)
        topic = ROUTERS.name(self._settings.topics.prefix)
        heartbeat = HeartbeatThread(broker.publisher(PUBLISHER), topic, self._beat, self._ended)
        await self._answerer.start()
        note_servers(self._answerer.health(), self.metrics)
        self._feed.start()
        heartbeat.start()
        try:
            await await_calibration(self._feed, self._active, self._ending.asked, self._clock)
            most = min(checked.max_record_bytes, MAX_RECORD_BYTES)
            self._api.open(Output(publisher, most, takes_feedback=FEEDBACK not in checked.missing))
            await self._ending.asked.wait()
        finally:
            await self._drain(publisher)
            self._ended.set()
            await asyncio.to_thread(heartbeat.join, _CLOSE_S + STATUS_S)
            await self._answerer.close()

    async def _drain(self, publisher: Publisher) -> None:
        began_s = self._clock.monotonic()
        self._listener.stop_accepting()
        self._admission.close()
        if self._ending.failure is None:
            await self._admission.drained(MAX_DRAIN_S)
        given_up = self._admission.in_flight
        await self._listener.close(_CLOSE_S)
        self._closing.set()
        await asyncio.to_thread(publisher.close)
        self._feed.close()
        if self._feed.is_alive():
            await asyncio.to_thread(self._feed.join, _CLOSE_S)
        _log.info("ended", seconds=round(self._clock.monotonic() - began_s, 3), given_up=given_up)

    def _readiness(self) -> Readiness:
        return Readiness(
            is_assigned=True,
            # Queries are taken from then on, if need be by the versions from disk.
            is_calibration_read=self._admission.is_open,
            has_producer=True,
            can_answer=self._answerer.can_answer,
            is_draining=self._ending.asked.is_set(),
            broker_away=self._topics_away or self._admission.broker_away,
        )

    def _note_broker(self, away: str | None) -> None:
        self._topics_away = away

    def _beat(self) -> Beat | None:
        return status_beat(self._ending.loop, self.status)
