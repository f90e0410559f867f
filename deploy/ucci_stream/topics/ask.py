"""``ucci-stream ask``: one text → the committed result of the running service, and both models' answers.

The query goes through the queries topic like any other. Where the service kept the small answer, the large model is
asked directly as well, for comparison only: that answer is no part of the result.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from schemas.errors import DecodeError, UcciError
from schemas.query import QueryEvent
from schemas.routed import RoutedEvent
from schemas.settings import Settings
from schemas.topics import QUERIES, RESULTS
from ucci_stream.topics.admin import client_properties

_METADATA_TIMEOUT_S = 10.0


class NoAnswer(UcciError):
    """No result came in time; says what to look at."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """A result and how long it took from sending to reading it committed, in seconds."""

    routed: RoutedEvent
    seconds: float


def ask(settings: Settings, text: str, workload: str | None, timeout_s: float) -> Asked:
    """Send one query and wait for its committed result.

    Parameters
    ----------
    timeout_s : float
        How long to wait for the result, in seconds.

    Raises
    ------
    NoAnswer
        When no result came in time, or the topics are missing.
    """
    query = QueryEvent(query_id=f"ask-{uuid.uuid4()}", text=text, workload=workload)
    prefix = settings.topics.prefix
    consumer = Consumer(
        client_properties(
            settings,
            group_id=f"{prefix}-ask-{query.query_id}",
            enable_auto_commit="false",
            isolation_level="read_committed",
            fetch_wait_max_ms=20,
        )
    )
    try:
        _follow_from_now(consumer, RESULTS.name(prefix))
        producer = Producer(client_properties(settings, linger_ms=0))
        sent = time.monotonic()
        producer.produce(QUERIES.name(prefix), key=query.query_id.encode(), value=query.to_json())
        producer.flush(timeout_s)
        while (left := sent + timeout_s - time.monotonic()) > 0:
            routed = _matching(consumer, query.query_id, min(left, 0.5))
            if routed is not None:
                return Asked(routed, time.monotonic() - sent)
    finally:
        consumer.close()
    raise NoAnswer(
        f"no result within {timeout_s:g} s: is a router running on {settings.kafka['bootstrap.servers']} with prefix "
        f"{prefix!r}, and is it ready (GET /readyz)? The query stays in the topic and will be answered"
    )


def _follow_from_now(consumer: Consumer, topic: str) -> None:
    """Assign every partition at its present end, so that nothing written from now on is missed."""
    metadata = consumer.list_topics(topic, timeout=_METADATA_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise NoAnswer(f"{topic}: {metadata.error.str()}; run `ucci-stream topics create`")
    starts = []
    for partition in metadata.partitions:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_METADATA_TIMEOUT_S)
        starts.append(TopicPartition(topic, partition, end if end >= 0 else OFFSET_END))
    consumer.assign(starts)


def _matching(consumer: Consumer, query_id: str, timeout_s: float) -> RoutedEvent | None:
    for message in consumer.consume(num_messages=500, timeout=timeout_s):
        value, key = message.value(), message.key()
        if message.error() is not None or value is None or key != query_id.encode():
            continue
        try:
            return RoutedEvent.from_json(value)
        except DecodeError as error:
            raise NoAnswer(f"the result of {query_id} cannot be read: {error}") from None
    return None
