"""Readers of topics for commands: they count nothing, and raise at once what waiting cannot fix.

The group's name has no members; access rules of the broker may list it.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

from schemas.settings import Settings
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_properties import Properties, reader_properties
from ucci_runtime.broker.kafka_topic_readers import KafkaTailReader, KafkaTopicReader

_ERRORS_ALONE = {"log_level": 2}


def topic_reader(
    settings: Settings,
    name: str,
    topics: Sequence[str],
    group_id: str,
    *,
    partitions: int = 1,
    closing: Event | None = None,
) -> KafkaTopicReader:
    """Return a reader of whole topics, to be closed."""
    return KafkaTopicReader(
        name,
        topics,
        _properties(settings, group_id),
        _count_nothing,
        on_final=_raise,
        closing=Event() if closing is None else closing,
        partitions=partitions,
    )


def tail_reader(settings: Settings, name: str, topic: str, group_id: str, most: int) -> KafkaTailReader:
    """Return a reader of a topic's latest records, ``most`` of them over all partitions, to be closed."""
    return KafkaTailReader(name, topic, _properties(settings, group_id), _count_nothing, most=most, on_final=_raise)


def _properties(settings: Settings, group_id: str) -> Properties:
    return reader_properties(settings, group_id) | _ERRORS_ALONE


def _count_nothing(name: str, amount: float = 1.0, **labels: str) -> None:
    """Count nothing: a command that ends has no metrics."""


def _raise(error: BrokerError) -> None:
    raise error
