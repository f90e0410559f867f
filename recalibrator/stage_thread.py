"""A stage's thread: built, started, turned until closed, then closed; an error that ends it is handed on, once.

A full disk ends no process: the stage is closed, and built again once there is room, while the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread

import structlog

from recalibrator.errors import LOW_FREE_BYTES, DiskFull
from recalibrator.prometheus_metrics import Metrics
from recalibrator.stage import NotCommitted, Stage, StageReport
from schemas.settings import Settings
from schemas.status import WorkloadStatus
from ucci_runtime.broker.errors import AbortTransaction, BrokerUnreachable, RecreateProducer, RetryCall
from ucci_runtime.process import Tally

_log = structlog.get_logger()
_MEASURE_INTERVAL_S = 1.0
#: How long a stage waits for room on its disk before it tries again.
AGAIN_S = 5.0

_CUT_SHORT = (AbortTransaction, BrokerUnreachable, RecreateProducer, RetryCall, NotCommitted)


class StageThread(Thread):
    """The thread of one stage.

    ``build``: makes the stage; called in the thread, since clients belong to one. ``on_status``: called with every
    status that the stage has committed; must not wait. ``free_bytes``: returns how much room is left on its disk.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], Stage],
        *,
        closing: Event,
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
        on_status: Callable[[WorkloadStatus], None] | None = None,
        free_bytes: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._build = build
        self._closing = closing
        self._on_failure = on_failure
        self._metrics = metrics
        self._on_status = on_status
        self._free_bytes = free_bytes
        self._dead_letters = Tally()
        self._settings: SimpleQueue[Settings] = SimpleQueue()
        self.is_ready = False
        self.report = StageReport()

    def use(self, settings: Settings) -> None:
        """Have the stage go on under other settings, after its present turn; callable from any thread."""
        self._settings.put(settings)

    def run(self) -> None:
        """Turn until closed."""
        while not self._closing.is_set():
            try:
                self._run()
            except DiskFull as error:
                self._wait_for_room(error)
            except Exception as error:  # noqa: BLE001 handed on: the service ends with it
                self.is_ready = False
                if self._closing.is_set() and isinstance(error, _CUT_SHORT):
                    # What was not committed is read again at the next start: no reason to end as a failure.
                    _log.warning("ended without a last commit", stage=self.name, error=str(error))
                else:
                    self._on_failure(error)
                return

    def _run(self) -> None:
        stage = self._build()
        try:
            stage.start()
            due_s = 0.0
            while not self._closing.is_set():
                stage.turn()
                while not self._settings.empty():
                    stage.use(self._settings.get())
                self.is_ready = stage.is_ready
                if time.monotonic() >= due_s:
                    self._measure(stage)
                    due_s = time.monotonic() + _MEASURE_INTERVAL_S
        except DiskFull:
            with suppress(*_CUT_SHORT, DiskFull):
                stage.close()
            raise
        self.is_ready = False
        stage.close()
        self._log_news(stage)

    def _wait_for_room(self, error: DiskFull) -> None:
        self.is_ready = False
        self._metrics.gauge("ready", 0.0, stage=self.name)
        if self.report.trouble != str(error):
            _log.error("the disk is full; waiting for room", stage=self.name, error=str(error))
        self.report = StageReport(trouble=str(error))
        self._closing.wait(AGAIN_S)

    def _measure(self, stage: Stage) -> None:
        self._metrics.gauge("ready", float(stage.is_ready), stage=self.name)
        trouble = self._shortage()
        if trouble and not self.report.trouble:
            _log.warning("the disk is nearly full", stage=self.name, trouble=trouble)
        self.report = StageReport(stage.is_ready, stage.lag(), stage.labels(), trouble)
        for source, behind in self.report.lag.items():
            labels = {"stage": self.name, "topic": source.topic, "partition": str(source.partition)}
            self._metrics.gauge("lag", behind.records, **labels)
            self._metrics.gauge("lag_seconds", behind.seconds or 0.0, **labels)
        for name, value in stage.gauges().items():
            self._metrics.gauge(name, value)
        self._log_news(stage)
        # Even where nobody listens: a stage keeps its statuses until they are taken.
        for status in stage.statuses():
            if self._on_status is not None:
                self._on_status(status)

    def _shortage(self) -> str:
        """Measure the room on the stage's disk; return that it is nearly full, before it is."""
        if self._free_bytes is None:
            return ""
        free = self._free_bytes()
        self._metrics.gauge("disk_free_bytes", free)
        return "" if free >= LOW_FREE_BYTES else f"only {free / 1e9:.2f} GB are left"

    def _log_news(self, stage: Stage) -> None:
        if grown := self._dead_letters.grown(
            self._metrics.counts_by("reason", "dead_letters", stage=self.name), time.monotonic()
        ):
            _log.warning("dead letters", stage=self.name, by_reason=grown)
        for news in stage.news():
            (_log.warning if news.is_bad else _log.info)(news.event, **news.facts)
