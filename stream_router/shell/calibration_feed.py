"""The calibration topic, read from its beginning and then on: every router reads all of it, in no group.

Records flow in, offers to :mod:`stream_router.core.adopt` flow out. The first query is routed only when the topic
was read to its end as of the start, so that a restart never routes by a version older than it had.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas.settings import Settings
from schemas.topics import CALIBRATION
from stream_router.core.adopt import Adopted, Adoption, Refusal, Refused
from stream_router.errors import AccessDenied, Fenced
from stream_router.ports import Clock
from stream_router.shell.broker_errors import Side, is_fatal, kafka_error, translate
from stream_router.shell.client_errors import callbacks
from stream_router.shell.kafka_properties import calibration_properties
from stream_router.shell.metrics import Metrics

_log = structlog.get_logger()
_POLL_S = 0.2


class CalibrationFeed(Thread):
    """The thread that reads calibration versions.

    Parameters
    ----------
    settings : Settings
    adoption : Adoption
        What judges them, and what the answerer asks for the version in force.
    clock : Clock
    on_failure : callable
        Called once with the error that ended this thread.
    metrics : Metrics
    """

    def __init__(
        self,
        settings: Settings,
        adoption: Adoption,
        *,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name="calibration-feed", daemon=True)
        self._properties = calibration_properties(settings)
        self._topic = CALIBRATION.name(settings.topics.prefix)
        self._adoption = adoption
        self._clock = clock
        self._on_failure = on_failure
        self._metrics = metrics
        self._caught_up = Event()
        self._closing = Event()
        for workload in settings.workloads:
            metrics.version.labels(workload).set(0)

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
        reports = callbacks("calibration", self._metrics, self._on_failure)
        consumer = Consumer(self._properties | reports)
        try:
            # From offset 0 rather than "the beginning": that needs no question to the broker first.
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while not self._closing.is_set():
                message = consumer.poll(_POLL_S)
                if message is not None:
                    self._take(message)
            consumer.close()
        except KafkaException as error:
            self._on_failure(translate(kafka_error(error), Side.CONSUMER))
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            self._on_failure(error)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._offer(message)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a client-side code
            self._caught_up.set()
        else:
            found = translate(error, Side.CONSUMER)
            if isinstance(found, Fenced | AccessDenied) or is_fatal(error):
                raise found
            self._metrics.client_errors.labels("calibration", error.name()).inc()
            _log.warning("calibration topic", code=error.name(), error=error.str())

    def _offer(self, message: Message) -> None:
        outcome = self._adoption.offer(message.key(), message.value(), self._clock.now())
        if isinstance(outcome, Adopted):
            version = outcome.version
            self._metrics.adopted.labels(version.workload).inc()
            self._metrics.version.labels(version.workload).set(version.version)
            _log.info("calibration in force", workload=version.workload, version=version.version, state=version.state)
        elif isinstance(outcome, Refused):
            self._metrics.rejected.labels(outcome.reason.value).inc()
            expected = outcome.reason in (Refusal.UNKNOWN_WORKLOAD, Refusal.DELETED)
            level = _log.debug if expected else _log.warning
            level(
                "calibration refused; the last good one stays",
                reason=outcome.reason.value,
                error=outcome.error,
                offset=message.offset(),
            )
