"""The only place where the router's parts are built, started and ended, and the one order in which they end.

Settings flow in; an exit code flows out. On SIGTERM: take no further queries, answer those in flight within the
drain time, commit, leave. Nothing that was not committed is lost: whoever comes next answers it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection
from typing import Protocol

import structlog

from schemas.settings import Settings
from schemas.status import RouterStatus
from schemas.topics import CALIBRATION, CALIBRATION_TRIAL, DEAD_LETTERS, QUERIES, RESULTS, ROUTERS
from stream_router.calibration.active_versions import ActiveVersions
from stream_router.calibration.feed_thread import CalibrationFeed
from stream_router.commit.commit_thread import Committer
from stream_router.commit.ledger import RecordId
from stream_router.commit.outcome import InputRecord
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.heartbeat_thread import Heartbeat
from stream_router.http_status import StatusServer
from stream_router.intake.intake_thread import Intake
from stream_router.otel_tracing import PassedOn
from stream_router.ports import Answerer, Calibrations, Tracing
from stream_router.prometheus_metrics import Metrics
from stream_router.query_loop import Router
from stream_router.status import Identity, Readiness, router_status
from ucci_runtime.broker.kafka_topics import check_topics
from ucci_runtime.broker.transaction_states import State
from ucci_runtime.clock import Clock, SystemClock
from ucci_runtime.tally import Tally

_log = structlog.get_logger()

FINAL_COMMIT_S = 3.0
"""For the last transaction, after the drain."""

MAX_DRAIN_S = 13.0
"""Longest drain, whatever is configured: a SIGTERM ends within 20 s."""

_TOUCHED = (QUERIES, RESULTS, DEAD_LETTERS, CALIBRATION, ROUTERS)
_CLOSE_S = 1.0
_POLL_S = 0.2
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RunningAnswerer(Answerer, Protocol):
    """An answerer with connections to open and close."""

    async def start(self) -> None:
        """Open connections."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class AnswererFactory(Protocol):
    """Builds the answerer once the calibrations that it decides by are there."""

    def __call__(
        self, settings: Settings, calibrations: Calibrations, clock: Clock, metrics: Metrics
    ) -> RunningAnswerer:
        """Return an answerer that is not started yet."""
        ...


