"""The calibration topics, read from their beginning and then on: every router reads all of them, in no group.

Each record is offered to the active versions or to the trials. The first query is routed only when the topics were read
to their ends as of the start, so that a restart never routes by a version older than it had.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import structlog

from schemas.settings import Settings
from schemas.topics import CALIBRATION_TRIAL
from stream_router.calibration.active_versions import Activated, ActiveVersions, Rejected, RejectionReason
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.ports import TopicReader
from ucci_runtime.broker.records import Record
from ucci_runtime.clock import Clock

_log = structlog.get_logger()
_POLL_S = 0.2


class CalibrationFeed(Thread):
    """The thread that reads calibration versions.

    Parameters
    ----------
    settings : Settings
    active : ActiveVersions
        What judges them, and what the answerer asks for the version in force.
    clock : Clock
    on_failure : callable
        Called once with the error that ended this thread.
    metrics : Metrics
    """

    def __init__(
        self,
        settings: Settings,
        active: ActiveVersions,
        *,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name="calibration-feed", daemon=True)
        self._reader: TopicReader | None = None
        self._trial_topic = CALIBRATION_TRIAL.name(settings.topics.prefix)
        self._active = active
        self._clock = clock
        self._on_failure = on_failure
        self._metrics = metrics
        self._caught_up = Event()
        self._closing = Event()
        for workload in settings.workloads:
            metrics.gauge("calibration_version", 0, workload=workload)
            metrics.gauge("trial_version", 0, workload=workload)

    def open(self, reader: TopicReader) -> None:
        """Take the reader of the topics of versions in force and on trial; before the thread starts."""
        self._reader = reader

    @property
    def is_caught_up(self) -> bool:
        """Whether the topic was read to its end once."""
        return self._caught_up.is_set()

    def await_caught_up(self, timeout_s: float) -> bool:
        """Block until the topic was read to its end once; False when the time is over first."""
        return self._caught_up.wait(timeout_s)

    def close(self) -> None:
        """Let the thread end after its present poll; :meth:`join` waits for it."""
        self._closing.set()

    def run(self) -> None:
        """Read until closed. An error that ends the thread is handed on."""
        assert self._reader is not None
        try:
            while not self._closing.is_set():
                self.turn()
            self._reader.close()
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            self._on_failure(error)

    def turn(self) -> None:
        """Take what has come; blocks up to 0.2 s."""
        assert self._reader is not None
        for record in self._reader.poll(_POLL_S):
            if record.source.topic == self._trial_topic:
                self._offer_trial(record)
            else:
                self._offer(record)
        if self._reader.has_reached_ends:
            self._caught_up.set()

    def _offer(self, record: Record) -> None:
        outcome = self._active.offer(record.key, record.value, self._clock.now())
        if isinstance(outcome, Activated):
            version = outcome.version
            self._metrics.count("calibrations_adopted", workload=version.workload)
            self._metrics.gauge("calibration_version", version.version, workload=version.workload)
            _log.info("calibration in force", workload=version.workload, version=version.version, state=version.state)
        elif isinstance(outcome, Rejected):
            self._metrics.count("calibrations_rejected", reason=outcome.reason.value)
            expected = outcome.reason in (RejectionReason.UNKNOWN_WORKLOAD, RejectionReason.DELETED)
            level = _log.debug if expected else _log.warning
            level(
                "calibration refused; the last good one stays",
                reason=outcome.reason.value,
                error=outcome.error,
                offset=record.offset,
            )

    def _offer_trial(self, record: Record) -> None:
        change = self._active.trials.offer(record.key, record.value)
        if change is None:
            return
        trial = change.trial
        number = 0 if trial is None else trial.version.version
        self._metrics.gauge("trial_version", number, workload=change.workload)
        if change.problem is not None:
            self._metrics.count("trials_rejected")
            _log.warning("trial refused; none runs", error=change.problem, offset=record.offset)
        elif trial is None:
            _log.info("no trial", workload=change.workload)
        else:
            _log.info("trial", workload=change.workload, mode=trial.mode, version=trial.version.version)
