"""How a topic of ours is made: its partitions and its configuration; an existing topic is never altered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.settings import Settings
from schemas.topics import (
    BROKERS_TIME,
    FEEDBACK,
    JOIN_REPARTITION,
    RESULTS,
    ROOMY_MAX_MESSAGE_BYTES,
    TIMESTAMP_TYPE,
    Topic,
)
from ucci_runtime.broker.kafka_errors import kafka_error
from ucci_runtime.broker.kafka_topics import REQUEST_TIMEOUT_S, asking, partition_counts

_KAFKAS_RETENTION_MS = 7 * 24 * 3600 * 1000
_COMPACTED = {
    # Only closed segments are compacted, and a segment closes at a write after this time.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
_EXISTS = "TOPIC_ALREADY_EXISTS"
_SETTLE_TIMEOUT_S = 5.0
_SETTLE_POLL_S = 0.05


def topic_config(topic: Topic, join_retention_s: float) -> dict[str, str]:
    """Return the topic's configuration at creation. ``join_retention_s``: how long joined ones are kept at least."""
    config = {"cleanup.policy": topic.cleanup} | (_COMPACTED if "compact" in topic.policies else {})
    if topic.roomy:
        config["max.message.bytes"] = str(ROOMY_MAX_MESSAGE_BYTES)
    if topic.by_broker:
        config[TIMESTAMP_TYPE] = BROKERS_TIME
    if topic.retention_ms is not None:
        config["retention.ms"] = str(topic.retention_ms)
    if topic.joined:
        config["retention.ms"] = str(max(int(join_retention_s * 1_000), _KAFKAS_RETENTION_MS))
    if topic.tombstone_retention_ms is not None:
        config["delete.retention.ms"] = str(topic.tombstone_retention_ms)
    return config


def create(
    admin: AdminClient, settings: Settings, topics: Sequence[Topic], present: Mapping[str, int]
) -> tuple[str, ...]:
    """Create topics; return what the broker refuses, one line each. Blocks up to some 10 s. Raises KafkaException.

    ``present``: the number of partitions of each topic that there is. One that somebody else creates meanwhile is well.
    """
    requests = [
        NewTopic(
            topic.name(settings.topics.prefix),
            num_partitions=_partitions(topic, settings, present),
            replication_factor=settings.topics.replication_factor,
            config=topic_config(topic, settings.recalibrator.join_retention_s),
        )
        for topic in topics
    ]
    created = admin.create_topics(requests, request_timeout=REQUEST_TIMEOUT_S) if requests else {}
    faults = []
    for name, future in created.items():
        try:
            future.result()
        except KafkaException as error:
            if kafka_error(error).name() != _EXISTS:
                faults.append(f"{name}: the broker did not create it: {kafka_error(error).str()}")
    return tuple(faults)


def _partitions(topic: Topic, settings: Settings, present: Mapping[str, int]) -> int:
    """Return how many partitions to create a topic with.

    The join places a query by the number of partitions of its repartition topic. Where results and feedback exist
    already, the smaller number of theirs sends the fewest of their records on.
    """
    names = (input_topic.name(settings.topics.prefix) for input_topic in (RESULTS, FEEDBACK))
    input_counts = [present[name] for name in names if name in present]
    if topic is JOIN_REPARTITION and input_counts:
        return min(input_counts)
    return topic.partitions or settings.topics.partitions


def await_shown(settings: Settings, names: Iterable[str], timeout_s: float) -> list[str]:
    """Wait until the broker shows these topics; return those that it does not show in time, sorted.

    Clients that use a topic at once would miss it otherwise: a broker may not know yet what another one has created.
    Raises BrokerUnreachable or AccessDenied.
    """
    awaited = frozenset(names)
    deadline_s = time.monotonic() + timeout_s
    while (hidden := sorted(awaited - partition_counts(settings).keys())) and time.monotonic() <= deadline_s:
        time.sleep(_SETTLE_POLL_S)
    return hidden


def create_repartition(settings: Settings) -> tuple[str, ...]:
    """Create the join's own topic where results and feedback are there without it; return what the broker refuses.

    A join that was there before the topic goes on by itself then, if it may create topics. Blocks up to some 20 s.
    Raises BrokerUnreachable or AccessDenied.
    """
    prefix = settings.topics.prefix
    present = partition_counts(settings)
    has_inputs = all(topic.name(prefix) in present for topic in (RESULTS, FEEDBACK))
    if not has_inputs or JOIN_REPARTITION.name(prefix) in present:
        return ()
    with asking(settings, REQUEST_TIMEOUT_S) as admin:
        refusals = create(admin, settings, [JOIN_REPARTITION], present)
    if not refusals:
        await_shown(settings, [JOIN_REPARTITION.name(prefix)], _SETTLE_TIMEOUT_S)
    return refusals
