"""One transactional producer and its calls: bounded in time, each failure turned into what to do next.

A batch flows in, one committed transaction flows out; or an error that says whether the transaction was aborted
(:class:`AbortTransaction`, :class:`Rejoin`) or its end is unknown (:class:`RecreateProducer`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from stream_router.core.ledger import OffsetCommit
from stream_router.core.output import Outcome, OutputRecord, cut_to, dead_letter
from stream_router.core.transaction import Event, Remedy, State, Transaction, remedy
from stream_router.errors import BrokerError, RecreateProducer
from stream_router.shell.broker_errors import Side, kafka_error, translate
from stream_router.shell.kafka_properties import TRANSACTION_TIMEOUT_S, Properties
from stream_router.shell.watched_calls import CallStuck, WatchedCalls

CALL_TIMEOUT_S = 5.0
"""What the client library is asked to keep to."""

WATCHDOG_S = 7.0
"""When a call that does not keep to it is left behind."""

REPEAT_BUDGET_S = 8.0
"""How old a transaction may grow by repeating calls: below its time-out at the coordinator."""

START_BUDGET_S = 60.0
"""How long a start is repeated on the same client: one that is left behind may finish later and fence the next."""

_REPEAT_WAIT_S = 0.05
_QUEUE_WAIT_S = 0.05

T = TypeVar("T")


class TransactionalProducer:
    """One client under the router's transactional id; used by the transaction's thread alone.

    Parameters
    ----------
    properties : mapping
        See :func:`~stream_router.shell.kafka_properties.transactional_properties`.
    transaction : Transaction
        The state, which outlives this client.
    """

    def __init__(self, properties: Properties, transaction: Transaction) -> None:
        self._producer = Producer(properties)
        self._calls = WatchedCalls("transaction-calls")
        self._transaction = transaction
        self._max_record_bytes = int(properties["message.max.bytes"])
        self._opened_at_s = self._calls_since_s = time.monotonic()

    def start(self) -> None:
        """Fence whoever ran under this id before, and end what it left open; blocks up to ``START_BUDGET_S``.

        Raises
        ------
        BrokerError
        """
        self._opened_at_s = self._calls_since_s = time.monotonic()
        self._call(self._producer.init_transactions, CALL_TIMEOUT_S)
        self._transaction.advance(Event.INITIALISED)

    def commit(
        self,
        outcomes: tuple[Outcome, ...],
        topic: str,
        offsets: Mapping[int, OffsetCommit],
        group: object,
        dead_letters: str,
    ) -> list[OutputRecord]:
        """Produce results and offsets in one transaction and commit it, in one go.

        Parameters
        ----------
        topic : str
            Whose offsets these are.
        group : object
            The consumer group's metadata as of when the batch was taken.
        dead_letters : str
            The topic for results that prove too large.

        Returns
        -------
        list of OutputRecord
            What was committed, in the order of ``outcomes``.

        Raises
        ------
        BrokerError
            The state says whether the transaction is still to be aborted.
        """
        self._opened_at_s = self._calls_since_s = time.monotonic()
        self._call(self._producer.begin_transaction)
        self._transaction.advance(Event.BEGUN)
        written = [self._produce(outcome, dead_letters) for outcome in outcomes]
        positions = [
            TopicPartition(topic, partition, commit.offset, commit.metadata) for partition, commit in offsets.items()
        ]
        self._call(self._producer.send_offsets_to_transaction, positions, group, CALL_TIMEOUT_S)
        self._transaction.advance(Event.OFFSETS_SENT)
        self._call(self._producer.commit_transaction, CALL_TIMEOUT_S)
        self._transaction.advance(Event.COMMITTED)
        return written

    def abort(self) -> None:
        """Abort the transaction after a failure.

        Raises
        ------
        BrokerError
            When that fails too: its end is then unknown.
        """
        self._transaction.advance(Event.FAILED)
        self._calls_since_s = time.monotonic()
        self._call(self._producer.abort_transaction, CALL_TIMEOUT_S)
        self._transaction.advance(Event.ABORTED)

    def serve(self) -> None:
        """Let the client report errors; never blocks."""
        self._producer.poll(0)

    def close(self) -> None:
        """Let go of the thread behind the calls; the client itself ends with its last reference."""
        self._calls.close()

    def _call(self, function: Callable[..., T], *args: Any) -> T:
        while True:
            error: BrokerError
            try:
                return self._calls.call(WATCHDOG_S, function, *args)
            except KafkaException as raised:
                error = translate(kafka_error(raised), Side.PRODUCER, overdue=self._is_overdue())
            except CallStuck as stuck:
                raise RecreateProducer(str(stuck)) from None
            following = remedy(self._transaction.state, error, out_of_time=self._is_out_of_time())
            if following is Remedy.ABANDON and not isinstance(error, RecreateProducer):
                raise RecreateProducer(f"{getattr(function, '__name__', function)}: {error}") from error
            if following is not Remedy.REPEAT:
                raise error
            time.sleep(_REPEAT_WAIT_S)

    def _produce(self, outcome: Outcome, dead_letters: str) -> OutputRecord:
        record = outcome.record
        if self._fits(record):
            return record
        if record.topic != dead_letters:
            size = len(record.value or b"")
            error = f"the result of {size} bytes exceeds the topic's max.message.bytes; raise it or ask for less"
            record = dead_letter(dead_letters, outcome.source, "too_large", error)
            if self._fits(record):
                return record
        cut = cut_to(record, self._max_record_bytes)
        if not self._fits(cut):
            raise RecreateProducer(f"a dead letter cut to {self._max_record_bytes} bytes is refused as too large")
        return cut

    def _fits(self, record: OutputRecord) -> bool:
        """Produce a record; False when the client refuses it as too large, which leaves the transaction unharmed."""
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
            except BufferError:
                if self._is_out_of_time():
                    raise RecreateProducer("the client's queue stayed full") from None
                self._producer.poll(_QUEUE_WAIT_S)
            except KafkaException as raised:
                found = kafka_error(raised)
                if found.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return False
                raise translate(found, Side.PRODUCER, overdue=self._is_overdue()) from None
            else:
                return True

    def _is_out_of_time(self) -> bool:
        budget_s = START_BUDGET_S if self._transaction.state is State.STARTING else REPEAT_BUDGET_S
        return time.monotonic() - self._calls_since_s >= budget_s

    def _is_overdue(self) -> bool:
        """Whether the coordinator may have ended the transaction by itself."""
        return time.monotonic() - self._opened_at_s >= TRANSACTION_TIMEOUT_S
