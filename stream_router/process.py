"""What a router and a gateway share: wait for the topics and the calibration, report the status, end on a signal."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from threading import Event
from typing import ClassVar

import structlog

from schemas.made_for import made_for
from schemas.settings import GatewaySettings, RouterSettings, Settings
from schemas.settings_reread import Reread, running_settings
from schemas.status import RouterStatus, Served
from schemas.topics import CALIBRATION, CALIBRATION_TRIAL, DEAD_LETTERS, RESULTS, ROUTERS, Topic
from stream_router.calibration.active_versions import ActiveVersions
from stream_router.calibration.feed_thread import CalibrationFeed, VersionFile
from stream_router.ports import CALIBRATION_READER, Answerer, Calibrations
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.ports import Broker, CheckedTopics, Connect, health_of
from ucci_runtime.broker.records import Lag
from ucci_runtime.clock import Clock
from ucci_runtime.http_listener import HttpListener, status_routes
from ucci_runtime.process import PUBLISHER, Absence, Beat, Hangup, HeartbeatThread, SystemClock, end_on_signals

_log = structlog.get_logger()

#: Longest drain, whatever is configured: a SIGTERM ends within 20 s.
MAX_DRAIN_S = 12.0

#: How long a start waits for the calibration topic where every workload has a version from disk.
TOPIC_PATIENCE_S = 10.0

#: How long a thread, a connection or a request may take to end.
CLOSE_S = 1.0

#: How long a status may take to be made.
_STATUS_S = 1.0
_POLL_S = 0.2

#: Builds an answerer that is not started yet, once the calibrations that it decides by are there.
AnswererFactory = Callable[[Settings, Calibrations, Clock, Metrics], Answerer]


class RouterProcess(ABC):
    """A process that answers queries, from its start to its end.

    It serves its status first, then waits for a broker, which may be away when the process starts. It runs until
    :meth:`end` or until a part of it fails, in whichever thread, and raises the first failure.
    """

    #: The tables of the settings that it goes by.
    tables: ClassVar[Sequence[str]]
    serves: ClassVar[Served]
    #: The topics that it needs, and those that are newer than the first clusters.
    needed: ClassVar[tuple[Topic, ...]]
    optional: ClassVar[tuple[Topic, ...]]
    #: What it logs when it listens.
    greeting: ClassVar[str]

    #: Serves the status, and whatever else it serves.
    _listener: HttpListener

    def __init__(self, settings: Settings, connect: Connect, build_answerer: AnswererFactory) -> None:
        self._settings = settings
        self._connect = connect
        self._clock: Clock = SystemClock()
        self.metrics = Metrics()
        self._asked_to_end = asyncio.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        wanted = {name: made_for(workload) for name, workload in settings.workloads.items()}
        calibration = settings.calibration
        self._active = ActiveVersions(
            wanted, calibration.accepted_keys, calibration.max_escalation_jump, calibration.max_age_s
        )
        self._answerer = build_answerer(settings, self._active, self._clock, self.metrics)
        self._feed = CalibrationFeed(
            settings, self._active, clock=self._clock, on_failure=self._fail, metrics=self.metrics
        )
        self._decides_by_disk = False
        self._started_at = self._clock.now()
        self._said_settings = running_settings(settings, self.tables)
        self._closing, self._ended = Event(), Event()
        self._heartbeat: HeartbeatThread | None = None
        self._broker: Broker | None = None
        self._broker_away: str | None = None
        self._routes = status_routes(
            self.status, self._missing, self.metrics.registry, lambda: health_of(self._broker, self._broker_away)
        )

    @property
    @abstractmethod
    def _options(self) -> RouterSettings | GatewaySettings: ...

    @abstractmethod
    def _use(self, settings: Settings) -> None: ...

    @abstractmethod
    def _open(self, broker: Broker, checked: CheckedTopics) -> None:
        """Build what reads and writes the topics; blocks."""

    def _begin(self) -> None:  # noqa: B027 a gateway has nothing of the kind
        """Start what runs while the calibration is read."""

    @abstractmethod
    def _take_queries(self) -> None: ...

    @abstractmethod
    async def _drain(self) -> None:
        """Answer what was taken, and close everything but the heartbeat and the answerer."""

    @abstractmethod
    def _missing(self) -> tuple[str, ...]:
        """One line for each thing that is not there yet; empty when ready."""

    @abstractmethod
    def _load(self) -> tuple[int, Mapping[int, Lag]]:
        """Return how many queries are in flight, and how far commits are behind; set the gauges of both."""

    @property
    def hangs(self) -> bool:
        """Whether a broker call may never return: end the process without clean-up then.

        A thread that comes back from the client library while the interpreter ends aborts the process.
        """
        return any(thread is not None and thread.is_alive() for thread in (self._feed, self._heartbeat))

    @property
    def http_port(self) -> int:
        """The port that is listened on, once it runs."""
        return self._listener.port

    def end(self) -> None:
        """Drain and leave; callable from the loop's thread."""
        self._asked_to_end.set()

    def take_over(self, found: Settings) -> Reread:
        """Apply what may change from a reloaded file; in the event loop.

        Queries in flight end as they began; those to come go by the new settings. Raises ConfigError; nothing has
        changed then.
        """
        done = Reread.of(self._settings, found, self.tables)
        self._answerer.use(done.settings)
        self._active.max_jump = done.settings.calibration.max_escalation_jump
        self._settings = done.settings
        self._said_settings = running_settings(done.settings, self.tables)
        self._use(done.settings)
        return done

    async def run(self) -> None:
        """Run until the end or a failure. Raises UcciError where a person must act, OSError when a port is taken."""
        self._loop = asyncio.get_running_loop()
        options = self._options
        broker = self._broker = self._connect(
            options.instance_id, count=self.metrics.count, on_final=self._fail, closing=self._closing
        )
        await self._listener.start()
        _log.info(self.greeting, host=options.http_host, port=self._listener.port)
        try:
            checked = await self._await_topics(broker)
            if checked is not None:
                await asyncio.to_thread(self._open_feed, broker, checked)
                await asyncio.to_thread(self._open, broker, checked)
                await self._serve(broker)
        finally:
            await self._listener.close()
        if self._failure is not None:
            raise self._failure

    def status(self) -> RouterStatus:
        """Return the status as of now, and set the gauges by it."""
        models, missing = self._answerer.health(), self._missing()
        in_flight, behind = self._load()
        self.metrics.gauge("in_flight", in_flight)
        self.metrics.gauge("ready", not missing)
        for workload, servers in models.items():
            for role, server in servers.items():
                self.metrics.model_load(workload, role, server)
        lag = sorted(behind.items())
        return RouterStatus(
            instance_id=self._options.instance_id,
            serves=self.serves,
            started_at=self._started_at,
            updated_at=self._clock.now(),
            ready=not missing,
            versions=self._active.versions(),
            rejected_versions=self._active.rejected(),
            models={workload: dict(roles) for workload, roles in models.items()},
            lag={str(partition): one.records for partition, one in lag},
            in_flight=in_flight,
            counters=self.metrics.totals(),
            lag_s={str(partition): one.seconds for partition, one in lag if one.seconds is not None},
            settings=self._said_settings,
        )

    def _lacking(
        self, away: str | None, *, is_calibration_read: bool, is_assigned: bool = True, has_producer: bool = True
    ) -> tuple[str, ...]:
        """Return what has to be true before queries are answered and is not, in words for people.

        ``away``: why the broker could not be asked for its topics; None once it has answered.
        """
        reasons = (
            (away is not None, f"waiting for the broker: {away}"),
            (self._asked_to_end.is_set(), "draining: the process is about to end"),
            (not is_assigned, "the consumer group has not assigned partitions yet"),
            (not is_calibration_read, "the calibration topic is not read to its end yet"),
            (not has_producer, "the transactional producer is not started yet"),
            (not self._answerer.can_answer, f"a workload has no model server that is up; its queries wait{self._down}"),
        )
        return tuple(line for holds, line in reasons if holds)

    @property
    def _down(self) -> str:
        """Why model servers are down, in their own words where they have any."""
        servers = (
            (f"{name}/{role}", one)
            for name, by_role in self._answerer.health().items()
            for role, one in by_role.items()
        )
        return "".join(f"; {name}: {one.reason}" for name, one in servers if one.reason is not None)

    def _fail(self, error: BaseException) -> None:
        """End by this failure, unless by an earlier one; callable from any thread."""
        if self._failure is None:
            self._failure = error
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._asked_to_end.set)

    def _in_loop(self, call: Callable[..., object], *given: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(call, *given)

    async def _await_topics(self, broker: Broker) -> CheckedTopics | None:
        """Check the topics, as soon as a broker answers; None when the end comes first."""
        absence = Absence()
        while not self._asked_to_end.is_set():
            try:
                checked = await asyncio.to_thread(broker.check, self.needed, (RESULTS, DEAD_LETTERS), self.optional)
            except BrokerUnreachable as error:
                self._broker_away = str(error)
                if absence.failed(self._clock.monotonic()):
                    _log.warning("waiting for the broker", error=str(error))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._asked_to_end.wait(), absence.wait_s)
            else:
                self._broker_away = None
                for warning in checked.warnings:
                    _log.warning(warning)
                return checked
        return None

    def _open_feed(self, broker: Broker, checked: CheckedTopics) -> None:
        """Give the calibration feed its topics and, where one is configured, its file; blocks."""
        versions = [topic for topic in (CALIBRATION, CALIBRATION_TRIAL) if topic not in checked.missing]
        prefix, options = self._settings.topics.prefix, self._options
        file = None
        if options.state_dir is not None:
            owner = (options.instance_id, checked.cluster_id, prefix)
            file = VersionFile(Path(options.state_dir), owner, self._settings.workloads)
        self._active.bind(checked.cluster_id, CALIBRATION.name(prefix), CALIBRATION_TRIAL.name(prefix))
        self._feed.open(broker.topic_reader(CALIBRATION_READER, [topic.name(prefix) for topic in versions]), file)

    async def _serve(self, broker: Broker) -> None:
        topic = ROUTERS.name(self._settings.topics.prefix)
        self._heartbeat = heartbeat = HeartbeatThread(broker.publisher(PUBLISHER), topic, self._beat, self._ended)
        await self._answerer.start()
        for workload, servers in self._answerer.health().items():
            for role, server in servers.items():
                self.metrics.gauge("model_up", server.state == "up", workload=workload, role=role)
        self._feed.start()
        self._begin()
        heartbeat.start()
        try:
            self._decides_by_disk = await self._await_calibration()
            self._take_queries()
            await self._asked_to_end.wait()
        finally:
            await self._drain()
            self._ended.set()
            await asyncio.to_thread(heartbeat.join, CLOSE_S + _STATUS_S)
            await self._answerer.close()

    async def _await_calibration(self) -> bool:
        """Wait for the calibration topic's end: the first query must not be routed by less than what is known.

        Where the topic does not come and every workload has a version from disk, the one that it had, these do. Returns
        whether queries are answered by the versions from disk for now.
        """
        patience_s = self._clock.monotonic() + TOPIC_PATIENCE_S
        while not (self._asked_to_end.is_set() or await asyncio.to_thread(self._feed.caught_up.wait, _POLL_S)):
            if self._clock.monotonic() >= patience_s and self._active.is_complete:
                _log.warning("the calibration topic is not read to its end yet; deciding by the versions from disk")
                return True
        return False

    def _beat(self) -> Beat | None:
        """Return a status made in the loop's thread, whose objects it reads; None when that is too busy. Blocks."""
        assert self._loop is not None

        async def made() -> RouterStatus:
            return self.status()

        try:
            found = asyncio.run_coroutine_threadsafe(made(), self._loop).result(_STATUS_S)
        except TimeoutError:
            return None
        return Beat(found.instance_id, found.to_json())


async def run_until_signalled(service: RouterProcess, read: Callable[[], Settings]) -> None:
    """Run a service: the first SIGTERM or SIGINT drains it, the second ends it at once, SIGHUP reloads by ``read``."""

    def drain(received: Signals) -> None:
        _log.info("draining; a second signal ends at once", signal=received.name)
        service.end()

    end_on_signals(drain, asyncio.get_running_loop())
    Hangup(read, service.take_over).watch(asyncio.get_running_loop())
    await service.run()
