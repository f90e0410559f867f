"""Topics read in no group, by every instance for itself: whole ones from their beginning, or the ends of long ones.

"Caught up" means that the end as of the question was reached. Nothing is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ucci_runtime.broker.errors import AccessDenied, BrokerError, BrokerUnreachable
from ucci_runtime.broker.kafka_errors import Side, is_fatal, kafka_error, reports, translate
from ucci_runtime.broker.kafka_lifeline import Lifeline
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.kafka_records import record_of, source_of
from ucci_runtime.broker.kafka_watched_calls import close_or_leave
from ucci_runtime.broker.records import Count, Input, Record

_log = structlog.get_logger()

MAX_POLLED = 1_000
_ASK_TIMEOUT_S = 5.0
_TAIL_ASK_TIMEOUT_S = 2.0
_TAIL_RETRY_S = 5.0
_POLL_S = 0.05
_RETRY_WAIT_S = 0.1
#: Attempts between two lines that say that it still does not work.
_PATIENCE = 50
_BUDGET_S = 240.0
_ENDED_AT_SHUTDOWN = "closed while a topic was read to its end"


class _Reader:
    """A consumer that is in no group, and the places that it has come to; used by one thread."""

    def __init__(
        self,
        name: str,
        positions: dict[Input, int],
        properties: Properties,
        count: Count,
        on_final: Callable[[BrokerError], None],
    ) -> None:
        self._name = name
        self._count = count
        self._positions = positions
        self._properties = properties | reports(name, count, on_final)
        self._lifeline = Lifeline(name, properties)
        self.contact = self._lifeline.contact
        self._consumer = Consumer(self._properties)
        self._read_on()
        self._reached: set[Input] = set()

    @property
    def has_reached_ends(self) -> bool:
        """Whether every partition was read to its end once."""
        return 0 < len(self._positions) == len(self._reached)

    def poll(self, timeout_s: float) -> Iterator[Record]:
        """Yield what has come; blocks up to ``timeout_s`` while nothing has. Raises AccessDenied or CutOff."""
        self._keep_contact()
        first = self._consumer.poll(timeout_s) if self._is_placed() else None
        if first is None:
            return
        for message in [first, *self._consumer.consume(MAX_POLLED - 1, 0)]:
            record = self._record(message)
            if record is not None:
                yield record

    def close(self) -> None:
        """Close the consumer."""
        self.contact.closed()
        self._consumer.close()

    def _is_placed(self) -> bool:
        """Return whether it is known where to read."""
        return bool(self._positions)

    def _read_on(self) -> None:
        self._consumer.assign([TopicPartition(*source, position) for source, position in self._positions.items()])

    def _any_source(self) -> Input:
        """Return a partition to ask the broker about."""
        return next(iter(self._positions))

    def _keep_contact(self) -> None:
        """Replace the client where the broker answers others, and not this one."""
        if self._lifeline.is_cut(self._consumer, self._any_source()):
            _log.warning("the broker answers others, and not this client; recreating it", client=self._name)
            close_or_leave(self._name, self._consumer.close)
            self._consumer = Consumer(self._properties)
            self._read_on()

    def _record(self, message: Message) -> Record | None:
        error = message.error()
        if error is None:
            record = record_of(message)
            self.contact.heard(time.monotonic())
            self._positions[record.source] = record.offset + 1
            return record
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a client-side code
            source = source_of(message)
            self.contact.heard(time.monotonic())
            self._positions[source] = cast(int, message.offset())
            self._reached.add(source)
        else:
            self._report(error)
        return None

    def _report(self, error: KafkaError) -> None:
        """Count an error that passes by waiting, raise any other."""
        reason = translate(error, Side.CONSUMER)
        if isinstance(reason, AccessDenied) or is_fatal(error):
            raise reason
        self._count("client_errors", client=self._name, code=error.name())
        _log.warning("reader", client=self._name, code=error.name(), error=error.str())


class KafkaTopicReader(_Reader):
    """A consumer of whole topics; see :class:`~ucci_runtime.broker.ports.TopicReader`. Used by one thread.

    ``partitions``: of each topic; compacted ones have one, so that their records are in one order.
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
        # From offset 0 rather than "the beginning": that needs no question to the broker first.
        starts = {Input(topic, partition): 0 for topic in topics for partition in range(partitions)}
        super().__init__(name, starts, properties, count, on_final)
        self._closing = closing

    def up_to_end(self) -> Iterator[Record]:
        """Yield all records up to the ends as of now; see the port."""
        deadline_s = time.monotonic() + _BUDGET_S
        ends = {source: self._end(source, deadline_s) for source in self._positions}
        while any(self._positions[source] < end for source, end in ends.items()):
            self._check(deadline_s)
            yield from self.poll(_POLL_S)

    def _end(self, source: Input, deadline_s: float) -> int:
        attempts = 0
        while True:
            self._keep_contact()
            try:
                # Asked of the broker with isolation "read committed", this is the end of what is committed.
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*source), _ASK_TIMEOUT_S, cached=False)
            except KafkaException as error:
                reason = translate(kafka_error(error), Side.CONSUMER)
                if isinstance(reason, AccessDenied):
                    raise reason from None
                if attempts % _PATIENCE == 0:
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


class KafkaTailReader(_Reader):
    """A consumer of the end of one topic, its latest records and then what comes; used by one thread.

    For what is shown to people: a partition added later is read after a restart. ``most``: records of the past, over
    all partitions. A poll blocks for some seconds until the topic's ends are known.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        properties: Properties,
        count: Count,
        *,
        most: int,
        on_final: Callable[[BrokerError], None],
    ) -> None:
        super().__init__(name, {}, properties, count, on_final)
        self._topic = topic
        self._most = most
        self._due_s = 0.0

    def up_to_end(self) -> Iterator[Record]:
        """Yield records until every partition was read to its end once; blocks."""
        while not self.has_reached_ends:
            yield from self.poll(_POLL_S)

    def _any_source(self) -> Input:
        return next(iter(self._positions), Input(self._topic, 0))

    def _is_placed(self) -> bool:
        """Return whether the topic's ends are known; asks for them, a while after the broker did not answer."""
        if not self._positions and time.monotonic() >= self._due_s:
            try:
                self._positions = self._starts()
            except KafkaException as error:
                self._due_s = time.monotonic() + _TAIL_RETRY_S
                self._report(kafka_error(error))
            else:
                self._read_on()
        return bool(self._positions)

    def _starts(self) -> dict[Input, int]:
        """Return the places so many records before the ends."""
        found = self._consumer.list_topics(self._topic, _TAIL_ASK_TIMEOUT_S).topics[self._topic]
        # A topic that we may not describe would look like one that has no partitions.
        if found.error is not None:
            raise KafkaException(found.error)
        each = max(self._most // max(len(found.partitions), 1), 1)
        starts = {}
        for partition in found.partitions:
            place = TopicPartition(self._topic, partition)
            low, high = self._consumer.get_watermark_offsets(place, _TAIL_ASK_TIMEOUT_S, cached=False)
            starts[Input(self._topic, partition)] = max(low, high - each)
        return starts
