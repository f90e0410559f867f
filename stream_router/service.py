"""The only place where the router's parts are built, started and ended, and the one order in which they end.

On SIGTERM: take no further queries, answer those in flight within the drain time, commit, leave. Other routers, where
there are any, take over without waiting for slow calls. Nothing that was not committed is lost: the next instance
answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import structlog

from schemas.settings import RouterSettings, Settings
from schemas.settings_reread import OF_ROUTER
from schemas.topics import CALIBRATION, CALIBRATION_TRIAL, DEAD_LETTERS, QUERIES, RESULTS, ROUTERS
from stream_router.commit.commit_thread import CommitThread
from stream_router.commit.outcome import OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.intake_thread import HANDOVER_S, IntakeThread
from stream_router.otel_tracing import Tracing
from stream_router.ports import GROUP
from stream_router.process import CLOSE_S, MAX_DRAIN_S, AnswererFactory, RouterProcess
from stream_router.query_loop import QueryLoop
from ucci_runtime.broker.ports import LEAVE_S, Broker, CheckedTopics, Connect
from ucci_runtime.broker.records import Lag
from ucci_runtime.http_listener import status_listener
from ucci_runtime.process import Tally
from ucci_runtime.refusals import RequestHosts

_log = structlog.get_logger()

#: For the last transaction, after the drain.
FINAL_COMMIT_S = 3.0

_LEAVE_S = LEAVE_S + 1.5
_MILLISECONDS = 1_000


class Service(RouterProcess):
    """One router instance."""

    tables = OF_ROUTER
    serves = "topic"
    needed = (QUERIES, RESULTS, DEAD_LETTERS, CALIBRATION, ROUTERS)
    optional = (CALIBRATION_TRIAL,)
    greeting = "serving status"

    def __init__(
        self, settings: Settings, connect: Connect, build_answerer: AnswererFactory, tracing: Tracing | None = None
    ) -> None:
        super().__init__(settings, connect, build_answerer)
        self._ledger = SharedLedger(settings.router.max_in_flight)
        prefix = settings.topics.prefix
        self._queries = QUERIES.name(prefix)
        self._outputs = OutputTopics(RESULTS.name(prefix), DEAD_LETTERS.name(prefix), settings.topics.results_schema_id)
        self._router = QueryLoop(
            self._answerer,
            settings.workloads,
            outputs=self._outputs,
            finished=self._ledger.finished,
            tracing=tracing or Tracing(),
            default_workload=settings.default_workload,
        )
        self._intake: IntakeThread | None = None
        self._committer: CommitThread | None = None
        self._tally = Tally()
        hosts = RequestHosts.of(settings.router.http_host, settings.router.allowed_hosts)
        self._listener = status_listener(settings.router.http_host, settings.router.http_port, hosts, self._routes)

    @property
    def _options(self) -> RouterSettings:
        return self._settings.router

    @property
    def hangs(self) -> bool:
        """Whether a broker call may never return: end the process without clean-up then."""
        is_any_alive = any(thread is not None and thread.is_alive() for thread in (self._intake, self._committer))
        return super().hangs or is_any_alive or bool(self._committer and self._committer.session.hangs)

    def _use(self, settings: Settings) -> None:
        self._ledger.max_in_flight = settings.router.max_in_flight

    def _load(self) -> tuple[int, Mapping[int, Lag]]:
        if grown := self._tally.grown(self.metrics.counts_by("reason", "dead_letters"), self._clock.monotonic()):
            _log.warning("dead letters", by_reason=grown)
        load = self._ledger.load()
        lag, not_taken = (dict(self._intake.lag), self._intake.not_taken) if self._intake else ({}, 0)
        self.metrics.gauge("uncommitted", load.uncommitted)
        self.metrics.gauge("backlog", not_taken + load.held)
        self.metrics.gauges["lag"].clear()
        for partition, behind in lag.items():
            self.metrics.gauge("lag", behind.records, partition=str(partition))
        return load.in_flight, lag

    def _missing(self) -> tuple[str, ...]:
        return self._lacking(
            self._broker_away,
            is_assigned=self._ledger.is_assigned,
            is_calibration_read=self._feed.caught_up.is_set() or self._decides_by_disk,
            has_producer=self._committer is not None and self._committer.session.is_started,
        )

    def _open(self, broker: Broker, checked: CheckedTopics) -> None:
        self._committer = CommitThread(
            broker.session(GROUP),
            self._ledger,
            self._queries,
            self._outputs,
            interval_s=self._settings.router.commit_interval_ms / _MILLISECONDS,
            on_failure=self._fail,
            metrics=self.metrics,
        )
        if checked.max_metadata_chars is not None:
            self._committer.limit_metadata(checked.max_metadata_chars)
        self._intake = IntakeThread(
            broker.group_reader(GROUP, [self._queries]),
            self._ledger,
            self._committer,
            deliver=partial(self._in_loop, self._router.take),
            give_up=partial(self._in_loop, self._router.give_up),
            on_failure=self._fail,
            metrics=self.metrics,
        )

    def _begin(self) -> None:
        assert self._committer is not None
        self._committer.start()

    def _take_queries(self) -> None:
        assert self._intake is not None
        self._intake.start()

    async def _drain(self) -> None:
        committer, intake = self._committer, self._intake
        assert committer is not None
        assert intake is not None
        began_s = self._clock.monotonic()
        intake.stop_taking()
        if self._failure is None:
            drain_s = HANDOVER_S if await asyncio.to_thread(intake.reader.has_successors) else MAX_DRAIN_S
            await asyncio.to_thread(self._ledger.await_idle, drain_s)
            await asyncio.to_thread(self._commit_the_rest, committer)
        self._closing.set()
        # The intake leaves its group first: what it has finished meanwhile is still committed.
        for thread, patience_s in ((intake, _LEAVE_S), (committer, CLOSE_S), (self._feed, CLOSE_S)):
            thread.close()
            if thread.is_alive():
                await asyncio.to_thread(thread.join, patience_s)
        await self._router.close()
        seconds = round(self._clock.monotonic() - began_s, 3)
        _log.info("ended", seconds=seconds, left_to_others=self._ledger.load().held)

    def _commit_the_rest(self, committer: CommitThread) -> None:
        deadline_s = self._clock.monotonic() + FINAL_COMMIT_S
        while committer.is_alive() and (left_s := deadline_s - self._clock.monotonic()) > 0:
            committer.flush(left_s)
            if self._ledger.load().uncommitted == 0:
                return
