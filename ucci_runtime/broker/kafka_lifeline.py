"""Asks a silent client, and where it gets no answer another one, whether it is the broker that is away.

Each question opens at most one further connection, for a moment, and blocks for some seconds where nothing answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ucci_runtime.broker.contact import Contact
from ucci_runtime.broker.errors import CutOff
from ucci_runtime.broker.kafka_errors import kafka_error
from ucci_runtime.broker.kafka_properties import Properties, outsider
from ucci_runtime.broker.records import Input

#: How long each client may take to be answered: the same for the silent one as for the others, or a slow machine would
#: make it look cut off.
_ANSWER_S = 3.0

#: Refusals by which a broker that has just started says that it serves no member yet.
_NOT_SERVING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


class Lifeline:
    """Whether one consumer is to be replaced; used by its thread.

    ``is_member``: whether it waits for a group to give it partitions.
    """

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
        other = Consumer(self._others)
        try:
            return _is_told(other, source)
        finally:
            other.close()

    def _coordinator_answers(self) -> bool:
        group_id = str(self._others["group.id"])
        admin = AdminClient(self._others)
        asked = admin.describe_consumer_groups([group_id], request_timeout=_ANSWER_S)
        return is_answered(lambda: asked[group_id].result(_ANSWER_S))


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
