"""The topics that a service touches, checked before anything is consumed.

The check asks the broker for the cluster's id and the largest record that every output topic takes, and reports each
fault in one line. Producing to a topic that does not exist fails only after minutes: nothing starts unchecked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from schemas.settings import Settings
from schemas.topics import BROKERS_TIME, FEEDBACK, RESULTS, TIMESTAMP_TYPE, Topic
from ucci_runtime.broker.errors import AccessDenied, BrokerUnreachable, TopicsUnusable
from ucci_runtime.broker.kafka_errors import Side, kafka_error, translate
from ucci_runtime.broker.kafka_properties import admin_properties
from ucci_runtime.broker.ports import CheckedTopics

REQUEST_TIMEOUT_S = 10.0

_DEFAULT_MAX_BYTES = 1_048_588
_MIN_MAX_BYTES = 8_192
#: The broker's limit for a transaction's time-out.
_TRANSACTION_LIMIT = "transaction.max.timeout.ms"
#: The broker's limit for the note beside an offset, in which a router keeps what is done beyond it.
METADATA_LIMIT = "offset.metadata.max.bytes"

WANTED_METADATA_BYTES = 4_096
# The producer's limit lies below the topics': the batch's own frame counts there, but not here.
_FRAME_BYTES = 512


class TopicFacts(NamedTuple):
    """What the broker says of one topic."""

    partitions: int
    config: Mapping[str, str]


def check_topics(
    settings: Settings,
    touched: Sequence[Topic],
    written: Iterable[Topic],
    optional: Sequence[Topic] = (),
    *,
    needs_equal_counts: bool = False,
) -> CheckedTopics:
    """Compare the broker's topics with the table of :mod:`schemas.topics`; blocks up to some 20 s.

    ``optional``: newer than others: a service that was there before goes on without them until somebody creates them.
    ``needs_equal_counts``: whether results and feedback must have equally many partitions; else it is a warning.
    Raises TopicsUnusable, naming every fault at once; raises BrokerUnreachable or AccessDenied when the broker does not
    answer, or not to us.
    """
    prefix = settings.topics.prefix
    with asking(settings, REQUEST_TIMEOUT_S) as admin:
        cluster_id, facts, hidden = _ask(admin, [topic.name(prefix) for topic in (*touched, *optional)])
        limits = _broker_limits(admin)
        metadata_bytes = limits.get(METADATA_LIMIT)
    if denied := sorted(hidden.intersection(topic.name(prefix) for topic in touched)):
        raise AccessDenied(_refusal("Describe", denied))
    missing = frozenset(topic for topic in optional if topic.name(prefix) not in facts)
    present = [*touched, *(topic for topic in optional if topic not in missing)]
    unequal = unequal_counts(prefix, facts)
    faults = (*topic_faults(prefix, present, facts), *(unequal if needs_equal_counts else ()))
    if faults:
        raise TopicsUnusable(faults)
    warnings = topic_warnings(prefix, present, facts, settings.recalibrator.join_retention_s)
    limit = min(_limit(facts[topic.name(prefix)]) for topic in written if topic not in missing)
    return CheckedTopics(
        cluster_id,
        limit - _FRAME_BYTES,
        missing,
        (
            *warnings,
            *unequal,
            *(_refusal("Describe", [name]) for name in sorted(hidden)),
            *metadata_warnings(metadata_bytes),
        ),
        None if metadata_bytes is None else metadata_bytes - 1,
        limits.get(_TRANSACTION_LIMIT),
    )


@contextmanager
def asking(settings: Settings, timeout_s: float) -> Iterator[AdminClient]:
    """Yield a client for the first questions to a broker, each of which waits so long for its answer.

    Raises BrokerUnreachable or AccessDenied where one has none, by what the client reported on the side too: no call
    sees a refused password.
    """
    reported: list[KafkaError] = []
    admin = AdminClient(admin_properties(settings) | {"error_cb": reported.append})
    try:
        yield admin
    except (KafkaException, TimeoutError) as error:
        admin.poll(0)
        raised = [kafka_error(error)] if isinstance(error, KafkaException) else []
        for found in (translate(each, Side.CONSUMER) for each in [*raised, *reported]):
            if isinstance(found, AccessDenied):
                raise found from None
        address = settings.kafka.get("bootstrap.servers", "")
        last = reported[-1].str() if reported else str(raised[0].str() if raised else "no answer")
        raise BrokerUnreachable(
            f'no broker answers at {address} within {timeout_s:g} s ({last}); check [kafka] "bootstrap.servers"'
        ) from None


def partition_counts(settings: Settings) -> dict[str, int]:
    """Return how many partitions each topic of the cluster has. Raises BrokerUnreachable or AccessDenied."""
    with asking(settings, REQUEST_TIMEOUT_S) as admin:
        metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def topic_faults(prefix: str, touched: Iterable[Topic], facts: Mapping[str, TopicFacts]) -> tuple[str, ...]:
    """Find what is wrong with the topics; one line for each fault, empty when all is well."""
    return tuple(fault for topic in touched for fault in _faults(topic, topic.name(prefix), facts))


def unequal_counts(prefix: str, facts: Mapping[str, TopicFacts]) -> tuple[str, ...]:
    """Return a line where results and feedback differ in their number of partitions, as while some are being added."""
    results, feedback = facts.get(RESULTS.name(prefix)), facts.get(FEEDBACK.name(prefix))
    if results is None or feedback is None or results.partitions == feedback.partitions:
        return ()
    line = (
        f"{RESULTS.name(prefix)} has {results.partitions} partitions and {FEEDBACK.name(prefix)} "
        f"{feedback.partitions}: the join reads both, but forwards more records than with equal counts; add partitions "
        "to the smaller"
    )
    return (line,)


def topic_warnings(
    prefix: str, touched: Sequence[Topic], facts: Mapping[str, TopicFacts], join_retention_s: float
) -> tuple[str, ...]:
    """Find topics that would be made otherwise today; one line each."""
    names = [topic.name(prefix) for topic in touched if topic.by_broker]
    by_sender = tuple(
        f"{name}: {TIMESTAMP_TYPE} is {found}, by which a sender's wrong clock dates its records; "
        f"alter the topic to {TIMESTAMP_TYPE}={BROKERS_TIME}"
        for name in names
        if name in facts and (found := facts[name].config.get(TIMESTAMP_TYPE, BROKERS_TIME)) != BROKERS_TIME
    )
    # Who touches the feedback joins it with the results; a router only writes those.
    joined = [topic.name(prefix) for topic in touched if topic.joined] if FEEDBACK in touched else []
    return (*by_sender, *_retention_warnings(joined, facts, int(join_retention_s * 1_000)))


def metadata_warnings(found_bytes: int | None) -> tuple[str, ...]:
    """Find a broker that takes less beside an offset than routers write."""
    if found_bytes is None or found_bytes >= WANTED_METADATA_BYTES:
        return ()
    line = (
        f"broker: {METADATA_LIMIT} is {found_bytes}, below Kafka's own {WANTED_METADATA_BYTES}: while a query is slow, "
        "routers can note fewer of those done after it, and pause its partition sooner; raise it on every broker"
    )
    return (line,)


def _retention_warnings(joined: Iterable[str], facts: Mapping[str, TopicFacts], needed_ms: int) -> Iterator[str]:
    for name in joined:
        found_ms = int(facts[name].config.get("retention.ms", "-1")) if name in facts else -1
        if 0 <= found_ms < needed_ms:
            yield (
                f"{name}: retention.ms is {found_ms}, below recalibrator.join_retention_s: a lost store of the join "
                f"could not be rebuilt whole; alter the topic to retention.ms={needed_ms}, or lower "
                "recalibrator.join_retention_s"
            )


def _faults(topic: Topic, name: str, facts: Mapping[str, TopicFacts]) -> list[str]:
    if name not in facts:
        return [f"{name}: does not exist; run `ucci-stream topics create`"]
    found = facts[name]
    faults = []
    policy = found.config.get("cleanup.policy", topic.cleanup)
    if {word.strip() for word in policy.split(",")} != set(topic.policies):
        faults.append(f"{name}: cleanup.policy is {policy}, needs {topic.cleanup}; alter or delete the topic")
    if topic.partitions is not None and found.partitions != topic.partitions:
        faults.append(f"{name}: has {found.partitions} partitions, needs {topic.partitions}; delete the topic")
    if topic.roomy and _limit(found) < _MIN_MAX_BYTES:
        faults.append(f"{name}: max.message.bytes is {_limit(found)}, needs at least {_MIN_MAX_BYTES}; raise it")
    return faults


def _limit(found: TopicFacts) -> int:
    return int(found.config.get("max.message.bytes", _DEFAULT_MAX_BYTES))


def _refusal(operation: str, names: Sequence[str]) -> str:
    return (
        f"the broker refuses {operation} on {', '.join(names)} (TOPIC_AUTHORIZATION_FAILED); grant it to this "
        "service's user: `ucci-stream acls` prints what each service needs"
    )


def _ask(admin: AdminClient, names: Sequence[str]) -> tuple[str, dict[str, TopicFacts], frozenset[str]]:
    """Return the cluster's id, what it says of the topics that it shows, and those that it hides, if they exist."""
    metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    present = {name: metadata.topics[name] for name in names if name in metadata.topics}
    present = {name: topic for name, topic in present.items() if topic.error is None}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
    configs = _configs(admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S) if resources else {})
    facts = {
        name: TopicFacts(len(topic.partitions), {key: str(entry.value) for key, entry in configs[name].items()})
        for name, topic in present.items()
    }
    return str(metadata.cluster_id or "unknown"), facts, _hidden(admin, [name for name in names if name not in present])


