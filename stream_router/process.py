"""What every router process does: it waits for its topics and for the calibration, and ends on a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Protocol

import structlog

from schemas.made_for import made_for
from schemas.settings import Settings
from schemas.settings_reread import Reread
from schemas.status import ModelHealth, RouterStatus
from schemas.topics import CALIBRATION, CALIBRATION_TRIAL
from stream_router.calibration.active_versions import ActiveVersions
from stream_router.calibration.feed_thread import CalibrationFeed
from stream_router.calibration.file_versions import VersionFile
from stream_router.ports import CALIBRATION_READER, Answerer, Calibrations
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.ports import Broker, CheckedTopics
from ucci_runtime.clock import Clock
from ucci_runtime.heartbeat_thread import Beat
from ucci_runtime.process import Absence, Hangup, end_on_signals

_log = structlog.get_logger()

#: Longest drain, whatever is configured: a SIGTERM ends within 20 s.
MAX_DRAIN_S = 12.0

#: How long a start waits for the calibration topic where every workload has a version from disk.
TOPIC_PATIENCE_S = 10.0

#: How long a status may take to be made.
STATUS_S = 1.0

_POLL_S = 0.2


class RunningAnswerer(Answerer, Protocol):
    """An answerer with connections to open and close."""

    async def start(self) -> None:
        """Open connections."""
        ...

    def use(self, settings: Settings) -> None:
        """Answer the queries to come under settings that differ in what is taken over on SIGHUP."""
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


class RunningService(Protocol):
    """A process's work, from its start to its end."""

    def end(self) -> None:
        """Drain and leave; callable from the loop's thread."""
        ...

    def take_over(self, found: Settings) -> Reread:
        """Apply what may change from a reloaded file; in the event loop."""
        ...

    async def run(self) -> None:
        """Run until :meth:`end` or a failure, which is raised."""
        ...


class Ending:
    """The end of a service: asked for, or by the first failure of a part of it, in whichever thread.

    Attributes
    ----------
    asked : asyncio.Event
        Set in both cases.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the service runs in, once it does."""
        assert self._loop is not None
        return self._loop

    def begin(self) -> None:
        """Run in this event loop from now on."""
        self._loop = asyncio.get_running_loop()

    def fail(self, error: BaseException) -> None:
        """End by this failure, unless by an earlier one; callable from any thread."""
        if self.failure is None:
            self.failure = error
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.asked.set)

    def raise_failure(self) -> None:
        """Raise what it ended by, if anything."""
        if self.failure is not None:
            raise self.failure


def taken_over(
    settings: Settings, found: Settings, tables: Sequence[str], answerer: RunningAnswerer, active: ActiveVersions
) -> Reread:
    """Apply what may change from a reloaded file; in the event loop.

    Queries in flight end as they began; those to come go by the new settings. Raises ConfigError; nothing has changed
    then.
    """
    done = Reread.of(settings, found, tables)
    answerer.use(done.settings)
    active.limit_jump(done.settings.calibration.max_escalation_jump)
    return done


def note_servers(models: Mapping[str, Mapping[str, ModelHealth]], metrics: Metrics) -> None:
    """Set the gauges of the model servers by their health, before their first call too."""
    for workload, servers in models.items():
        for role, server in servers.items():
            metrics.model_health(workload, role, server.state)


def note_loads(models: Mapping[str, Mapping[str, ModelHealth]], metrics: Metrics) -> None:
    """Set the gauges of the model servers by their load."""
    for workload, servers in models.items():
        for role, server in servers.items():
            metrics.model_load(workload, role, server)


def active_versions(settings: Settings) -> ActiveVersions:
    """Return what accepts the versions that were made for these settings."""
    wanted = {name: made_for(workload) for name, workload in settings.workloads.items()}
    calibration = settings.calibration
    return ActiveVersions(wanted, calibration.accepted_keys, calibration.max_escalation_jump)


async def await_topics(
    check: Callable[[], CheckedTopics], ending: asyncio.Event, clock: Clock, note: Callable[[str | None], None]
) -> CheckedTopics | None:
    """Check the topics, as soon as a broker answers; None when the end comes first."""
    absence = Absence()
    while not ending.is_set():
        try:
            checked = await asyncio.to_thread(check)
        except BrokerUnreachable as error:
            note(str(error))
            if absence.failed(clock.monotonic()):
                _log.warning("waiting for the broker", error=str(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), absence.wait_s)
        else:
            note(None)
            for warning in checked.warnings:
                _log.warning(warning)
            return checked
    return None


def open_feed(
    feed: CalibrationFeed, broker: Broker, checked: CheckedTopics, settings: Settings, owner: tuple[str, str | None]
) -> None:
    """Give the calibration feed its topics and, where one is configured, its file; blocks.

    ``owner``: the process's instance id, and the directory of its versions.
    """
    versions = [topic for topic in (CALIBRATION, CALIBRATION_TRIAL) if topic not in checked.missing]
    prefix = settings.topics.prefix
    instance_id, state_dir = owner
    file = None
    if state_dir is not None:
        file = VersionFile(Path(state_dir), (instance_id, checked.cluster_id, prefix), settings.workloads)
    feed.active.bind(checked.cluster_id, CALIBRATION.name(prefix), CALIBRATION_TRIAL.name(prefix))
    feed.open(broker.topic_reader(CALIBRATION_READER, [topic.name(prefix) for topic in versions]), file)


async def await_calibration(feed: CalibrationFeed, active: ActiveVersions, ending: asyncio.Event, clock: Clock) -> bool:
    """Wait for the calibration topic's end: the first query must not be routed by less than what is known.

    Where the topic does not come and every workload has a version from disk, the one that it had, these do. Returns
    whether queries are answered by the versions from disk for now.
    """
    patience_s = clock.monotonic() + TOPIC_PATIENCE_S
    while not (ending.is_set() or await asyncio.to_thread(feed.await_caught_up, _POLL_S)):
        if clock.monotonic() >= patience_s and active.is_complete:
            _log.warning("the calibration topic is not read to its end yet; deciding by the versions from disk")
            return True
    return False


def status_beat(loop: asyncio.AbstractEventLoop, status: Callable[[], RouterStatus]) -> Beat | None:
    """Return a status made in the loop's thread, whose objects it reads; None when the loop is too busy.

    Called in another thread; blocks.
    """

    async def made() -> RouterStatus:
        return status()

    try:
        found = asyncio.run_coroutine_threadsafe(made(), loop).result(STATUS_S)
    except TimeoutError:
        return None
    return Beat(found.instance_id, found.to_json())


async def run_until_signalled(service: RunningService, read: Callable[[], Settings]) -> None:
    """Run a service; the first SIGTERM or SIGINT drains it, the second ends the process at once.

    SIGHUP has the configuration reloaded by ``read``.
    """

    def drain(received: Signals) -> None:
        _log.info("draining; a second signal ends at once", signal=received.name)
        service.end()

    end_on_signals(drain, asyncio.get_running_loop())
    Hangup(read, service.take_over).watch(asyncio.get_running_loop())
    await service.run()
