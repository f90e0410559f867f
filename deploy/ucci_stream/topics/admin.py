"""Topics: created where they are missing, checked where they exist; an existing topic is never altered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from schemas.settings import Settings
from schemas.topics import TOPICS, Topic
from ucci_runtime.broker import kafka_topic_creation, kafka_topics
from ucci_runtime.broker.errors import AccessDenied, BrokerUnreachable, Fenced, TopicsUnusable
from ucci_runtime.broker.kafka_errors import Side, kafka_error, translate
from ucci_runtime.broker.kafka_properties import admin_properties, require_kafka, user_properties
from ucci_runtime.broker.kafka_topics import partition_counts

#: How long a command waits for one answer of the broker before it ends.
ANSWER_TIMEOUT_S = 10.0

_SETTLE_TIMEOUT_S = 20.0


class Created(NamedTuple):
    """What :func:`create_topics` did."""

    created: tuple[str, ...]
    existing: tuple[str, ...]


def client_properties(settings: Settings, **ours: str | float) -> dict[str, str | int | float]:
    """Return the ``[kafka]`` properties with ours laid over them: librdkafka's, ``_`` in place of ``.``."""
    # What the client library notes by itself would tear through progress bars; failures come as exceptions.
    quiet: dict[str, str | int | float] = {"log_level": 2}
    return quiet | user_properties(settings) | {key.replace("_", "."): value for key, value in ours.items()}


@contextmanager
def broker_failures(settings: Settings) -> Iterator[None]:
    """Turn what the Kafka client raises in the block into one clear line.

    Raises BrokerUnreachable when a call found no broker, no leader or no coordinator in time; raises AccessDenied or
    Fenced when the broker refuses us, or another process has taken our transactional id.
    """
    try:
        yield
    except KafkaException as error:
        found = translate(kafka_error(error), Side.PRODUCER)
        if isinstance(found, AccessDenied | Fenced):
            raise found from None
        raise BrokerUnreachable(
            f"the broker at {settings.kafka['bootstrap.servers']} did not do what was asked within "
            f"{ANSWER_TIMEOUT_S:g} s ({kafka_error(error).str()}); the cluster may be failing over: run this again"
        ) from None


@contextmanager
def transaction(producer: Producer) -> Iterator[None]:
    """Commit what is produced in the block, or nothing of it where the block fails. Raises KafkaException."""
    producer.begin_transaction()
    try:
        yield
        producer.commit_transaction(ANSWER_TIMEOUT_S)
    except BaseException:
        # Where this fails too, the broker ends the transaction by itself, or the next one does when it begins.
        with suppress(KafkaException):
            producer.abort_transaction(ANSWER_TIMEOUT_S)
        raise


def create_topics(settings: Settings) -> Created:
    """Create the missing topics, then check all of them.

    Idempotent. Blocks until the broker has shown every new topic, at most 20 s. Raises TopicsUnusable when a topic that
    exists already has a wrong policy or partition count, or the broker refuses to create one; raises BrokerUnreachable
    or AccessDenied when the broker does not answer, or not to us. Raises ConfigError when librdkafka refuses the
    ``[kafka]`` table.
    """
    require_kafka(settings)
    prefix, present = settings.topics.prefix, partition_counts(settings)
    missing = [topic for topic in TOPICS if topic.name(prefix) not in present]
    faults = kafka_topic_creation.create(AdminClient(admin_properties(settings)), settings, missing, present)
    if faults:
        raise TopicsUnusable(faults)
    topic_names = [topic.name(prefix) for topic in TOPICS]
    if hidden := kafka_topic_creation.await_shown(settings, topic_names, _SETTLE_TIMEOUT_S):
        raise TopicsUnusable(
            (f"{', '.join(hidden)}: created, but not shown by the broker after {_SETTLE_TIMEOUT_S:g} s",)
        )
    check_topics(settings)
    existing = (topic for topic in TOPICS if topic not in missing)
    return Created(*(tuple(topic.name(prefix) for topic in topics) for topics in (missing, existing)))


def check_topics(settings: Settings) -> tuple[str, ...]:
    """Compare the broker's topics with the table.

    Returns what could be better, one line each, though everything works without. Raises TopicsUnusable, naming every
    fault at once; raises BrokerUnreachable or AccessDenied when the broker does not answer, or not to us. Raises
    ConfigError when librdkafka refuses the ``[kafka]`` table.
    """
    require_kafka(settings)
    return kafka_topics.check_topics(settings, TOPICS, TOPICS, needs_equal_counts=True).warnings


def require_broker(settings: Settings, topic: Topic | None = None) -> None:
    """Check that a broker answers, and has a topic: a client that is given records waits long for both without a word.

    Raises BrokerUnreachable or AccessDenied when the broker does not answer, or not to us; raises TopicsUnusable when
    it has no such topic. Raises ConfigError when librdkafka refuses the ``[kafka]`` table.
    """
    require_kafka(settings)
    found = partition_counts(settings)
    if topic is not None and (name := topic.name(settings.topics.prefix)) not in found:
        raise TopicsUnusable((f"{name}: does not exist; make it first: ucci-stream topics create",))
