"""How commands read topics: they commit and count nothing, and raise at once what waiting cannot fix.

The group's name has no members; access rules of the broker may list it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from threading import Event

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.errors import UcciError
from schemas.settings import Settings
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_properties import Properties, reader_properties
from ucci_runtime.broker.kafka_records import record_of
from ucci_runtime.broker.kafka_topic_readers import KafkaTailReader, KafkaTopicReader
from ucci_runtime.broker.kafka_topics import partition_counts
from ucci_runtime.broker.records import Record
from ucci_stream.topics.admin import ANSWER_TIMEOUT_S, client_properties

_ERRORS_ALONE = {"log_level": 2}
# A call waits for as long unless a full batch comes, also at the end.
_POLL_S, _MILLISECONDS, _SILENCE_S = 0.1, 1_000, 30.0


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


class NotRead(UcciError):
    """A topic is missing, or was not read to its end."""


def records_since(settings: Settings, topic: str, since: datetime, group: str) -> Iterator[Record]:
    """Yield the committed records of a topic from a time on, partition by partition; blocks.

    Raises KafkaException; raises NotRead when the topic is missing, or nothing comes any more before its end. Raises
    BrokerUnreachable or AccessDenied.
    """
    properties = client_properties(
        settings,
        group_id=f"{settings.topics.prefix}-{group}",
        enable_auto_commit="false",
        enable_partition_eof="true",
        isolation_level="read_committed",
    )
    if topic not in (counts := partition_counts(settings)):
        raise NotRead(f"{topic}: does not exist; run `ucci-stream topics create`")
    since_ms = max(0, int(since.timestamp() * _MILLISECONDS))
    places = [TopicPartition(topic, number, since_ms) for number in range(counts[topic])]
    with closing(Consumer(properties)) as consumer:
        starts = consumer.offsets_for_times(places, timeout=ANSWER_TIMEOUT_S)
        consumer.assign(starts)
        left, seen_s = {place.partition for place in starts}, time.monotonic()
        while left:
            if time.monotonic() - seen_s > _SILENCE_S:
                raise NotRead(f"{topic}: nothing came for {_SILENCE_S:g} s before its end; run this again")
            for message in consumer.consume(num_messages=1_000, timeout=_POLL_S):
                seen_s, error = time.monotonic(), message.error()
                if error is None:
                    yield record_of(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a client-side code
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
