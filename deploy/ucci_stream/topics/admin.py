"""Topics: created where they are missing, checked where they exist.

The table of :mod:`schemas.topics` flows in; topics on the broker, or one line for each fault, flow out. An existing
topic is never altered: a wrong policy is the operator's to mend.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.settings import Settings
from schemas.topics import BROKERS_TIME, ROOMY_MAX_MESSAGE_BYTES, TIMESTAMP_TYPE, TOPICS, Topic
from ucci_runtime.broker import kafka_topics as topic_check
from ucci_runtime.broker.errors import TopicsUnusable
from ucci_runtime.broker.kafka_properties import admin_properties, user_properties

REQUEST_TIMEOUT_S = 10.0
_SETTLE_TIMEOUT_S = 20.0
_KAFKAS_RETENTION_MS = 7 * 24 * 3600 * 1000
_COMPACTED = {
    # Only closed segments are compacted, and a segment closes at a write after this time.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True, slots=True)
class Created:
    """What :func:`create_topics` did."""

    created: tuple[str, ...]
    existing: tuple[str, ...]


def client_properties(settings: Settings, **ours: str | float) -> dict[str, str | int | float]:
    """Return the ``[kafka]`` properties with ours laid over them.

    Parameters
    ----------
    **ours
        librdkafka properties, ``_`` in place of ``.``.
    """
    # What the client library notes by itself would tear through progress bars; failures come as exceptions.
    quiet: dict[str, str | int | float] = {"log_level": 2}
    return quiet | user_properties(settings) | {key.replace("_", "."): value for key, value in ours.items()}


def admin_client(settings: Settings) -> AdminClient:
    """Return an admin client with the ``[kafka]`` properties."""
    return AdminClient(admin_properties(settings))


def topic_config(topic: Topic, join_retention_s: float) -> dict[str, str]:
    """Return the topic's configuration at creation.

    Parameters
    ----------
    join_retention_s : float
        What the join rebuilds its rows from is kept for so long, and no less than Kafka keeps records by default.
    """
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


def create_topics(settings: Settings, admin: AdminClient | None = None) -> Created:
    """Create the missing topics, then check all of them.

    Idempotent. Blocks until the broker has shown every new topic, at most 20 s.

    Raises
    ------
    TopicsUnusable
        When a topic that exists already has a wrong policy or partition count, or the broker refuses to create one.
    """
    admin = admin or admin_client(settings)
    prefix = settings.topics.prefix
    present = partition_counts(admin)
    missing = [topic for topic in TOPICS if topic.name(prefix) not in present]
    requests = [
        NewTopic(
            topic.name(prefix),
            num_partitions=topic.partitions or settings.topics.partitions,
            replication_factor=settings.topics.replication_factor,
            config=topic_config(topic, settings.recalibrator.join_retention_s),
        )
        for topic in missing
    ]
    faults = []
    for name, future in (admin.create_topics(requests, request_timeout=REQUEST_TIMEOUT_S) if requests else {}).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                faults.append(f"{name}: the broker did not create it: {error.args[0].str()}")
    if faults:
        raise TopicsUnusable(tuple(faults))
    _await_topics(admin, settings)
    check_topics(settings)
    names = tuple(topic.name(prefix) for topic in missing)
    return Created(names, tuple(t.name(prefix) for t in TOPICS if t.name(prefix) not in names))


def check_topics(settings: Settings) -> tuple[str, ...]:
    """Compare the broker's topics with the table.

    Returns
    -------
    tuple of str
        What could be better, one line each, though everything works without.

    Raises
    ------
    TopicsUnusable
        Naming every fault at once.
    BrokerUnreachable, AccessDenied
        When the broker does not answer, or not to us.
    """
    return topic_check.check_topics(settings, TOPICS, TOPICS).warnings


def partition_counts(admin: AdminClient) -> dict[str, int]:
    """Return how many partitions each topic of the cluster has."""
    metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def _await_topics(admin: AdminClient, settings: Settings) -> None:
    """Wait until every topic is in the metadata: clients that subscribe at once would miss it otherwise."""
    wanted = {topic.name(settings.topics.prefix) for topic in TOPICS}
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    while wanted - set(partition_counts(admin)):
        if time.monotonic() > deadline:
            missing = ", ".join(sorted(wanted - set(partition_counts(admin))))
            raise TopicsUnusable((f"{missing}: created, but not shown by the broker after {_SETTLE_TIMEOUT_S:g} s",))
        time.sleep(0.05)
