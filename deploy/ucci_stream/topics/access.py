"""Which access each component needs on a broker with an authorizer: the grants, derived and never listed twice.

Topics come from the senders and receivers of :mod:`schemas.topics`, groups and transactional ids from the names by
which the services make their clients. A broker older than Kafka 2.8 asks for ``IdempotentWrite`` on the cluster as
well; later ones take ``Write`` on a topic for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from recalibrator.stage import ReaderName, StageName
from schemas.topics import FEEDBACK, LABEL_REQUESTS, QUERIES, RESULTS, STATUS, TOPICS, Topic
from stream_router.ports import CALIBRATION_READER, GROUP
from ucci_runtime.broker.kafka_properties import ClientNames

Resource = Literal["topic", "group", "transactional-id"]
Operation = Literal["Read", "Write", "Describe", "DescribeConfigs"]

COMPONENTS = ("router", "recalibrator", "producer", "labeler")
"""Who can be given access: both services, and the people's side of ``ucci-stream``: ``send`` and ``ask``, ``label`` and
``label-queue``."""

ASKING_GROUP = "ask"
LABELING_GROUP = "label-queue"

_INSTANCE = "{instance_id}"


class Grant(NamedTuple):
    """One operation that a component may do on one resource.

    Parameters
    ----------
    resource : str
    name : str
        Of the resource, or the beginning of its name.
    is_prefix : bool
    operation : str
    """

    resource: Resource
    name: str
    is_prefix: bool
    operation: Operation


def group_name(prefix: str, name: str) -> str:
    """Return the name of a group of ``ucci-stream`` itself.

    Examples
    --------
    >>> group_name("ucci", LABELING_GROUP)
    'ucci-label-queue'
    """
    return f"{prefix}-{name}"


def grants(component: str, prefix: str) -> tuple[Grant, ...]:
    """Return the least access with which a component does all its work, in the order of the topics' table.

    ``Read`` and ``Write`` include ``Describe``, as Kafka's authorizer has it.

    Parameters
    ----------
    component : str
        One of :data:`COMPONENTS`.
    prefix : str
        Of the topics.

    Examples
    --------
    >>> [f"{g.operation} {g.name}" for g in grants("router", "ucci") if g.resource != "topic"]
    ['Read ucci-router', 'Describe ucci-router-', 'Write ucci-router-']
    """
    made = {"router": _router, "recalibrator": _recalibrator, "producer": _producer, "labeler": _labeler}
    return tuple(made[component](prefix))


def _router(prefix: str) -> Iterator[Grant]:
    yield from _service_topics({"router"}, prefix)
    names = ClientNames("router", prefix, _INSTANCE)
    yield Grant("group", names.group_id(GROUP), False, "Read")
    yield Grant("group", _of_every_instance(names.reader_group_id(CALIBRATION_READER)), True, "Describe")
    yield Grant("transactional-id", _of_every_instance(names.transactional_id(GROUP)), True, "Write")


def _recalibrator(prefix: str) -> Iterator[Grant]:
    yield from _service_topics({stage.value for stage in StageName}, prefix)
    names = ClientNames("recalibrator", prefix, _INSTANCE)
    committing = (StageName.JOIN.value, StageName.FIT.value)
    for name in committing:
        yield Grant("group", names.group_id(name), False, "Read")
    for reader in ReaderName:
        yield Grant("group", _of_every_instance(names.reader_group_id(reader.value)), True, "Describe")
    for name in committing:
        yield Grant("transactional-id", _of_every_instance(names.transactional_id(name)), True, "Write")


def _producer(prefix: str) -> Iterator[Grant]:
    yield Grant("topic", QUERIES.name(prefix), False, "Write")
    yield Grant("topic", RESULTS.name(prefix), False, "Read")
    yield Grant("group", group_name(prefix, ASKING_GROUP) + "-", True, "Describe")


def _labeler(prefix: str) -> Iterator[Grant]:
    yield Grant("topic", FEEDBACK.name(prefix), False, "Write")
    for topic in (STATUS, LABEL_REQUESTS):
        yield from _topic(topic, prefix, ("Read", "DescribeConfigs"))
    yield Grant("group", group_name(prefix, LABELING_GROUP), False, "Describe")


def _service_topics(parts: set[str], prefix: str) -> Iterator[Grant]:
    """Yield what a service does on its topics; at its start it reads the configuration of each."""
    for topic in TOPICS:
        done: list[Operation] = []
        if parts.intersection(topic.receivers):
            done.append("Read")
        if parts.intersection(topic.senders):
            done.append("Write")
        if done:
            yield from _topic(topic, prefix, (*done, "DescribeConfigs"))


def _topic(topic: Topic, prefix: str, operations: Iterable[Operation]) -> Iterator[Grant]:
    for operation in operations:
        yield Grant("topic", topic.name(prefix), False, operation)


def _of_every_instance(name: str) -> str:
    """Return how the names of all instances begin, from that of one."""
    return name.partition(_INSTANCE)[0]
