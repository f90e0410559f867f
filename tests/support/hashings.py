"""The ways in which producers of the world choose a record's partition: five clients that agree on no key."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.support.broker import DEADLINE_S

#: librdkafka's default; Java's; none at all; the default over the key in quotes; whatever the key is.
WAYS = ("CRC-32", "murmur2", "no key", "quoted key", "random partition")
_PARTITIONERS = {"murmur2": "murmur2_random", "random partition": "random"}
_DEFAULT = "consistent_random"
#: Partitions that are added while tests run are to be used within seconds.
SEE_GROWTH = {"topic.metadata.refresh.interval.ms": 1_000}

OnDelivery = Callable[[KafkaError | None, Message], None]


class Hashings:
    """Sends records by each of the ways; each record is acknowledged, or reported as failed."""

    def __init__(self, bootstrap: str, **properties: Any) -> None:
        fixed = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 2,
        } | SEE_GROWTH
        self._producers = {
            name: Producer(fixed | properties | {"partitioner": name}) for name in (_DEFAULT, *_PARTITIONERS.values())
        }

    def __len__(self) -> int:
        """Return how many records are on their way."""
        return sum(map(len, self._producers.values()))

    def produce(self, way: str, topic: str, query_id: str, value: bytes | str, on_delivery: OnDelivery) -> None:
        key = {"no key": None, "quoted key": json.dumps(query_id)}.get(way, query_id)
        producer = self._producers[_PARTITIONERS.get(way, _DEFAULT)]
        producer.produce(topic, key=key, value=value, on_delivery=on_delivery)

    def poll(self, timeout_s: float = 0.0) -> None:
        for producer in self._producers.values():
            producer.poll(timeout_s / len(self._producers))

    def flush(self) -> None:
        """Wait until everything is acknowledged or has failed."""
        assert sum(producer.flush(DEADLINE_S) for producer in self._producers.values()) == 0
