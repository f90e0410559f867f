"""The router's status, every few seconds, to its compacted topic; nothing waits for it.

A status that does not get through is dropped: the next one tells more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from confluent_kafka import KafkaException, Producer

from schemas.settings import Settings
from schemas.status import RouterStatus
from schemas.topics import ROUTERS
from stream_router.kafka_properties import heartbeat_properties
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_client_reports import reports

INTERVAL_S = 2.0
_CLOSE_S = 1.0


class Heartbeat:
    """Sends the status.

    Parameters
    ----------
    settings : Settings
    status : callable
        Returns the status as of now.
    on_final : callable
        Called with an error that waiting cannot mend.
    metrics : Metrics
    """

    def __init__(
        self,
        settings: Settings,
        status: Callable[[], RouterStatus],
        *,
        on_final: Callable[[BrokerError], None],
        metrics: Metrics,
    ) -> None:
        self._producer = Producer(heartbeat_properties(settings) | reports("heartbeat", metrics.count, on_final))
        self._topic = ROUTERS.name(settings.topics.prefix)
        self._status = status
        self._metrics = metrics

    async def run(self) -> None:
        """Send a status every few seconds, until cancelled."""
        while True:
            self.send()
            await asyncio.sleep(INTERVAL_S)

    def send(self) -> None:
        """Send one status; never blocks."""
        status = self._status()
        try:
            self._producer.produce(self._topic, status.to_json(), status.instance_id.encode())
        except (BufferError, KafkaException):
            self._metrics.client_errors.labels("heartbeat", "not_sent").inc()
        self._producer.poll(0)

    def close(self) -> None:
        """Give the last status a moment to get through; blocks up to 1 s."""
        self._producer.flush(_CLOSE_S)
