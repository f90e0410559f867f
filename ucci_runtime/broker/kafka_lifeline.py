"""What the broker is asked by a client of its own: whether it is away, and what a group has committed.

A silent client is asked whether it is the broker that is away, and where it gets no answer another one. Each question
opens at most one further connection, for a moment, and blocks for some seconds where nothing answers.

A group's offsets are read with stable offsets only (``read_committed``): while a transaction is open over a partition,
the broker makes us wait for its end instead of returning a state that is about to change. A member that asks from
within a rebalance does not poll meanwhile, and while records that it has fetched wait to be polled, librdkafka 2.16
cannot let go of a broker that metadata did not name for a moment: such a member got no answer for as long as it asked,
of a broker that answered everybody else at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, TypeVar, cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, MemberDescription

from ucci_runtime.broker.contact import Contact
from ucci_runtime.broker.errors import AccessDenied, BrokerError, CutOff, Fenced
from ucci_runtime.broker.kafka_errors import Side, kafka_error, translate
from ucci_runtime.broker.kafka_properties import Properties, outsider
from ucci_runtime.broker.ports import GroupOffsets
from ucci_runtime.broker.records import Input, OffsetCommit

#: How long each client may take to be answered: the same for the silent one as for the others, or a slow machine would
#: make it look cut off.
_ANSWER_S = 3.0

#: The client's own deadline of a question to a group's coordinator. Where that passes while the process stands still,
#: the client aborts the process (librdkafka issue 4605): so the caller stops waiting long before.
COORDINATOR_S = 60.0

#: How long the group's other members are asked for.
_PEERS_S = 1.0

#: Refusals by which a broker that has just started says that it serves no member yet.
_NOT_SERVING = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)


class Lifeline:
    """Whether one consumer is to be replaced; used by its thread. A member waits for a group to give it partitions."""

    def __init__(self, name: str, properties: Properties, *, is_member: bool = False) -> None:
        self.contact = Contact(name, time.monotonic())
        self._others = outsider(properties)
        if is_member:
            self.contact.joining(time.monotonic())

    def is_cut(self, consumer: Consumer, source: Input) -> bool:
        """Return whether the consumer is to be replaced; asks, and blocks for some seconds at most, where that is due.

        Raises CutOff where the one before it was cut off, too.
        """
        if not self.contact.is_due(time.monotonic()):
            return False
        answered = _is_told(consumer, source)
        if not answered:
            if not self._others_are_answered(source):
                return False
            # A broker that woke between the two questions answers both now. A client replaced at that moment joins
            # while the group's coordinator comes back, and was seen to wait in vain for half a minute.
            answered = _is_told(consumer, source)
        if answered:
            now_s = time.monotonic()
            self.contact.answered(now_s)
            if not self.contact.waits_too_long(now_s) or not self._coordinator_answers():
                return False
        if self.contact.cut_off(time.monotonic()):
            raise CutOff(f"{self.contact.name}: the broker answers other clients, and not two of this process")
        return True

    def _others_are_answered(self, source: Input) -> bool:
        with contextlib.closing(Consumer(self._others)) as other:
            return _is_told(other, source)

    def _coordinator_answers(self) -> bool:
        admin = AdminClient(self._others)
        return is_answered(lambda: group_members(admin, str(self._others["group.id"]), _ANSWER_S))


def group_members(admin: AdminClient, group_id: str, wait_s: float) -> Sequence[MemberDescription]:
    """Ask who is in a group; raises KafkaException when that is refused, TimeoutError when no answer comes in time."""
    asked = admin.describe_consumer_groups([group_id], request_timeout=COORDINATOR_S)
    return cast(Sequence[MemberDescription], asked[group_id].result(wait_s).members)


@dataclass(frozen=True, slots=True)
class GroupPeers:
    """The other members of a group, as the broker knows them; each question blocks up to 1 s, from any thread.

    ``properties``: see :func:`~ucci_runtime.broker.kafka_properties.admin_properties`. ``instance_id``: our own.
    """

    properties: Mapping[str, Any]
    group_id: str
    instance_id: str

    def exist(self) -> bool:
        """Return whether there are any; True where the broker does not say."""
        found = self._ask()
        return found is None or bool(found)

    def read(self, topics: Collection[str]) -> bool:
        """Return whether one of them has been given partitions of these topics; False where the broker does not say."""
        places = (place for member in self._ask() or () for place in member.assignment.topic_partitions)
        return any(place.topic in topics for place in places)

    def _ask(self) -> list[MemberDescription] | None:
        try:
            members = group_members(AdminClient(dict(self.properties)), self.group_id, _PEERS_S)
        except (KafkaException, TimeoutError) as error:
            reason = str(kafka_error(error)) if isinstance(error, KafkaException) else "no answer"
            _log.info("the group's members are not known", group=self.group_id, error=reason)
            return None
        return [member for member in members if member.group_instance_id != self.instance_id]


def _is_told(consumer: Consumer, source: Input) -> bool:
    return is_answered(lambda: consumer.get_watermark_offsets(TopicPartition(*source), _ANSWER_S, cached=False))


def is_answered(ask: Callable[[], object]) -> bool:
    """Return whether a question has an answer, be it a refusal: what the client itself says has a code below zero.

    A coordinator that still loads answers nobody: no other client would fare better.
    """
    try:
        ask()
    except KafkaException as error:
        code = kafka_error(error).code()
        return code > 0 and code not in _NOT_SERVING
    except TimeoutError:
        return False
    return True


_log = structlog.get_logger()

_ASK_TIMEOUT_S = 5.0
_BUDGET_S = 60.0
_RETRY_WAIT_S = 0.1
#: Attempts between two lines that say that it still does not work.
_PATIENCE = 50

Answer = TypeVar("Answer")


def ask_group_offsets(
    properties: Mapping[str, Any], sources: Iterable[Input], *, client: str, closing: Event
) -> GroupOffsets:
    """Read a group's offsets, with patience: the coordinator may be on its way back.

    Raises BrokerError when it did not answer within a minute, or before the end, or refuses.
    """
    asked = [TopicPartition(source.topic, source.partition) for source in sources]
    if not asked:
        return {}
    with contextlib.closing(Consumer(outsider(properties))) as consumer:
        return _persist(lambda: _group_offsets(consumer, asked), "offsets", client, closing)


def _group_offsets(consumer: Consumer, asked: list[TopicPartition]) -> GroupOffsets:
    return {Input(tp.topic, tp.partition): _committed(tp) for tp in consumer.committed(asked, _ASK_TIMEOUT_S)}


def _persist(ask: Callable[[], Answer], wanted: str, client: str, closing: Event) -> Answer:
    """Ask until there is an answer; ``wanted`` names in a log line what a group's member waits for."""
    deadline_s, attempts = time.monotonic() + _BUDGET_S, 0
    while True:
        try:
            return ask()
        except KafkaException as error:
            reason: BrokerError = translate(kafka_error(error), Side.CONSUMER)
            if isinstance(reason, Fenced | AccessDenied) or time.monotonic() > deadline_s or closing.is_set():
                raise reason from None
            if attempts % _PATIENCE == 0:
                _log.warning(f"the group's {wanted} could not be read; trying again", client=client, error=str(reason))
            attempts += 1
            closing.wait(_RETRY_WAIT_S)


def ask_partition_counts(
    properties: Mapping[str, Any], topics: Sequence[str], *, client: str, closing: Event
) -> dict[str, int]:
    """Return how many partitions each topic has, asked of a broker with patience.

    Raises BrokerError when none answered within a minute, or before the end, or it refuses.
    """
    with contextlib.closing(Consumer(outsider(properties))) as consumer:
        return _persist(lambda: partition_counts(consumer, topics, _ASK_TIMEOUT_S), "partitions", client, closing)


def partition_counts(consumer: Consumer, topics: Iterable[str], timeout_s: float) -> dict[str, int]:
    """Return how many partitions each topic has, by one broker's answer. Raises KafkaException."""
    counts = {}
    for topic in topics:
        found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        counts[topic] = len(found.partitions)
    return counts


def _committed(found: TopicPartition) -> OffsetCommit | None:
    if found.error is not None:
        raise KafkaException(found.error)
    return OffsetCommit(found.offset, found.metadata or "") if found.offset >= 0 else None
