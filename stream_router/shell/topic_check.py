"""The topics that a router touches, checked before anything is consumed.

The broker's topics flow in; the largest record that every output topic takes flows out, or one line for each fault.
Producing to a topic that does not exist fails only after minutes, which is why nothing starts unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from schemas.settings import Settings
from schemas.topics import CALIBRATION, DEAD_LETTERS, QUERIES, RESULTS, ROUTERS, Topic
from stream_router.errors import AccessDenied, BrokerError, BrokerUnreachable, TopicsUnusable
from stream_router.shell.broker_errors import Side, kafka_error, translate
from stream_router.shell.kafka_properties import admin_properties

REQUEST_TIMEOUT_S = 10.0
TOUCHED = (QUERIES, RESULTS, DEAD_LETTERS, CALIBRATION, ROUTERS)

_DEFAULT_MAX_BYTES = 1_048_588
_MIN_MAX_BYTES = 8_192
# The producer's limit lies below the topics': the batch's own frame counts there, but not here.
_FRAME_BYTES = 512


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the broker says of one topic."""

    partitions: int
    config: Mapping[str, str]


def check_topics(settings: Settings) -> int:
    """Compare the broker's topics with the table of :mod:`schemas.topics`; blocks up to some 20 s.

    Returns
    -------
    int
        Largest record, in bytes, that both the results and the dead letters take.

    Raises
    ------
    TopicsUnusable
        Naming every fault at once.
    BrokerUnreachable, AccessDenied
        When the broker does not answer, or not to us.
    """
    facts = _ask(settings)
    faults = topic_faults(settings.topics.prefix, facts)
    if faults:
        raise TopicsUnusable(faults)
    return max_record_bytes(settings.topics.prefix, facts)


def topic_faults(prefix: str, facts: Mapping[str, TopicFacts]) -> tuple[str, ...]:
    """Find what is wrong with the topics; one line for each fault, empty when all is well."""
    return tuple(fault for topic in TOUCHED for fault in _faults(topic, topic.name(prefix), facts))


def max_record_bytes(prefix: str, facts: Mapping[str, TopicFacts]) -> int:
    """Return the largest record that every output topic takes, in bytes."""
    return min(_limit(facts[topic.name(prefix)]) for topic in (RESULTS, DEAD_LETTERS)) - _FRAME_BYTES


def _faults(topic: Topic, name: str, facts: Mapping[str, TopicFacts]) -> list[str]:
    if name not in facts:
        return [f"{name}: does not exist; run `ucci-stream topics create`"]
    found = facts[name]
    faults = []
    policy = found.config.get("cleanup.policy", topic.cleanup)
    if policy != topic.cleanup:
        faults.append(f"{name}: cleanup.policy is {policy}, needs {topic.cleanup}; alter or delete the topic")
    if topic.partitions is not None and found.partitions != topic.partitions:
        faults.append(f"{name}: has {found.partitions} partitions, needs {topic.partitions}; delete the topic")
    if topic.roomy and _limit(found) < _MIN_MAX_BYTES:
        faults.append(f"{name}: max.message.bytes is {_limit(found)}, needs at least {_MIN_MAX_BYTES}; raise it")
    return faults


def _limit(found: TopicFacts) -> int:
    return int(found.config.get("max.message.bytes", _DEFAULT_MAX_BYTES))


def _ask(settings: Settings) -> dict[str, TopicFacts]:
    reported: list[KafkaError] = []
    admin = AdminClient(admin_properties(settings) | {"error_cb": reported.append})
    try:
        metadata = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        names = [topic.name(settings.topics.prefix) for topic in TOUCHED]
        present = {name: metadata.topics[name] for name in names if name in metadata.topics}
        present = {name: topic for name, topic in present.items() if topic.error is None}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
        described = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S) if resources else {}
        configs = {resource.name: future.result(REQUEST_TIMEOUT_S) for resource, future in described.items()}
    except (KafkaException, TimeoutError) as error:
        admin.poll(0)
        raise _reason(settings, error, reported) from None
    return {
        name: TopicFacts(len(topic.partitions), {key: str(entry.value) for key, entry in configs[name].items()})
        for name, topic in present.items()
    }


def _reason(settings: Settings, error: Exception, reported: list[KafkaError]) -> BrokerError:
    """Prefer what the client reported on the side: a refused password reaches no call."""
    raised = [kafka_error(error)] if isinstance(error, KafkaException) else []
    for found in (translate(each, Side.CONSUMER) for each in [*raised, *reported]):
        if isinstance(found, AccessDenied):
            return found
    address = settings.kafka.get("bootstrap.servers", "")
    last = reported[-1].str() if reported else str(raised[0].str() if raised else "no answer")
    return BrokerUnreachable(f'no broker answers at {address} ({last}); check [kafka] "bootstrap.servers"')
