"""The only group consumer: records and ends of partitions out; rebalances handed to the assignee.

Where to read from is the assignee's to say, since it knows what it has stored; nothing is committed here. The group's
offsets are asked with isolation "read committed", which waits for a former owner's transaction to end. A member that
ends in good order leaves the group where another one can take its partitions over.

A place that the log no longer has means its beginning; what the group had not taken until then is counted as lost.
Where the group is beyond the log's end, it is another log, and nothing more is read.

When the broker stands still for longer than the session, the client drops its member id and joins again. The broker
wakes and serves both: the request that waited in its buffers and the one that followed. It then fences the member that
the client takes itself for. The same happens where the thread did not poll because it was committing. No other process
is behind such a fence, and the client takes no further calls: the reader rejoins the group with another client,
once. Another process would fence that one again.

It also rejoins where the group's offsets stay unanswered, and where the broker answers others
(:mod:`ucci_runtime.broker.contact`).

The group knows the first topic alone. Kafka's assignors share topics out one by one, so members would not be given the
same numbers of topics whose partition counts differ, as while partitions are being added. So each member derives the
partitions of the other topics from those that it owns of the first (:class:`~ucci_runtime.broker.ports.GroupReader`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import cast

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ucci_runtime.broker.contact import Standstill
from ucci_runtime.broker.errors import AccessDenied, BrokerError, Fenced, OffsetsBeyondLog, without_frames
from ucci_runtime.broker.kafka_errors import Side, is_fatal, kafka_error, reports, translate
from ucci_runtime.broker.kafka_lifeline import (
    GroupPeers,
    Lifeline,
    ask_group_offsets,
    ask_partition_counts,
    partition_counts,
)
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.kafka_records import record_of, source_of
from ucci_runtime.broker.kafka_watched_calls import close_or_leave
from ucci_runtime.broker.ports import LEAVE_S, MAX_POLLED, Assignee, sources_of_owner
from ucci_runtime.broker.records import Count, EndReached, Input, Lag, Record

_log = structlog.get_logger()

_LEAVE_POLL_S = 0.02
_ASK_TIMEOUT_S = 5.0
_WAKE_ASK_S = 1.0
#: How often the topics that the group does not know are asked for new partitions, and how long the answer may take.
_GROWTH_INTERVAL_S = 3.0
_GROWTH_ASK_S = 0.5
_MISPLACED = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})  # noqa: SLF001 client-side codes
_MILLISECONDS = 1_000.0


class KafkaGroupReader:
    """A consumer group's member; see :class:`~ucci_runtime.broker.ports.GroupReader`. Used by one thread.

    ``peers``: the group's other members. As this member ends, they would take its partitions over.
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
        peers: GroupPeers,
    ) -> None:
        self._name = name
        self._topics = list(topics)
        self._count = count
        self._closing = closing
        self._peers = peers
        self._properties = properties
        self._on_final = on_final
        self._session_s = float(properties["session.timeout.ms"]) / _MILLISECONDS
        self._session_lost_s = -math.inf
        """When the client last gave its own session up, since the group did not answer."""
        self._standstill = Standstill()
        self._lifeline = Lifeline(name, properties, is_member=True)
        self.contact = self._lifeline.contact
        self._unanswered: BrokerError | None = None
        self._consumer = self._member()
        self._assignee: Assignee | None = None
        self._owned: list[Input] = []
        """The partitions of the first topic that the group has given to this member."""
        self._assigned: list[Input] = []
        """Those, and the partitions of the other topics that go with them."""
        self._partition_counts: dict[str, int] = {}
        """Of every topic where there are several, at the latest assignment."""
        self._growth_due_s = math.inf
        self._positions: dict[Input, int] = {}
        self._taken_ms: dict[Input, int] = {}
        self._taken: dict[Input, int] = {}
        """Up to which offset the group has taken a partition, as far as is known."""
        self._paused: set[Input] = set()
        self._misplaced: dict[Input, int] = {}
        """Partitions whose log has not the place that was asked for, with the client's code."""
        self._rebalances = 0
        self._is_leaving = False
        self._is_ended = False

    @property
    def partition_count(self) -> int:
        """See the port."""
        return self._partition_counts.get(self._topics[0], 0)

    def has_successors(self) -> bool:
        """See the port."""
        return self._peers.exist()

    def subscribe(self, assignee: Assignee) -> None:
        """Join the group; partitions are handed over from within :meth:`poll`."""
        self._assignee = assignee
        self._join()

    def poll(self, timeout_s: float, most: int = MAX_POLLED) -> Sequence[Record | EndReached]:
        """Return what has come; see the port. Raises Fenced, AccessDenied, OffsetsBeyondLog or CutOff."""
        if self._misplaced:
            self._find_places()
        if self._lifeline.is_cut(self._consumer, next(iter(self._assigned), Input(self._topics[0], 0))):
            self._join_anew("the broker answers others, and not this client")
        self._wake()
        self._find_growth()
        first = None if self._unanswered is not None else self._consumer.poll(timeout_s)
        if self._unanswered is not None:
            self._join_anew(str(self._unanswered))
            return []
        if first is None:
            self._standstill.drained(time.monotonic())
            return []
        rebalances, room = self._rebalances, min(most, MAX_POLLED) - 1
        messages = [first, *self._consumer.consume(room, 0)] if room > 0 else [first]
        if len(messages) <= room:
            self._standstill.drained(time.monotonic())
        if any(self._is_fenced_by_itself(message) for message in messages):
            self._join_anew("fenced after the client gave its own session up")
            return []
        if self._rebalances != rebalances:
            # Messages of the assignment before could stand among them: read all of the new one again.
            self.rewind()
            return []
        return self._items(messages)

    def group(self) -> object:
        """Return the group's metadata, by which the broker fences a former owner."""
        return self._consumer.consumer_group_metadata()

    def rewind(self) -> None:
        """Ask the group's offsets again and have the present partitions reassigned; blocks up to a minute.

        Where the broker does not answer, the next :meth:`poll` gives all partitions up and rejoins the group.
        """
        if self._owned:
            self._assign()

    def pause(self, sources: Collection[Input]) -> None:
        """Deliver nothing of these partitions until further notice."""
        self._paused.update(sources)
        self._consumer.pause(_partitions(sources))

    def resume(self, sources: Collection[Input]) -> None:
        """Deliver these partitions again."""
        self._paused.difference_update(sources)
        for source in sources:
            self._standstill.heard(source, time.monotonic())
        self._consumer.resume(_partitions(sources))

    def read_from(self, starts: Mapping[Input, int]) -> None:
        """Read all partitions from these offsets."""
        partitions = [TopicPartition(source.topic, source.partition, offset) for source, offset in starts.items()]
        self._positions = dict(starts)
        self._paused, self._misplaced = set(), {}
        self._standstill.assigned(starts, time.monotonic())
        self._consumer.assign(partitions)
        if partitions:
            # A partition that was paused before an assignment stays silent after it, unless it is resumed.
            self._consumer.resume(partitions)

    def lag(self, reached: Mapping[Input, int] | None = None) -> Mapping[Input, Lag]:
        """Return how far each partition is behind its end, as last heard; never blocks."""
        behind, now_ms = {}, time.time() * _MILLISECONDS
        places = self._positions if reached is None else reached
        for source in self._assigned:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*source), cached=True)
            if high >= 0:
                left = max(high - max(places.get(source, 0), low), 0)
                taken_ms = now_ms if not left else self._taken_ms.get(source)
                behind[source] = Lag(left, None if taken_ms is None else max(now_ms - taken_ms, 0.0) / _MILLISECONDS)
        return behind

    def close(self) -> None:
        """Give up the partitions; see the port. Blocks up to some seconds."""
        self._is_leaving = True
        self.contact.closed()
        if self._assignee is not None and self.has_successors():
            self._leave()
        if self._assigned:
            self._give_up(self._assigned)
        self._close_client()

    def _close_client(self) -> None:
        """End the client; what it still reports of its partitions concerns nobody.

        A rebalance that calls back from within the client's close wants an answer that may wait for ever (librdkafka
        issue 4041). One that ended while nobody polled, as while the broker was asked who is cut off, is answered
        before. For one that ends at this very moment another thread waits, and a wait that freezes the whole process
        ends it (:func:`~ucci_runtime.broker.kafka_watched_calls.close_or_leave`); nothing is lost, since nothing is
        open then.
        """
        self._is_ended = True
        close_or_leave(self._name, self._end_client)

    def _end_client(self) -> None:
        # One that has ended already has nothing to answer.
        with suppress(RuntimeError):
            self._consumer.consume(MAX_POLLED, 0)
        self._consumer.close()

    def _leave(self) -> None:
        """Leave the group, which the client does for a static member when it unsubscribes, and never in its close.

        While a rebalance is under way the client holds its departure back until the slowest member has joined again. A
        client that closed before would keep its place, and nobody its partitions until the session ends.
        """
        deadline_s = time.monotonic() + LEAVE_S
        try:
            self._consumer.unsubscribe()
            # The partitions are given up from within poll; then the client sends its departure and forgets its id.
            while self._consumer.memberid() and time.monotonic() < deadline_s:
                self._consumer.poll(_LEAVE_POLL_S)
        except KafkaException as error:
            _log.warning("the group was not left", client=self._name, error=str(kafka_error(error)))

    def _member(self) -> Consumer:
        made = reports(self._name, self._count, self._report_final, on_session_lost=self._note_session_lost)
        return Consumer(self._properties | made)

    def _join(self) -> None:
        self._consumer.subscribe(
            self._topics[:1], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _report_final(self, error: BrokerError) -> None:
        if not (isinstance(error, Fenced) and self._has_lost_its_session):
            self._on_final(error)

    def _note_session_lost(self) -> None:
        self._session_lost_s = time.monotonic()

    @property
    def _has_lost_its_session(self) -> bool:
        """Whether a fence that comes now may be the answer to a join of our own."""
        return time.monotonic() - self._session_lost_s <= 2 * self._session_s

    def _is_fenced_by_itself(self, message: Message) -> bool:
        error = message.error()
        if error is None or not self._has_lost_its_session:
            return False
        return isinstance(translate(error, Side.CONSUMER), Fenced)

    def _join_anew(self, reason: str) -> None:
        """Replace the client by one that asks for its partitions from the beginning."""
        assert self._assignee is not None
        self._session_lost_s = -math.inf
        self._unanswered = None
        self._count("client_errors", client=self._name, code="JOINED_ANEW")
        _log.warning("joining the group anew", client=self._name, reason=reason)
        if self._assigned:
            self._rebalanced("lost")
            self._assignee.lost()
        self._close_client()
        self._is_ended = False
        self._consumer = self._member()
        self._join()

    def _items(self, messages: Iterable[Message]) -> list[Record | EndReached]:
        """Make records and ends of messages; of each partition, note how far they go once, by the last record."""
        items: list[Record | EndReached] = []
        last: dict[Input, Record] = {}
        for message in messages:
            error = message.error()
            if error is None:
                record = record_of(message)
                last[record.source] = record
                items.append(record)
                continue
            self._note_taken(last)
            last.clear()
            if (end := self._end(message, error)) is not None:
                items.append(end)
        self._note_taken(last)
        return items

    def _note_taken(self, last: Mapping[Input, Record]) -> None:
        now_s = time.monotonic()
        if last:
            self.contact.heard(now_s)
        for source, record in last.items():
            self._standstill.heard(source, now_s)
            self._positions[source] = record.offset + 1
            self._taken[source] = max(record.offset + 1, self._taken.get(source, 0))
            if record.timestamp_ms > 0:
                self._taken_ms[source] = record.timestamp_ms

    def _end(self, message: Message, error: KafkaError) -> EndReached | None:
        """Return the end that a message reports in place of a record; None for what is only noted."""
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a client-side code
            source = source_of(message)
            self._standstill.heard(source, time.monotonic())
            self.contact.heard(time.monotonic())
            self._positions[source] = cast(int, message.offset())
            return EndReached(source, self._positions[source])
        if error.code() in _MISPLACED:
            self._misplaced[source_of(message)] = error.code()
            return None
        found = translate(error, Side.CONSUMER)
        if isinstance(found, Fenced | AccessDenied) or is_fatal(error):
            raise found
        self._count("client_errors", client=self._name, code=error.name())
        level = _log.info if error.code() == KafkaError._MAX_POLL_EXCEEDED else _log.warning  # noqa: SLF001 a client-side code
        level("consumer", client=self._name, code=error.name(), error=error.str())
        return None

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_ended:
            # A rebalance that ends while the client closes: it answers no question any more, and takes nothing over.
            _consumer.unassign()
            return
        if self._is_leaving:
            # Takes nothing over. The client counts only an assignment as an answer, and leaves once it has one.
            _consumer.assign([])
            return
        self._rebalanced("assigned")
        self.contact.assigned(time.monotonic())
        self._owned = self._assigned = [Input(tp.topic, tp.partition) for tp in partitions]
        self._assign()
        if self._assigned or not self._owned:
            _log.info("assigned", client=self._name, partitions=_numbers(partitions))

    def _assign(self) -> None:
        """Ask which partitions go with those owned, and the group's offsets, and hand all of them over."""
        assert self._assignee is not None
        if len(self._topics) > 1 and self._peers.read(self._topics[1:]):
            self._await_former_release()
            return
        try:
            if len(self._topics) > 1 and self._owned:
                counts = ask_partition_counts(self._properties, self._topics, client=self._name, closing=self._closing)
                self._partition_counts = counts
                self._assigned = sources_of_owner(self._owned, counts)
            committed = ask_group_offsets(self._properties, self._assigned, client=self._name, closing=self._closing)
        except (Fenced, AccessDenied):
            raise
        except BrokerError as error:
            if self._closing.is_set():
                raise
            self._unanswered = without_frames(error)
            return
        self._taken = {source: found.offset for source, found in committed.items() if found is not None}
        self._growth_due_s = time.monotonic() + _GROWTH_INTERVAL_S
        self.read_from(self._assignee.assigned(committed))

    def _await_former_release(self) -> None:
        """Take nothing while a member of a former release has partitions: it would take the same records.

        Once it leaves, or its session ends, the group assigns anew.
        """
        assert self._assignee is not None
        _log.error(
            "a process of a former release reads these topics in the same group; waiting until it has ended",
            client=self._name,
            topics=self._topics[1:],
        )
        self._assigned = []
        self._growth_due_s = math.inf
        self._assignee.lost()
        self.read_from({})

    def _find_growth(self) -> None:
        """Have all partitions reassigned where one of the other topics has more of them than before."""
        others = self._topics[1:]
        if not (others and self._owned) or time.monotonic() < self._growth_due_s:
            return
        self._growth_due_s = time.monotonic() + _GROWTH_INTERVAL_S
        try:
            counts = partition_counts(self._consumer, others, _GROWTH_ASK_S)
        except KafkaException:
            return  # a broker that does not answer now is asked again as much later
        if any(count > self._partition_counts[topic] for topic, count in counts.items()):
            _log.info("partitions were added", client=self._name, partitions=counts)
            self.rewind()

    def _wake(self) -> None:
        """Reassign all partitions where one delivers nothing though its log goes on."""
        now_s = time.monotonic()
        self._standstill.polled(now_s)
        if not self._assigned:
            return
        for source in self._standstill.suspects(self._paused):
            self._standstill.heard(source, now_s)
            try:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*source), _WAKE_ASK_S, cached=False)
            except KafkaException:
                return  # a broker that does not answer now is asked again after as long a silence
            position = self._positions.get(source, end)
            if position < end:
                self._count("client_errors", client=self._name, code="STOOD_STILL")
                _log.warning("a partition stood still; reading on", **source._asdict(), position=position, end=end)
                self._read_on(self._positions)
                return

    def _find_places(self) -> None:
        """Begin misplaced partitions at the beginning of their logs; later, where the broker does not answer."""
        starts = dict(self._positions)
        for source, code in self._misplaced.items():
            try:
                low, end = self._consumer.get_watermark_offsets(TopicPartition(*source), _ASK_TIMEOUT_S, cached=False)
            except KafkaException as error:
                _log.warning("the ends of a log are not known", client=self._name, error=str(kafka_error(error)))
                return
            taken = self._taken.get(source)
            if taken is not None and (taken > end or code == KafkaError._LOG_TRUNCATION):  # noqa: SLF001 a client-side code
                raise OffsetsBeyondLog(str(self._properties["group.id"]), *source, taken, end)
            if taken is not None and taken < low:
                self._note_lost(source, taken, low)
            starts[source] = low
        self._read_on(starts)

    def _read_on(self, starts: Mapping[Input, int]) -> None:
        """Reassign all partitions from these offsets; what was paused stays so."""
        paused = self._paused
        self.read_from(starts)
        self.pause(paused & starts.keys())

    def _note_lost(self, source: Input, taken: int, low: int) -> None:
        self._count("records_lost", low - taken)
        _log.error(
            "the topic has deleted records before the group took them; raise its retention, or run more instances",
            topic=source.topic,
            partition=source.partition,
            records=low - taken,
            first=taken,
            last=low - 1,
        )

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # What was assigned to a member that leaves was never handed over.
        if not self._is_ended and (self._assigned or not self._is_leaving):
            self._give_up([Input(tp.topic, tp.partition) for tp in partitions])

    def _give_up(self, sources: Sequence[Input]) -> None:
        assert self._assignee is not None
        self._rebalanced("revoked")
        self._assignee.revoked()
        _log.info("revoked", client=self._name, partitions=sorted({source.partition for source in sources}))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self._assignee is not None
        if self._is_ended:
            return
        self._rebalanced("lost")
        self._assignee.lost()
        _log.warning("lost", client=self._name, partitions=_numbers(partitions))

    def _rebalanced(self, kind: str) -> None:
        self._rebalances += 1
        if kind != "assigned":
            # Dropped first: a commit that fails in a revocation must not have the old partitions assigned again.
            self._owned = []
            self._assigned = []
            self._misplaced = {}
            self.contact.joining(time.monotonic())
        self._count("rebalances", kind=kind)


def _partitions(sources: Iterable[Input]) -> list[TopicPartition]:
    return [TopicPartition(source.topic, source.partition) for source in sources]


def _numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted({tp.partition for tp in partitions})
