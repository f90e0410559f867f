"""The recalibrator's status, every few seconds, to its compacted topic; nothing waits for it.

Reports of the stages flow in, a :class:`~schemas.status.RecalibratorStatus` flows out. One that does not get through
is dropped: the next one tells more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Event, Thread

from confluent_kafka import KafkaException, Producer

from recalibrator.kafka_properties import producer_properties
from recalibrator.stage import StageReport
from schemas.settings import Settings
from schemas.status import RecalibratorStatus, StageStatus, TopicLag
from schemas.topics import RECALIBRATORS
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_client_reports import reports
from ucci_runtime.broker.records import Count
from ucci_runtime.clock import Clock

INTERVAL_S = 2.0
_FIRST_S = 0.5
_CLOSE_S = 1.0


class Heartbeat(Thread):
    """The thread that sends the status.

    Parameters
    ----------
    settings : Settings
    instance_id : str
    stages : callable
        Returns each stage's last report by its name.
    clock : Clock
    count : callable
    on_final : callable
        Called with an error that waiting cannot mend.
    closing : threading.Event
        Ends the thread.
    """

    def __init__(
        self,
        settings: Settings,
        instance_id: str,
        stages: Callable[[], Mapping[str, StageReport]],
        *,
        clock: Clock,
        count: Count,
        on_final: Callable[[BrokerError], None],
        closing: Event,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._producer = Producer(producer_properties(settings) | reports("heartbeat", count, on_final))
        self._topic = RECALIBRATORS.name(settings.topics.prefix)
        self._instance_id = instance_id
        self._stages = stages
        self._clock = clock
        self._count = count
        self._closing = closing
        self._started_at = clock.now()

    def run(self) -> None:
        """Send a status every few seconds, the first soon, until closed, and a last one then."""
        wait_s = _FIRST_S
        while not self._closing.wait(wait_s):
            self._send()
            wait_s = INTERVAL_S
        self._send()
        self._producer.flush(_CLOSE_S)

    def _send(self) -> None:
        status = recalibrator_status(self._instance_id, self._started_at, self._clock.now(), self._stages())
        try:
            self._producer.produce(self._topic, status.to_json(), self._instance_id.encode())
        except (BufferError, KafkaException):
            self._count("client_errors", client="heartbeat", code="not_sent")
        self._producer.poll(0)


def recalibrator_status(
    instance_id: str, started_at: datetime, now: datetime, stages: Mapping[str, StageReport]
) -> RecalibratorStatus:
    """Put a status together; lags are summed over the partitions of a topic, seconds are those of the worst."""
    return RecalibratorStatus(
        instance_id=instance_id,
        started_at=started_at,
        updated_at=now,
        stages={name: StageStatus(ready=report.is_ready, lag=_by_topic(report)) for name, report in stages.items()},
        labelers={workload: told for report in stages.values() for workload, told in report.labelers.items()},
    )


def _by_topic(report: StageReport) -> dict[str, TopicLag]:
    found: dict[str, TopicLag] = {}
    for source, behind in sorted(report.lag.items()):
        before = found.get(source.topic, TopicLag())
        ages = [age for age in (before.seconds, behind.seconds) if age is not None]
        found[source.topic] = TopicLag(records=before.records + behind.records, seconds=max(ages, default=None))
    return found
