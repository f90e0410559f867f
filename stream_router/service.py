"""The only place where the router's parts are built, started and ended, and the one order in which they end.

A router runs until SIGTERM or until a part fails, and raises that failure. It serves its status first, then waits for a
broker, which may be away when the process starts. On SIGTERM: take no further queries, answer those in flight within
the drain time, commit, leave. Other routers, where there are any, take over without waiting for slow calls. Nothing
that was not committed is lost: the next instance answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from threading import Event

import structlog

from schemas.settings import Settings
from schemas.settings_reread import OF_ROUTER, Reread, running_settings
from schemas.status import RouterStatus
from schemas.topics import CALIBRATION, CALIBRATION_TRIAL, DEAD_LETTERS, QUERIES, RESULTS, ROUTERS
from stream_router.calibration.feed_thread import CalibrationFeed
from stream_router.commit.commit_thread import CommitThread
from stream_router.commit.ledger import RecordId
from stream_router.commit.outcome import OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.http_status import StatusRoutes, StatusServer
from stream_router.intake.intake_thread import HANDOVER_S, IntakeThread
from stream_router.otel_tracing import PassedOn
from stream_router.ports import GROUP, Tracing
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
from stream_router.query_loop import QueryLoop
from stream_router.status import Backlog, Identity, Readiness, Versions, router_status
from ucci_runtime.broker.ports import LEAVE_S, Broker, CheckedTopics, Connect, health_of
from ucci_runtime.broker.records import Input, OffsetCommit, Record
from ucci_runtime.browser_safety import RequestHosts
from ucci_runtime.clock import Clock
from ucci_runtime.heartbeat_thread import PUBLISHER, Beat, HeartbeatThread
from ucci_runtime.process import SystemClock, Tally

_log = structlog.get_logger()

#: For the last transaction, after the drain.
FINAL_COMMIT_S = 3.0

_TOUCHED = (QUERIES, RESULTS, DEAD_LETTERS, CALIBRATION, ROUTERS)
_LEAVE_S = LEAVE_S + 1.5
_CLOSE_S = 1.0
_MILLISECONDS = 1_000


class Service:
    """One router instance."""

    def __init__(
        self,
        settings: Settings,
        connect: Connect,
        build_answerer: AnswererFactory,
        clock: Clock | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._clock = clock or SystemClock()
        self.metrics = Metrics()
        self._ending = Ending()
        self._active = active_versions(settings)
        self._begins_by_disk = False
        self._answerer = build_answerer(settings, self._active, self._clock, self.metrics)
        self._ledger = SharedLedger(settings.router.max_in_flight)
        prefix = settings.topics.prefix
        self._queries = QUERIES.name(prefix)
        self._outputs = OutputTopics(RESULTS.name(prefix), DEAD_LETTERS.name(prefix), settings.results_schema_id)
        self._router = QueryLoop(
            self._answerer,
            settings.workloads,
            outputs=self._outputs,
            finished=self._ledger.finished,
            tracing=tracing or PassedOn(),
            default_workload=settings.default_workload,
        )
        self._feed = CalibrationFeed(
            settings, self._active, clock=self._clock, on_failure=self._ending.fail, metrics=self.metrics
        )
        self._intake: IntakeThread | None = None
        self._committer: CommitThread | None = None
        self._tally = Tally()
        self._closing = Event()
        self._ended = Event()
        self._identity = Identity(settings.router.instance_id, self._clock.now(), running_settings(settings, OF_ROUTER))
        self._broker_away: str | None = None
        self._broker: Broker | None = None
        self._server = StatusServer(
            settings.router.http_host,
            settings.router.http_port,
            hosts=RequestHosts.of(settings.router.http_host, settings.router.allowed_hosts),
            routes=StatusRoutes(
                self.status,
                lambda: self._readiness().missing,
                self.metrics.registry,
                lambda: health_of(self._broker, self._broker_away),
            ),
        )

    @property
    def hangs(self) -> bool:
        """Whether a broker call may never return: end the process without clean-up then."""
        threads = (self._feed, self._intake, self._committer)
        is_any_alive = any(thread is not None and thread.is_alive() for thread in threads)
        return is_any_alive or bool(self._committer and self._committer.hangs)

    @property
    def http_port(self) -> int:
        """The port of the status server, once it runs."""
        return self._server.port

    def end(self) -> None:
        """Drain, commit and leave; callable from the loop's thread."""
        self._ending.asked.set()

    def take_over(self, found: Settings) -> Reread:
        """Apply what may change from a reloaded file; in the event loop.

        Queries in flight end as they began; those to come go by the new settings. Raises ConfigError; nothing has
        changed then.
        """
        done = taken_over(self._settings, found, OF_ROUTER, self._answerer, self._active)
        self._settings = done.settings
        self._ledger.max_in_flight = done.settings.router.max_in_flight
        self._identity = replace(self._identity, settings=running_settings(done.settings, OF_ROUTER))
        return done

    async def run(self) -> None:
        """Run until :meth:`end` or a failure.

        Raises UcciError when something that only a person can fix ended it; raises OSError when the status server's
        address is taken.
        """
        self._ending.begin()
        broker = self._broker = self._connect(
            self._settings.router.instance_id,
            count=self.metrics.count,
            on_final=self._ending.fail,
            closing=self._closing,
        )
        await self._server.start()
        _log.info("serving status", host=self._settings.router.http_host, port=self._server.port)
        try:
            checked = await self._await_topics(broker)
            if checked is not None:
                await asyncio.to_thread(self._open, broker, checked)
                await self._serve(broker)
        finally:
            await self._server.close()
        self._ending.raise_failure()

    def status(self) -> RouterStatus:
        """Return the status as of now, and set the gauges by it."""
        if grown := self._tally.grown(self.metrics.counts_by("reason", "dead_letters"), self._clock.monotonic()):
            _log.warning("dead letters", by_reason=grown)
        load, readiness, lag = self._ledger.load(), self._readiness(), dict(self._intake.lag) if self._intake else {}
        models = self._answerer.health()
        self.metrics.gauge("in_flight", load.in_flight)
        self.metrics.gauge("uncommitted", load.uncommitted)
        not_taken = self._intake.not_taken if self._intake else 0
        self.metrics.gauge("backlog", not_taken + load.in_flight + load.uncommitted)
        self.metrics.gauge("ready", not readiness.missing)
        note_loads(models, self.metrics)
        self.metrics.gauges["lag"].clear()
        for partition, behind in lag.items():
            self.metrics.gauge("lag", behind.records, partition=str(partition))
        return router_status(
            self._identity,
            now=self._clock.now(),
            readiness=readiness,
            versions=Versions(self._active.versions(), self._active.rejected()),
            models=models,
            backlog=Backlog(load.in_flight, lag),
            counters=self.metrics.totals(),
        )

    async def _await_topics(self, broker: Broker) -> CheckedTopics | None:
        """Check the topics, as soon as a broker answers; None when the end comes first."""
        check = partial(broker.check, _TOUCHED, (RESULTS, DEAD_LETTERS), (CALIBRATION_TRIAL,))
        return await await_topics(check, self._ending.asked, self._clock, self._note_broker)

    def _note_broker(self, away: str | None) -> None:
        self._broker_away = away

    def _open(self, broker: Broker, checked: CheckedTopics) -> None:
        """Build what reads and writes the topics; blocks."""
        router = self._settings.router
        open_feed(self._feed, broker, checked, self._settings, (router.instance_id, router.state_dir))
        self._committer = CommitThread(
            broker.session(GROUP),
            self._ledger,
            self._queries,
            self._outputs,
            interval_s=self._settings.router.commit_interval_ms / _MILLISECONDS,
            on_failure=self._ending.fail,
            metrics=self.metrics,
        )
        if checked.max_metadata_chars is not None:
            self._committer.limit_metadata(checked.max_metadata_chars)
        self._intake = IntakeThread(
            broker.group_reader(GROUP, [self._queries]),
            self._ledger,
            self,
            on_failure=self._ending.fail,
            metrics=self.metrics,
        )

    async def _serve(self, broker: Broker) -> None:
        """Start the parts in the order of the flow, wait for the end, stop them in the reverse order."""
        assert self._committer is not None
        assert self._intake is not None
        topic = ROUTERS.name(self._settings.topics.prefix)
        heartbeat = HeartbeatThread(broker.publisher(PUBLISHER), topic, self._beat, self._ended)
        await self._answerer.start()
        note_servers(self._answerer.health(), self.metrics)
        self._feed.start()
        self._committer.start()
        heartbeat.start()
        try:
            self._begins_by_disk = await await_calibration(self._feed, self._active, self._ending.asked, self._clock)
            self._intake.start()
            await self._ending.asked.wait()
        finally:
            await self._drain(self._committer, self._intake)
            self._ended.set()
            await asyncio.to_thread(heartbeat.join, _CLOSE_S + STATUS_S)
            await self._answerer.close()

    async def _drain(self, committer: CommitThread, intake: IntakeThread) -> None:
        began_s = self._clock.monotonic()
        intake.stop_taking()
        if self._ending.failure is None:
            drain_s = HANDOVER_S if await asyncio.to_thread(intake.has_successors) else MAX_DRAIN_S
            await asyncio.to_thread(self._ledger.await_idle, drain_s)
            await asyncio.to_thread(self._commit_the_rest, committer)
        self._closing.set()
        # The intake leaves its group first: what it has finished meanwhile is still committed.
        for thread, patience_s in ((intake, _LEAVE_S), (committer, _CLOSE_S), (self._feed, _CLOSE_S)):
            thread.close()
            if thread.is_alive():
                await asyncio.to_thread(thread.join, patience_s)
        await self._router.close()
        load = self._ledger.load()
        _log.info(
            "ended",
            seconds=round(self._clock.monotonic() - began_s, 3),
            left_to_others=load.in_flight + load.uncommitted,
        )

    def _commit_the_rest(self, committer: CommitThread) -> None:
        deadline_s = self._clock.monotonic() + FINAL_COMMIT_S
        while committer.is_alive() and (left_s := deadline_s - self._clock.monotonic()) > 0:
            committer.flush(left_s)
            if self._ledger.load().uncommitted == 0:
                return

    def _readiness(self) -> Readiness:
        return Readiness(
            is_assigned=self._ledger.is_assigned,
            is_calibration_read=self._feed.is_caught_up or self._begins_by_disk,
            has_producer=self._committer is not None and self._committer.is_started,
            can_answer=self._answerer.can_answer,
            is_draining=self._ending.asked.is_set(),
            broker_away=self._broker_away,
        )

    # --- called by the threads ---

    def deliver(self, records: list[Record]) -> None:
        """Have records answered."""
        self._ending.loop.call_soon_threadsafe(self._router.take, records)

    def give_up(self, record_ids: Collection[RecordId]) -> None:
        """Have queries in flight cancelled that are another instance's now."""
        self._ending.loop.call_soon_threadsafe(self._router.give_up, record_ids)

    def flush(self, timeout_s: float) -> bool:
        """Commit what is finished; blocks up to so many seconds."""
        return self._committer is not None and self._committer.flush(timeout_s)

    def note_foreign(self, source: Input, commit: OffsetCommit) -> None:
        """Count offset metadata that is not this router's."""
        if self._committer is not None:
            self._committer.note_foreign(source, commit)

    def _beat(self) -> Beat | None:
        return status_beat(self._ending.loop, self.status)
