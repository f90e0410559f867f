"""Which records of a transaction that nobody saw end can be read: a broker may have committed half of it.

A transaction coordinator loads its log up to the end, and not up to what is replicated. A broker that is killed and
back before the controller gave it up (``broker.session.timeout.ms``) takes itself for the coordinator that it was: it
finds a PrepareCommit in its log that no other broker has, and sends commit markers to the partitions that it reaches.
Then another broker takes over, without that PrepareCommit, and the transaction is aborted where no marker came. Seen
on three brokers 4.1.1 in 1 of 20 such restarts: a result was committed, its offset was not. So after an end that nobody
saw, the records themselves are asked as well as the group's offsets.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from threading import Event
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.kafka_errors import Side, is_fatal, translate
from ucci_runtime.broker.kafka_properties import outsider
from ucci_runtime.broker.kafka_records import source_of
from ucci_runtime.broker.records import Input, Place

#: Above what another transaction may hold these partitions back: its time-out, and the coordinator's next look.
_BUDGET_S = 60.0

_POLL_S = 0.5
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})  # noqa: SLF001 client-side codes


def visible(properties: Mapping[str, Any], places: Collection[Place], closing: Event) -> frozenset[Place]:
    """Return the places whose records a reader of committed records gets; blocks up to a minute.

    ``places``: of records that were acknowledged. Raises BrokerError when a partition was not read up to its last place
    in time, or may not be read.
    """
    wanted = defaultdict[Input, list[int]](list)
    for source, offset in places:
        wanted[source].append(offset)
    own = {"enable.partition.eof": True, "auto.offset.reset": "error"}
    consumer = Consumer(outsider(properties) | own)
    try:
        consumer.assign([TopicPartition(*source, min(offsets)) for source, offsets in wanted.items()])
        return frozenset(_seen(consumer, {source: max(offsets) for source, offsets in wanted.items()}, closing)) & set(
            places
        )
    finally:
        consumer.close()


def _seen(consumer: Consumer, last: dict[Input, int], closing: Event) -> set[Place]:
    """Read each partition beyond its last place, and return what came."""
    found, deadline_s = set[Place](), time.monotonic() + _BUDGET_S
    while last:
        if closing.is_set() or time.monotonic() > deadline_s:
            raise BrokerUnreachable(f"the records of {', '.join(map(str, last))} could not be read")
        message = consumer.poll(_POLL_S)
        if message is not None:
            _take(message, last, found)
    return found


def _take(message: Message, last: dict[Input, int], found: set[Place]) -> None:
    error = message.error()
    if error is not None and error.code() not in {KafkaError._PARTITION_EOF, *_GONE}:  # noqa: SLF001 a client-side code
        if is_fatal(error) or not error.retriable():
            raise translate(error, Side.CONSUMER)
        return
    source, offset = source_of(message), cast(int, message.offset())
    if error is None:
        found.add((source, offset))
        offset += 1
    # An end that is reported before the last place is that of a transaction which is open in front of it.
    if offset > last.get(source, offset) or (error is not None and error.code() in _GONE):
        last.pop(source, None)
