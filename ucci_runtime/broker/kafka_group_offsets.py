"""What a group has committed, asked of its coordinator.

Read with stable offsets only (``read_committed``): while a transaction is open over a partition, the broker makes us
wait for its end instead of returning a state that is about to change.

A client of its own asks. A member that asks from within a rebalance does not poll meanwhile, and while records that it
has fetched wait to be polled, librdkafka 2.16 cannot let go of a broker that metadata did not name for a moment: such a
member got no answer for as long as it asked, of a broker that answered everybody else at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from threading import Event
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ucci_runtime.broker.errors import AccessDenied, BrokerError, Fenced
from ucci_runtime.broker.kafka_errors import Side, kafka_error, translate
from ucci_runtime.broker.kafka_properties import outsider
from ucci_runtime.broker.ports import GroupOffsets
from ucci_runtime.broker.records import Input, OffsetCommit

_log = structlog.get_logger()

_ASK_TIMEOUT_S = 5.0
_BUDGET_S = 60.0
_RETRY_WAIT_S = 0.1
#: Attempts between two lines that say that it still does not work.
_PATIENCE = 50


def ask_group_offsets(
    properties: Mapping[str, Any], sources: Iterable[Input], *, client: str, closing: Event
) -> GroupOffsets:
    """Read a group's offsets, with patience: the coordinator may be on its way back.

    Raises BrokerError when it did not answer within a minute, or before the end, or refuses.
    """
    asked = [TopicPartition(source.topic, source.partition) for source in sources]
    if not asked:
        return {}
    consumer = Consumer(outsider(properties))
    try:
        return _ask(consumer, asked, client, closing)
    finally:
        consumer.close()


def _ask(consumer: Consumer, asked: list[TopicPartition], client: str, closing: Event) -> GroupOffsets:
    deadline_s, attempts = time.monotonic() + _BUDGET_S, 0
    while True:
        try:
            return {Input(tp.topic, tp.partition): _committed(tp) for tp in consumer.committed(asked, _ASK_TIMEOUT_S)}
        except KafkaException as error:
            reason: BrokerError = translate(kafka_error(error), Side.CONSUMER)
            if isinstance(reason, Fenced | AccessDenied) or time.monotonic() > deadline_s or closing.is_set():
                raise reason from None
            if attempts % _PATIENCE == 0:
                _log.warning("the group's offsets could not be read; trying again", client=client, error=str(reason))
            attempts += 1
            closing.wait(_RETRY_WAIT_S)


def _committed(found: TopicPartition) -> OffsetCommit | None:
    if found.error is not None:
        raise KafkaException(found.error)
    return OffsetCommit(found.offset, found.metadata or "") if found.offset >= 0 else None
