"""Whole topics, read from their beginning and then on, by every instance for itself, in no group.

Records flow out in order; "caught up" means that the end as of the question was reached. Nothing is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ucci_runtime.broker.errors import AccessDenied, BrokerError, BrokerUnreachable
from ucci_runtime.broker.kafka_client_reports import reports
from ucci_runtime.broker.kafka_errors import Side, is_fatal, kafka_error, translate
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.records import Count, Input

_log = structlog.get_logger()

MAX_POLLED = 1_000
_ASK_TIMEOUT_S = 5.0
_POLL_S = 0.05
_RETRY_WAIT_S = 0.1
_PATIENCE = 50
"""Attempts after which a second line says that it still does not work."""
_BUDGET_S = 240.0
_ENDED_AT_SHUTDOWN = "closed while a topic was read to its end"


class CompactedReader:
    """A consumer of whole topics; used by one thread.

    Parameters
    ----------
    name : str
        Of the client in logs and metrics.
    topics : sequence of str
    properties : mapping
        See :func:`~ucci_runtime.broker.kafka_properties.reader_properties`.
    partitions : int
        Of each topic; compacted ones have one, so that their records are in one order.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        properties: Properties,
        count: Count,
        *,
        on_final: Callable[[BrokerError], None],
        closing: Event,
        partitions: int = 1,
    ) -> None:
        self._name = name
        self._count = count
        self._closing = closing
        self._consumer = Consumer(properties | reports(name, count, on_final))
        self._positions = {Input(topic, partition): 0 for topic in topics for partition in range(partitions)}
        # From offset 0 rather than "the beginning": that needs no question to the broker first.
        self._consumer.assign([TopicPartition(*source, 0) for source in self._positions])
        self._reached: set[Input] = set()

    @property
    def has_reached_ends(self) -> bool:
        """Whether every topic was read to its end once."""
        return len(self._reached) == len(self._positions)

    def poll(self, timeout_s: float) -> Iterator[Message]:
        """Yield what has come; blocks up to ``timeout_s`` while nothing has.

        Raises
        ------
        AccessDenied
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        for message in [first, *self._consumer.consume(MAX_POLLED - 1, 0)]:
            if self._is_record(message):
                yield message

    def read_to_end(self) -> list[Message]:
        """Return all records up to the ends as of now; blocks, with patience for a broker on its way back.

        Raises
        ------
        AccessDenied, BrokerUnreachable
        """
        return list(self.up_to_end())

    def up_to_end(self) -> Iterator[Message]:
        """Yield all records up to the ends as of now, as :meth:`read_to_end`, without holding them."""
        deadline_s = time.monotonic() + _BUDGET_S
        ends = {source: self._end(source, deadline_s) for source in self._positions}
        while any(self._positions[source] < end for source, end in ends.items()):
            self._check(deadline_s)
            yield from self.poll(_POLL_S)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _end(self, source: Input, deadline_s: float) -> int:
        attempts = 0
        while True:
            try:
                # Asked of the broker with isolation "read committed", this is the end of what is committed.
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*source), _ASK_TIMEOUT_S, cached=False)
            except KafkaException as error:
                reason = translate(kafka_error(error), Side.CONSUMER)
                if isinstance(reason, AccessDenied):
                    raise reason from None
                if attempts in {0, _PATIENCE}:
                    _log.warning("end of topic not read; trying again", topic=source.topic, error=str(reason))
                attempts += 1
                self._check(deadline_s)
                self._closing.wait(_RETRY_WAIT_S)
            else:
                return int(end)

    def _check(self, deadline_s: float) -> None:
        if self._closing.is_set():
            raise BrokerUnreachable(_ENDED_AT_SHUTDOWN)
        if time.monotonic() > deadline_s:
            raise BrokerUnreachable(f"{', '.join(s.topic for s in self._positions)}: not read within {_BUDGET_S:g} s")

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        source = Input(cast(str, message.topic()), cast(int, message.partition()))
        if error is None:
            self._positions[source] = cast(int, message.offset()) + 1
            return True
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a client-side code
            self._positions[source] = cast(int, message.offset())
            self._reached.add(source)
            return False
        reason = translate(error, Side.CONSUMER)
        if isinstance(reason, AccessDenied) or is_fatal(error):
            raise reason
        self._count("client_errors", client=self._name, code=error.name())
        _log.warning("reader", client=self._name, code=error.name(), error=error.str())
        return False