def _configs(described: Mapping[ConfigResource, Future[Any]]) -> dict[str, Any]:
    """Return each topic's configuration. Raises AccessDenied, naming every topic whose configuration is denied us."""
    if denied := sorted(resource.name for resource, answer in described.items() if _is_denied(answer)):
        raise AccessDenied(_refusal("DescribeConfigs", denied))
    return {resource.name: answer.result() for resource, answer in described.items()}


def _hidden(admin: AdminClient, names: Sequence[str]) -> frozenset[str]:
    """Return the topics that the broker refuses to describe; a list of all topics merely leaves them out."""
    if not names:
        return frozenset()
    described = admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S)
    return frozenset(name for name, answer in described.items() if _is_denied(answer))


def _is_denied(answer: Future[Any]) -> bool:
    """Wait for an answer, and return whether it is that we may not ask."""
    error = answer.exception(REQUEST_TIMEOUT_S)
    return isinstance(error, KafkaException) and kafka_error(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def _broker_limits(admin: AdminClient) -> dict[str, int]:
    """Return a broker's limits by their names; none where we may not ask, or it does not answer."""
    try:
        brokers = admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
        resources = [ConfigResource(ResourceType.BROKER, str(number)) for number in sorted(brokers)[:1]]
        described = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        entries = [future.result(REQUEST_TIMEOUT_S) for future in described.values()]
        limits = (METADATA_LIMIT, _TRANSACTION_LIMIT)
        return {name: int(str(found[name].value)) for found in entries for name in limits if name in found}
    except (KafkaException, TimeoutError, KeyError, ValueError):
        # To describe a broker takes a permission that a service need not have; what it refuses says the same.
        return {}