class Service:
    """One router instance.

    Parameters
    ----------
    settings : Settings
    build_answerer : callable
        See :class:`AnswererFactory`.
    clock : Clock, optional
    tracing : Tracing, optional
    """

    def __init__(
        self,
        settings: Settings,
        build_answerer: AnswererFactory,
        clock: Clock | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self.metrics = Metrics()
        signals = {name: workload.signal for name, workload in settings.workloads.items()}
        self._active = ActiveVersions(signals, settings.calibration.accepted_keys)
        self._answerer = build_answerer(settings, self._active, self._clock, self.metrics)
        self._ledger = SharedLedger(settings.router.max_in_flight)
        prefix = settings.topics.prefix
        self._router = Router(
            self._answerer,
            settings.workloads,
            results=RESULTS.name(prefix),
            dead_letters=DEAD_LETTERS.name(prefix),
            finished=self._ledger.finished,
            tracing=tracing or PassedOn(),
            default_workload=settings.default_workload,
        )
        self._feed = CalibrationFeed(
            settings, self._active, clock=self._clock, on_failure=self._fail, metrics=self.metrics
        )
        self._intake = Intake(
            settings,
            self._ledger,
            deliver=self._deliver,
            give_up=self._give_up,
            flush=self._flush,
            on_failure=self._fail,
            metrics=self.metrics,
        )
        self._committer: Committer | None = None
        self._tally = Tally()
        self._identity = Identity(settings.router.instance_id, self._clock.now())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._failure: BaseException | None = None
        self._server = StatusServer(
            settings.router.http_host,
            settings.router.http_port,
            status=self.status,
            missing=lambda: self._readiness().missing,
            registry=self.metrics.registry,
        )

    @property
    def hangs(self) -> bool:
        """Whether a broker call may never return: end the process without clean-up then."""
        threads = [self._feed, self._intake, *([self._committer] if self._committer else [])]
        return any(thread.is_alive() for thread in threads) or bool(self._committer and self._committer.hangs)

    @property
    def http_port(self) -> int:
        """The port of the status server, once it runs."""
        return self._server.port

    def end(self) -> None:
        """Drain, commit and leave; callable from the loop's thread."""
        self._ending.set()

    async def run(self) -> None:
        """Run until :meth:`end` or a failure.

        Raises
        ------
        UcciError
            When something that only a person can mend ended it.
        OSError
            When the status server's address is taken.
        """
        self._loop = asyncio.get_running_loop()
        max_record_bytes = await asyncio.to_thread(self._check_room)
        self._committer = Committer(
            self._settings,
            self._ledger,
            max_record_bytes=max_record_bytes,
            check_room=self._check_room,
            on_failure=self._fail,
            metrics=self.metrics,
        )
        await self._server.start()
        _log.info("serving status", host=self._settings.router.http_host, port=self._server.port)
        try:
            await self._serve(self._committer)
        finally:
            await self._server.close()
        if self._failure is not None:
            raise self._failure

    def status(self) -> RouterStatus:
        """Return the status as of now, and set the gauges by it."""
        if grown := self._tally.grown(self.metrics.dead_letters_by_reason(), self._clock.monotonic()):
            _log.warning("dead letters", by_reason=grown)
        load, readiness, lag = self._ledger.load(), self._readiness(), dict(self._intake.lag)
        models = self._answerer.health()
        self.metrics.in_flight.set(load.in_flight)
        self.metrics.uncommitted.set(load.uncommitted)
        self.metrics.ready.set(not readiness.missing)
        for workload, servers in models.items():
            for role, server in servers.items():
                self.metrics.model_load(workload, role, server)
        self.metrics.lag.clear()
        for partition, offsets in lag.items():
            self.metrics.lag.labels(str(partition)).set(offsets)
        return router_status(
            self._identity,
            now=self._clock.now(),
            readiness=readiness,
            versions=self._active.versions(),
            rejected_versions=self._active.rejected(),
            models=models,
            lag=lag,
            lag_s=dict(self._intake.lag_s),
            in_flight=load.in_flight,
            counters=self.metrics.totals(),
        )

    async def _serve(self, committer: Committer) -> None:
        """Start the parts in the order of the flow, wait for the end, stop them in the reverse order."""
        heartbeat = Heartbeat(self._settings, self.status, on_final=self._fail, metrics=self.metrics)
        await self._answerer.start()
        for workload, servers in self._answerer.health().items():
            for role, server in servers.items():
                self.metrics.model_health(workload, role, server.state)
        self._feed.start()
        committer.start()
        beating = asyncio.create_task(heartbeat.run())
        try:
            await self._calibration_read()
            self._intake.start()
            await self._ending.wait()
        finally:
            await self._drain(committer)
            beating.cancel()
            heartbeat.send()
            await asyncio.to_thread(heartbeat.close)
            await self._answerer.close()

    async def _calibration_read(self) -> None:
        """Wait for the calibration topic's end: the first query must not be routed by less than what is known."""
        while not (self._ending.is_set() or await asyncio.to_thread(self._feed.await_caught_up, _POLL_S)):
            continue

    async def _drain(self, committer: Committer) -> None:
        began_s = self._clock.monotonic()
        self._intake.stop_taking()
        if self._failure is None:
            drain_s = min(self._settings.router.drain_timeout_s, MAX_DRAIN_S)
            await asyncio.to_thread(self._ledger.await_idle, drain_s)
            await asyncio.to_thread(self._commit_the_rest, committer)
        if self._intake.is_alive():
            self._intake.close()
            await asyncio.to_thread(self._intake.join, _CLOSE_S)
        committer.close()
        self._feed.close()
        if committer.is_alive():
            await asyncio.to_thread(committer.join, _CLOSE_S)
        if self._feed.is_alive():
            await asyncio.to_thread(self._feed.join, _CLOSE_S)
        await self._router.close()
        load = self._ledger.load()
        _log.info(
            "ended",
            seconds=round(self._clock.monotonic() - began_s, 3),
            left_to_others=load.in_flight + load.uncommitted,
        )

    def _commit_the_rest(self, committer: Committer) -> None:
        deadline_s = self._clock.monotonic() + FINAL_COMMIT_S
        while committer.is_alive() and (left_s := deadline_s - self._clock.monotonic()) > 0:
            committer.flush(left_s)
            if self._ledger.load().uncommitted == 0:
                return

    def _check_room(self) -> int:
        checked = check_topics(self._settings, _TOUCHED, (RESULTS, DEAD_LETTERS), (CALIBRATION_TRIAL,))
        self._feed.with_trials = not checked.missing
        return checked.max_record_bytes

    def _readiness(self) -> Readiness:
        return Readiness(
            is_assigned=self._ledger.is_assigned,
            is_calibration_read=self._feed.is_caught_up,
            has_producer=self._committer is not None and self._committer.state is not State.STARTING,
            can_answer=self._answerer.can_answer,
            is_draining=self._ending.is_set(),
        )

    # --- called by the threads ---

    def _deliver(self, records: list[InputRecord]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._router.take, records)

    def _give_up(self, record_ids: Collection[RecordId]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._router.give_up, record_ids)

    def _flush(self, timeout_s: float) -> bool:
        return self._committer is not None and self._committer.flush(timeout_s)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)


async def run_until_signalled(service: Service) -> None:
    """Run a service; the first SIGTERM or SIGINT drains it, the second ends the process at once.

    Raises
    ------
    UcciError, OSError
        See :meth:`Service.run`.
    """
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def on_signal(number: int) -> None:
        seen.append(number)
        if len(seen) > 1:
            os._exit(128 + number)
        _log.info("draining; a second signal ends at once", signal=signal.Signals(number).name)
        service.end()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    await service.run()
