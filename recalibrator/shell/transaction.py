"""One transactional producer for a stage: outputs and offsets in, one committed transaction out, or a rewind.

A failed transaction is aborted, or its producer replaced; then the caller reads again from what it has stored. The
group's committed offsets say whether the transaction took place, so that no output comes twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaException, Producer, TopicPartition

from recalibrator.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    Fenced,
    RecreateProducer,
    RetryCall,
    Rewind,
)
from recalibrator.ports import Count, Input, OutputRecord
from recalibrator.shell.broker_errors import kafka_error, of_producer
from recalibrator.shell.kafka_properties import TRANSACTION_TIMEOUT_S, Properties
from recalibrator.shell.watched_calls import CallStuck, WatchedCalls

_log = structlog.get_logger()

CALL_TIMEOUT_S = 5.0
"""What the client library is asked to keep to."""

WATCHDOG_S = 7.0
"""When a call that does not keep to it is left behind."""

REPEAT_BUDGET_S = 8.0
"""How old a transaction may grow by repeating calls: below its time-out at the coordinator."""

START_BUDGET_S = 60.0
"""How long a start is repeated on the same client: one that is left behind may finish later and fence the next."""

BACKOFF_S = (0.02, 2.0)
"""First and longest wait after a transaction that failed."""

_REPEAT_WAIT_S = 0.05
_QUEUE_WAIT_S = 0.05

T = TypeVar("T")


class TransactionDriver:
    """The producer of one stage; used by the stage's thread alone.

    Parameters
    ----------
    stage : str
        Its name in logs and metrics.
    properties : mapping
        See :func:`~recalibrator.shell.kafka_properties.transactional_properties`.
    count : callable
    closing : threading.Event
        Ends waits between attempts.
    """

    def __init__(self, stage: str, properties: Properties, count: Count, closing: Event) -> None:
        self._stage = stage
        self._properties = properties
        self._count = count
        self._closing = closing
        self._failures = 0
        self._opened_at_s = self._calls_since_s = time.monotonic()
        # Their stuck calls may still return; a client must not be freed under them.
        self._abandoned: list[Producer] = []
        # Those of them that had not started when they were left: each may finish its start later and fence us once.
        self._late_starters = 0
        self._is_starting = False
        self._producer: Producer | None = None
        self._calls: WatchedCalls | None = None

    @property
    def hangs(self) -> bool:
        """Whether a call may never return: the process must then end without clean-up."""
        return bool(self._abandoned)

    def start(self) -> None:
        """Fence whoever ran under this id before, and end what it left open; again and again until it works.

        Raises
        ------
        Fenced, AccessDenied
        Rewind
            When closed before it worked.
        """
        while not self._closing.is_set():
            self._leave()
            self._producer = Producer(self._properties)
            self._calls = WatchedCalls(f"{self._stage}-transaction")
            self._opened_at_s = self._calls_since_s = time.monotonic()
            self._is_starting = True
            try:
                self._call(self._producer.init_transactions, CALL_TIMEOUT_S)
            except AccessDenied:
                raise
            except BrokerError as error:
                if not isinstance(error, Fenced):
                    self._late_starters += 1
                elif not self._is_own_fence():
                    raise
                self._failed("the producer did not start; trying again", error)
            else:
                return
            finally:
                self._is_starting = False
        raise Rewind("closed before the producer started")

    def commit(self, records: Sequence[OutputRecord], offsets: Mapping[Input, int], group: object) -> None:
        """Produce the records and commit them with the offsets, in one go; blocks up to some 20 s.

        Parameters
        ----------
        records : sequence of OutputRecord
        offsets : mapping of Input to int
            The next record to read.
        group : object
            The consumer group's metadata as of now.

        Raises
        ------
        Rewind
            When the transaction was aborted, or nobody saw its end.
        Fenced, AccessDenied
        """
        if self._producer is None:
            self.start()
        assert self._producer is not None
        self._opened_at_s = self._calls_since_s = time.monotonic()
        positions = [TopicPartition(source.topic, source.partition, offset) for source, offset in offsets.items()]
        try:
            self._call(self._producer.begin_transaction)
            for record in records:
                self._produce(record)
            self._call(self._producer.send_offsets_to_transaction, positions, group, CALL_TIMEOUT_S)
            self._call(self._producer.commit_transaction, CALL_TIMEOUT_S)
        except AccessDenied:
            raise
        except BrokerError as error:
            if isinstance(error, Fenced) and not self._is_own_fence():
                raise
            self._end(error)
        self._failures = 0
        self._count("transactions", stage=self._stage, outcome="committed")
        self._count("transaction_seconds", time.monotonic() - self._opened_at_s, stage=self._stage)

    def serve(self) -> None:
        """Let the client report errors; never blocks."""
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Let go of the producer; nothing is open between commits."""
        if self._calls is not None:
            self._calls.close()

    def _end(self, error: BrokerError) -> None:
        """Abort, or replace the producer; always raises."""
        assert self._producer is not None
        outcome = "unknown"
        if isinstance(error, AbortTransaction):
            self._calls_since_s = time.monotonic()
            try:
                self._call(self._producer.abort_transaction, CALL_TIMEOUT_S)
                outcome = "aborted"
            except AccessDenied:
                raise
            except BrokerError as second:
                if isinstance(second, Fenced) and not self._is_own_fence():
                    raise
                error = second
        self._count("transactions", stage=self._stage, outcome=outcome)
        self._failed("transaction not committed; reading again from what is stored", error)
        if outcome == "unknown":
            self.start()
        raise Rewind(str(error))

    def _is_own_fence(self) -> bool:
        """Whether it may be a producer that we left behind, rather than another process, that fenced us."""
        if not self._late_starters:
            return False
        self._late_starters -= 1
        return True

    def _leave(self) -> None:
        if self._producer is not None:
            self._count("producers_abandoned", stage=self._stage)
            self._abandoned.append(self._producer)
        if self._calls is not None:
            self._calls.close()

    def _failed(self, event: str, error: BrokerError) -> None:
        self._failures += 1
        _log.warning(event, stage=self._stage, error=str(error), in_a_row=self._failures)
        first_s, longest_s = BACKOFF_S
        self._closing.wait(min(first_s * 2 ** min(self._failures, 16), longest_s))

    def _call(self, function: Callable[..., T], *args: Any) -> T:
        assert self._calls is not None
        while True:
            try:
                return self._calls.call(WATCHDOG_S, function, *args)
            except KafkaException as raised:
                error = of_producer(kafka_error(raised), overdue=self._age_s() >= TRANSACTION_TIMEOUT_S)
            except CallStuck as stuck:
                raise RecreateProducer(str(stuck)) from None
            if not isinstance(error, RetryCall):
                raise error
            # Aborting after a time-out is what ends in a fatal error: the producer is left instead.
            budget_s = START_BUDGET_S if self._is_starting else REPEAT_BUDGET_S
            if time.monotonic() - self._calls_since_s >= budget_s:
                raise RecreateProducer(f"{getattr(function, '__name__', function)}: {error}")
            time.sleep(_REPEAT_WAIT_S)

    def _produce(self, record: OutputRecord) -> None:
        assert self._producer is not None
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
            except BufferError:
                if self._age_s() >= REPEAT_BUDGET_S:
                    raise RecreateProducer("the client's queue stayed full") from None
                self._producer.poll(_QUEUE_WAIT_S)
            except KafkaException as raised:
                raise of_producer(kafka_error(raised), overdue=False) from None
            else:
                return

    def _age_s(self) -> float:
        return time.monotonic() - self._opened_at_s
