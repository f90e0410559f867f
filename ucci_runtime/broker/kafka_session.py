"""The only transaction loop on Kafka: outputs and offsets in one go, and how it ended.

A failed transaction is aborted, or its producer replaced. A producer is replaced where nobody saw how its transaction
ended; starting the next one ends what is left open, and then the group's offsets show whether the transaction took
place. They show it only because records and offsets stand or fall together. That holds only while no request of an
earlier transaction can arrive in this one: a producer that has sent a request which was never answered is replaced
before the next transaction begins (:mod:`ucci_runtime.broker.transaction_states` says why, and what remains). And a
broker may break it: so the records are read again too, and what a transaction that was half committed lacks is written
after it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from threading import Event
from typing import Any, NamedTuple, cast

import structlog
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ucci_runtime.broker import transaction_states as states
from ucci_runtime.broker.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    BrokerUnreachable,
    Fenced,
    MetadataTooLong,
    NeverAccepted,
    TopicShrank,
    TopicsUnusable,
    without_frames,
)
from ucci_runtime.broker.kafka_errors import Side, is_fatal, translate
from ucci_runtime.broker.kafka_lifeline import ask_group_offsets
from ucci_runtime.broker.kafka_producer import TransactionalProducer
from ucci_runtime.broker.kafka_properties import Properties, outsider
from ucci_runtime.broker.kafka_records import source_of
from ucci_runtime.broker.ports import Aborted, CheckedTopics, CommitEnd, Committed, GroupOffsets, Unknown
from ucci_runtime.broker.records import Count, Input, OffsetCommit, OutputRecord, Place

#: Above what another transaction may hold these partitions back: its time-out, and the coordinator's next look.
_BUDGET_S = 60.0

_POLL_S = 0.5
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})  # noqa: SLF001 client-side codes


def visible(properties: Mapping[str, Any], places: Collection[Place], closing: Event) -> frozenset[Place]:
    """Return the places whose records a reader of committed records gets; blocks up to a minute.

    ``places``: of records that were acknowledged. Raises BrokerError when a partition was not read up to its last place
    in time, or may not be read.
    """
    # Of a partition that comes several times the latest entry stays: its lowest place, and its highest.
    first, last = dict(sorted(places, reverse=True)), dict(sorted(places))
    reading = outsider(properties) | {"enable.partition.eof": True, "auto.offset.reset": "error"}
    with contextlib.closing(Consumer(reading)) as consumer:
        consumer.assign([TopicPartition(*source, offset) for source, offset in first.items()])
        return frozenset(_seen(consumer, last, closing).intersection(places))


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


_log = structlog.get_logger()

#: First and longest wait after a transaction that failed.
BACKOFF_S = (0.02, 2.0)

#: After so many failures in a row the next producer's calls are waited for longer.
PATIENT_AFTER = 2

#: How often the rest of a transaction that was half committed is tried; a group that has moved on refuses each.
MENDS = 5


class SessionClients(NamedTuple):
    """What a session makes its clients of."""

    #: Returns the producer's properties for the largest record that every output topic takes.
    transactional: Callable[[int], Properties]
    #: Properties of the consumer that asks for the group's offsets.
    offsets: Properties
    #: Checks the topics again, and with them the largest record; blocks.
    check: Callable[[], CheckedTopics]


class _Sent(NamedTuple):
    """What a transaction is to consist of."""

    written: tuple[OutputRecord, ...]
    offsets: Mapping[Input, OffsetCommit]
    group: object


class KafkaTransactionSession:
    """A transactional id; see :class:`~ucci_runtime.broker.ports.TransactionSession`. Used by one thread.

    ``max_record_bytes``: largest record that every output topic takes, as of now.
    """

    def __init__(self, name: str, clients: SessionClients, max_record_bytes: int, count: Count, closing: Event) -> None:
        self._name = name
        self._clients = clients
        self._max_record_bytes = max_record_bytes
        self._count = count
        self._closing = closing
        self._failures = 0
        self.busy_since_s: float | None = None
        """When the call in progress began, on the monotonic clock."""
        self._transaction = states.Transaction()
        self._abandoned: list[TransactionalProducer] = []
        """Those with a call that has not returned."""

        self._producer: TransactionalProducer | None = None

    @property
    def is_started(self) -> bool:
        """Whether transactions can be made."""
        return self._transaction.state is not states.State.STARTING

    @property
    def hangs(self) -> bool:
        """Whether a call may never return: the process must then end without clean-up."""
        return any(producer.is_stuck for producer in self._abandoned)

    def start(self) -> None:
        """Fence the process that ran under this id before, again until that works or this one closes; see the port."""
        with self._busy():
            while not self._closing.is_set():
                if self._has_started():
                    return

    def commit(
        self, records: Sequence[OutputRecord], offsets: Mapping[Input, OffsetCommit], group: object
    ) -> CommitEnd:
        """Produce the records and commit them with the offsets, in one go; see the port."""
        with self._busy():
            if not self.is_started:
                self.start()
            if self._producer is None or not self.is_started:
                return Aborted("closed before the producer started")
            began_s = time.monotonic()
            written: tuple[OutputRecord, ...] = ()
            try:
                self._producer.begin()
                written = tuple(self._write(self._producer, record) for record in records)
                self._producer.commit(offsets, group)
            except AccessDenied:
                raise
            except BrokerError as error:
                failure = without_frames(error)
            else:
                self._failures = 0
                self._count("transactions", outcome="committed")
                self._count("transaction_seconds", time.monotonic() - began_s)
                self._raise_epoch_if_unanswered(self._producer)
                return Committed(written)
            sent = _Sent(written, offsets, group)
            if isinstance(failure, AbortTransaction):
                return self._abort(self._producer, failure, sent)
            return self._replace(self._producer, failure, sent)

    def serve(self) -> None:
        """Let the client report errors; never blocks."""
        if self._producer is not None:
            self._producer.serve()

    def close(self) -> None:
        """Let go of the producer; nothing is open between commits."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        before_s = self.busy_since_s
        self.busy_since_s = before_s or time.monotonic()
        try:
            yield
        finally:
            self.busy_since_s = before_s

    def _has_started(self) -> bool:
        """Make a producer in place of the one before, and return whether it started."""
        if self._producer is not None:
            self._count("producers_abandoned")
            self._abandoned = [one for one in (*self._abandoned, self._producer) if one.is_stuck]
            self.close()
        self._producer = TransactionalProducer(
            self._name,
            self._clients.transactional(self._max_record_bytes),
            self._transaction,
            is_patient=self._failures >= PATIENT_AFTER,
        )
        try:
            self._producer.start()
        except NeverAccepted as error:
            raise self._with_limit(error) from None
        except AccessDenied:
            raise
        except BrokerError as error:
            if isinstance(error, Fenced):
                self._forgive(error)
            else:
                self._transaction.advance(states.Event.ABANDONED)
            self._failed("the producer did not start; trying again", error)
            return False
        return True

    def _write(self, producer: TransactionalProducer, record: OutputRecord) -> OutputRecord:
        """Produce a record, or what it names to be written instead where it is too large."""
        while not producer.produce(record):
            if record.instead is None:
                raise TopicShrank(f"a record of {record.size_bytes} bytes for {record.topic} is too large")
            record = record.instead(self._max_record_bytes)
        return record

    def _abort(self, producer: TransactionalProducer, error: BrokerError, sent: _Sent) -> CommitEnd:
        """Abort, or replace the producer where that fails."""
        try:
            producer.abort()
        except AccessDenied:
            raise
        except BrokerError as second:
            failure = without_frames(second)
        else:
            self._count("transactions", outcome="aborted")
            self._failed("transaction aborted", error)
            self._raise_epoch_if_unanswered(producer)
            return Aborted(str(error), isinstance(error, MetadataTooLong))
        return self._replace(producer, failure, sent)

    def _raise_epoch_if_unanswered(self, producer: TransactionalProducer) -> None:
        """Replace the producer after a transaction of which a request may still arrive in the next one.

        At once, and not when that begins: by then another process may have taken this one's place, to be fenced by it.
        """
        if producer.has_unanswered:
            _log.info("a request was never answered; raising the producer's epoch", client=self._name)
            self._transaction.advance(states.Event.ABANDONED)
            self.start()

    def _replace(self, producer: TransactionalProducer, error: BrokerError, sent: _Sent) -> CommitEnd:
        """Replace the producer, then ask how the transaction ended."""
        was_committing = self._transaction.state is states.State.COMMITTING
        if isinstance(error, Fenced):
            self._forgive(error)
        self._transaction.advance(states.Event.ABANDONED)
        self._count("transactions", outcome="unknown")
        self._failed("producer replaced; asking the group's offsets how its transaction ended", error)
        if isinstance(error, TopicShrank):
            self._max_record_bytes = self._room()
        self.start()
        found = self._group_offsets(sent.offsets) if self.is_started else None
        if found is not None and was_committing and producer.acknowledged and self._has_mended(producer, sent, found):
            return Committed(sent.written)
        return Unknown(str(error), found)

    def _has_mended(self, ended: TransactionalProducer, sent: _Sent, found: GroupOffsets) -> bool:
        """Write what a transaction that was half committed lacks; return whether it was, and is whole now."""
        try:
            seen = visible(self._clients.offsets, [place for _, place in ended.acknowledged], self._closing)
        except BrokerError as error:
            _log.warning("records could not be read again; the offsets decide", client=self._name, error=str(error))
            return False
        is_taken = bool(sent.offsets) and found == sent.offsets
        missing = [record for record, place in ended.acknowledged if place not in seen]
        if not (missing if is_taken else seen):
            return False
        self._count("transactions", outcome="half_committed")
        _log.warning("a broker committed half a transaction", client=self._name, seen=len(seen), missing=len(missing))
        for _ in range(MENDS):
            end = self.commit(missing, {} if is_taken else sent.offsets, sent.group)
            if isinstance(end, Committed) or self._closing.is_set():
                return isinstance(end, Committed)
        return False

    def _group_offsets(self, sources: Collection[Input]) -> GroupOffsets | None:
        """Ask the group until it answers; None when closing comes first."""
        if not sources:
            return {}
        while True:
            try:
                return ask_group_offsets(self._clients.offsets, sources, client=self._name, closing=self._closing)
            except (AccessDenied, Fenced):
                raise
            except BrokerError as error:
                if self._closing.is_set():
                    return None
                self._failed("the group's offsets could not be read; trying again", error)

    def _forgive(self, fence: Fenced) -> None:
        if not self._transaction.forgive_fence():
            self._transaction.advance(states.Event.FENCED)
            raise fence

    def _with_limit(self, error: NeverAccepted) -> NeverAccepted:
        """Name the broker's limit too, where it tells."""
        with contextlib.suppress(BrokerError, TopicsUnusable):
            if (limit_ms := self._clients.check().max_transaction_ms) is not None:
                return NeverAccepted(f"{error}; transaction.max.timeout.ms is {limit_ms} there")
        return error

    def _room(self) -> int:
        """Read the topics' limits again; blocks for some seconds where a broker is away."""
        try:
            return self._clients.check().max_record_bytes
        except AccessDenied:
            raise
        except (BrokerError, TopicsUnusable) as error:
            _log.warning("the topics could not be checked again", client=self._name, error=str(error))
            return self._max_record_bytes

    def _failed(self, event: str, error: BrokerError) -> None:
        self._failures += 1
        _log.warning(event, client=self._name, error=str(error), in_a_row=self._failures)
        first_s, longest_s = BACKOFF_S
        self._closing.wait(min(first_s * 2 ** min(self._failures, 16), longest_s))
