"""The only transaction loop on Kafka: outputs and offsets in one go, and how it ended.

A failed transaction is aborted, or its producer replaced. A producer is replaced where nobody saw how its transaction
ended; starting the next one ends what is left open, and then the group's offsets say whether the transaction took
place. So no record is ever written twice in committed transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Event
from typing import NamedTuple

import structlog
from confluent_kafka import Consumer

from ucci_runtime.broker import transaction_states as states
from ucci_runtime.broker.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    Fenced,
    MetadataTooLong,
    RecreateProducer,
    TopicsUnusable,
    without_frames,
)
from ucci_runtime.broker.kafka_group_offsets import ask_group_offsets
from ucci_runtime.broker.kafka_producer import TransactionalProducer
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.ports import Aborted, CommitEnd, Committed, GroupOffsets, Unknown
from ucci_runtime.broker.records import Count, Input, OffsetCommit, OutputRecord

_log = structlog.get_logger()

BACKOFF_S = (0.02, 2.0)
"""First and longest wait after a transaction that failed."""


class SessionClients(NamedTuple):
    """What a session makes its clients of.

    Parameters
    ----------
    transactional : callable
        Returns the producer's properties for the largest record that every output topic takes.
    offsets : mapping
        Properties of the consumer that asks for the group's offsets.
    max_record_bytes : callable
        Asks the broker for the largest record again; blocks.
    """

    transactional: Callable[[int], Properties]
    offsets: Properties
    max_record_bytes: Callable[[], int]


class KafkaTransactionSession:
    """A transactional id; see :class:`~ucci_runtime.broker.ports.TransactionSession`. Used by one thread.

    Parameters
    ----------
    name : str
        Of its thread and clients in logs.
    clients : SessionClients
    max_record_bytes : int
        Largest record that every output topic takes, as of now.
    count : callable
    closing : threading.Event
        Ends waits between attempts.
    """

    def __init__(self, name: str, clients: SessionClients, max_record_bytes: int, count: Count, closing: Event) -> None:
        self._name = name
        self._clients = clients
        self._max_record_bytes = max_record_bytes
        self._count = count
        self._closing = closing
        self._failures = 0
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
        """Fence the process that ran under this id before, and end what it left open; again until it works or closes.

        Raises
        ------
        Fenced, AccessDenied
        """
        while not self._closing.is_set():
            self._leave()
            properties = self._clients.transactional(self._max_record_bytes)
            self._producer = TransactionalProducer(self._name, properties, self._transaction)
            try:
                self._producer.start()
            except AccessDenied:
                raise
            except Fenced as error:
                self._forgive(error)
                self._failed("the producer did not start; trying again", error)
            except BrokerError as error:
                self._transaction.advance(states.Event.ABANDONED)
                self._failed("the producer did not start; trying again", error)
            else:
                return

    def commit(
        self, records: Sequence[OutputRecord], offsets: Mapping[Input, OffsetCommit], group: object
    ) -> CommitEnd:
        """Produce the records and commit them with the offsets, in one go; blocks up to some 20 s.

        Raises
        ------
        Fenced, AccessDenied
        """
        if not self.is_started:
            self.start()
        if self._producer is None or not self.is_started:
            return Aborted("closed before the producer started")
        began_s = time.monotonic()
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
            return Committed(written)
        if isinstance(failure, AbortTransaction):
            return self._abort(self._producer, failure, offsets)
        return self._replace(failure, offsets)

    def serve(self) -> None:
        """Let the client report errors; never blocks."""
        if self._producer is not None:
            self._producer.serve()

    def close(self) -> None:
        """Let go of the producer; nothing is open between commits."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _write(self, producer: TransactionalProducer, record: OutputRecord) -> OutputRecord:
        """Produce a record, or what it names to be written instead where it is too large."""
        while not producer.produce(record):
            if record.instead is None:
                raise RecreateProducer(f"a record of {record.size_bytes} bytes for {record.topic} is too large")
            record = record.instead(self._max_record_bytes)
        return record

    def _abort(
        self, producer: TransactionalProducer, error: BrokerError, offsets: Mapping[Input, OffsetCommit]
    ) -> CommitEnd:
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
            return Aborted(str(error), isinstance(error, MetadataTooLong))
        return self._replace(failure, offsets)

    def _replace(self, error: BrokerError, offsets: Mapping[Input, OffsetCommit]) -> CommitEnd:
        """Replace the producer, then ask the group how the transaction ended."""
        if isinstance(error, Fenced):
            self._forgive(error)
        self._transaction.advance(states.Event.ABANDONED)
        self._count("transactions", outcome="unknown")
        self._failed("producer replaced; the group's offsets say how its transaction ended", error)
        self.start()
        return Unknown(str(error), self._group_offsets(offsets) if self.is_started else None)

    def _group_offsets(self, sources: Collection[Input]) -> GroupOffsets | None:
        """Ask the group until it answers; None when closing comes first."""
        if not sources:
            return {}
        consumer = Consumer(self._clients.offsets)
        try:
            while True:
                try:
                    return ask_group_offsets(consumer, sources, client=self._name, closing=self._closing)
                except (AccessDenied, Fenced):
                    raise
                except BrokerError as error:
                    if self._closing.is_set():
                        return None
                    self._failed("the group's offsets could not be read; trying again", error)
        finally:
            consumer.close()

    def _forgive(self, fence: Fenced) -> None:
        if not self._transaction.forgive_fence():
            self._transaction.advance(states.Event.FENCED)
            raise fence

    def _leave(self) -> None:
        if self._producer is not None:
            self._count("producers_abandoned")
            self._abandoned = [one for one in (*self._abandoned, self._producer) if one.is_stuck]
            self._producer.close()
            self._producer = None
            self._max_record_bytes = self._room()

    def _room(self) -> int:
        """Read the topics' limits again: a lowered one is a reason why a producer had to go."""
        try:
            return self._clients.max_record_bytes()
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
