"""A stage's thread: built, started, turned until closed, then closed; an error that ends it is handed on, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Protocol

import structlog

from recalibrator.errors import Rewind
from recalibrator.shell.metrics import Metrics
from runtime.errors import AbortTransaction, BrokerUnreachable, RecreateProducer, RetryCall
from runtime.records import Input

_log = structlog.get_logger()
_MEASURE_INTERVAL_S = 1.0
_CUT_SHORT = (AbortTransaction, BrokerUnreachable, RecreateProducer, RetryCall, Rewind)


class Stage(Protocol):
    """A loop that a thread can drive."""

    @property
    def is_ready(self) -> bool:
        """Whether it has caught up."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def turn(self) -> None:
        """Do one round; blocks for little."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """Return sizes worth watching, by metric name."""
        ...

    def lag(self) -> Mapping[Input, int]:
        """Return how far behind each input is, in offsets."""
        ...

    def close(self) -> None:
        """Commit the rest and leave."""
        ...


class StageThread(Thread):
    """The thread of one stage.

    Parameters
    ----------
    name : str
        Of the stage.
    build : callable
        Makes the stage; called in the thread, since clients belong to one.
    closing : threading.Event
        Set by the service when it ends.
    on_failure : callable
        Called with the error that ended this thread.
    metrics : Metrics
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], Stage],
        *,
        closing: Event,
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._build = build
        self._closing = closing
        self._on_failure = on_failure
        self._metrics = metrics
        self.is_ready = False

    def run(self) -> None:
        """Turn until closed."""
        try:
            stage = self._build()
            stage.start()
            due_s = 0.0
            while not self._closing.is_set():
                stage.turn()
                self.is_ready = stage.is_ready
                if time.monotonic() >= due_s:
                    self._measure(stage)
                    due_s = time.monotonic() + _MEASURE_INTERVAL_S
            self.is_ready = False
            stage.close()
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            self.is_ready = False
            if self._closing.is_set() and isinstance(error, _CUT_SHORT):
                # What was not committed is read again at the next start: no reason to end as a failure.
                _log.warning("ended without a last commit", stage=self.name, error=str(error))
            else:
                self._on_failure(error)

    def _measure(self, stage: Stage) -> None:
        self._metrics.gauge("ready", float(stage.is_ready), stage=self.name)
        for source, behind in stage.lag().items():
            self._metrics.gauge("lag", behind, stage=self.name, topic=source.topic, partition=str(source.partition))
        for name, value in stage.gauges().items():
            self._metrics.gauge(name, value)
