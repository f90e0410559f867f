"""A stage's transactions: outputs and offsets in, one committed transaction out, or a rewind.

A failed transaction is aborted, or its producer replaced; then the caller reads again from what it has stored. The
group's committed offsets say whether the transaction took place, so that no output comes twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from threading import Event

import structlog

from recalibrator.errors import Rewind
from ucci_runtime.broker import transaction_states as states
from ucci_runtime.broker.errors import AbortTransaction, AccessDenied, BrokerError, Fenced, RecreateProducer
from ucci_runtime.broker.kafka_producer import TransactionalProducer
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.records import Count, Input, OffsetCommit, OutputRecord

_log = structlog.get_logger()

BACKOFF_S = (0.02, 2.0)
"""First and longest wait after a transaction that failed."""


class TransactionDriver:
    """The producer of one stage, and its successors; used by the stage's thread alone.

    Parameters
    ----------
    stage : str
        Its name in logs and metrics.
    properties : mapping
        See :func:`~recalibrator.kafka_properties.transactional_properties`.
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
        self._transaction = states.Transaction()
        # Their stuck calls may still return; a client must not be freed under them.
        self._abandoned: list[TransactionalProducer] = []
        self._producer: TransactionalProducer | None = None

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
            self._producer = TransactionalProducer(f"{self._stage}-transaction", self._properties, self._transaction)
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
        began_s = time.monotonic()
        try:
            self._producer.begin()
            for record in records:
                if not self._producer.produce(record):
                    raise RecreateProducer(f"a record of {record.size_bytes} bytes for {record.topic} is too large")
            self._producer.commit({source: OffsetCommit(offset) for source, offset in offsets.items()}, group)
        except AccessDenied:
            raise
        except AbortTransaction as error:
            self._abort(error)
        except BrokerError as error:
            self._replace(error)
        self._failures = 0
        self._count("transactions", stage=self._stage, outcome="committed")
        self._count("transaction_seconds", time.monotonic() - began_s, stage=self._stage)

    def serve(self) -> None:
        """Let the client report errors; never blocks."""
        if self._producer is not None:
            self._producer.serve()

    def close(self) -> None:
        """Let go of the producer; nothing is open between commits."""
        if self._producer is not None:
            self._producer.close()

    def _abort(self, error: BrokerError) -> None:
        """Abort, or replace the producer where that fails; always raises."""
        assert self._producer is not None
        try:
            self._producer.abort()
        except AccessDenied:
            raise
        except BrokerError as second:
            self._replace(second)
        self._rewind("aborted", error)

    def _replace(self, error: BrokerError) -> None:
        """Replace the producer, since nobody saw how its transaction ended; always raises."""
        if isinstance(error, Fenced):
            self._forgive(error)
        self._transaction.advance(states.Event.ABANDONED)
        self._rewind("unknown", error)

    def _rewind(self, outcome: str, error: BrokerError) -> None:
        self._count("transactions", stage=self._stage, outcome=outcome)
        self._failed("transaction not committed; reading again from what is stored", error)
        if outcome == "unknown":
            self.start()
        raise Rewind(str(error))

    def _forgive(self, fence: Fenced) -> None:
        if not self._transaction.forgive_fence():
            raise fence

    def _leave(self) -> None:
        if self._producer is not None:
            self._count("producers_abandoned", stage=self._stage)
            self._abandoned.append(self._producer)
            self._producer.close()

    def _failed(self, event: str, error: BrokerError) -> None:
        self._failures += 1
        _log.warning(event, stage=self._stage, error=str(error), in_a_row=self._failures)
        first_s, longest_s = BACKOFF_S
        self._closing.wait(min(first_s * 2 ** min(self._failures, 16), longest_s))
