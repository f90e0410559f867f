"""The committed records of topics from a time on, up to their ends as of now; nothing is committed by reading."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from recalibrator.file_languages import language_identifier
from recalibrator.movement import Sides
from schemas.errors import UcciError
from schemas.settings import Settings
from schemas.topics import RESULTS
from ucci_runtime.broker.kafka_records import record_of
from ucci_runtime.broker.records import Record
from ucci_stream.topics.admin import ANSWER_TIMEOUT_S, broker_failures, client_properties, partition_counts

_POLL_S, _MILLISECONDS, _SILENCE_S = 0.5, 1_000, 30.0


class NotRead(UcciError):
    """A topic is missing, or was not read to its end."""

    exit_code = 1


def partitions_of(settings: Settings, topic: str) -> int:
    """Return how many partitions a topic has.

    Raises NotRead when it does not exist; raises BrokerUnreachable or AccessDenied.
    """
    counts = partition_counts(settings)
    if topic not in counts:
        raise NotRead(f"{topic}: does not exist; run `ucci-stream topics create`")
    return counts[topic]


def records_since(settings: Settings, topic: str, since: datetime, group: str) -> Iterator[Record]:
    """Yield the committed records of a topic from a time on, partition by partition; blocks.

    Raises KafkaException; raises NotRead when the topic is missing, or nothing comes any more before its end.
    """
    properties = client_properties(
        settings,
        group_id=f"{settings.topics.prefix}-{group}",
        enable_auto_commit="false",
        enable_partition_eof="true",
        isolation_level="read_committed",
    )
    since_ms = max(0, int(since.timestamp() * _MILLISECONDS))
    places = [TopicPartition(topic, number, since_ms) for number in range(partitions_of(settings, topic))]
    consumer = Consumer(properties)
    try:
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
    finally:
        consumer.close()


def what_moved(settings: Settings, workload: str, since: datetime, until: datetime, most: int) -> dict[str, Any]:
    """Return what differs between the results from a time on and those of as long a span before; blocks.

    The parameters are those of :class:`~recalibrator.movement.Sides`. Raises TooFewQueries, NotRead, BrokerUnreachable
    or AccessDenied.
    """
    sides = Sides(workload, since, until, most)
    with broker_failures(settings):
        for record in records_since(settings, RESULTS.name(settings.topics.prefix), sides.start, "what-moved"):
            sides.offer(record)
    return sides.compared(sides.start, language_identifier())
