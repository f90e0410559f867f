"""The transaction's thread: whatever is finished, committed together with its offsets, tick after tick.

Batches flow in from the ledger; committed transactions flow out. A result is never in two committed transactions:
when a transaction's end was not seen, the group's offsets say how it ended before anything is produced again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from threading import Condition, Thread

import structlog
from confluent_kafka import Consumer, KafkaException

from schemas.settings import Settings
from schemas.topics import DEAD_LETTERS, DLQ_REASON, QUERIES
from stream_router.commit.group_offsets import read_committed_offsets
from stream_router.commit.ledger import Batch, Committed
from stream_router.commit.outcome import Outcome, dead_letter
from stream_router.commit.shared_ledger import SharedLedger, Taken
from stream_router.kafka_properties import offsets_properties, transactional_properties
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.dead_letters import cut_to
from ucci_runtime.broker.errors import AccessDenied, BrokerError, Fenced, RecreateProducer, TopicsUnusable
from ucci_runtime.broker.kafka_client_reports import reports
from ucci_runtime.broker.kafka_errors import Side, kafka_error, translate
from ucci_runtime.broker.kafka_producer import CALL_TIMEOUT_S, TransactionalProducer
from ucci_runtime.broker.records import Input, OutputRecord
from ucci_runtime.broker.transaction_states import Event, State, Transaction

_log = structlog.get_logger()

BACKOFF_S = (0.02, 2.0)
"""First and longest wait after a transaction that failed."""

_MILLISECONDS = 1_000


class Committer(Thread):
    """The thread that owns the transactional producer.

    Parameters
    ----------
    settings : Settings
    ledger : SharedLedger
    max_record_bytes : int
        Largest record that every output topic took at start.
    check_room : callable
        Asks the broker for that limit again; blocks.
    on_failure : callable
        Called once with the error that ended this thread.
    metrics : Metrics
    """

    def __init__(
        self,
        settings: Settings,
        ledger: SharedLedger,
        *,
        max_record_bytes: int,
        check_room: Callable[[], int],
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name="commit", daemon=True)
        self._settings = settings
        self._ledger = ledger
        self._topic = QUERIES.name(settings.topics.prefix)
        self._dead_letters = DEAD_LETTERS.name(settings.topics.prefix)
        self._interval_s = settings.router.commit_interval_ms / _MILLISECONDS
        self._max_record_bytes = max_record_bytes
        self._check_room = check_room
        self._on_failure = on_failure
        self._metrics = metrics
        self._transaction = Transaction()
        self._producer: TransactionalProducer | None = None
        # Their stuck calls may still return; a client must not be freed under them.
        self._abandoned: list[TransactionalProducer] = []
        self._failures = 0
        self._turn = Condition()
        self._asked = 0
        self._served = 0
        self._closing = False

    @property
    def state(self) -> State:
        """Where the producer stands."""
        return self._transaction.state

    @property
    def hangs(self) -> bool:
        """Whether a call of an abandoned producer may never return: the process must then end without clean-up."""
        return bool(self._abandoned)

    def flush(self, timeout_s: float) -> bool:
        """Commit what is finished now; called by intake in a revocation and by the service at its end.

        Blocks up to ``timeout_s``; whether anything is left, the ledger knows.

        Returns
        -------
        bool
            Whether a tick that began after this call has ended in time.
        """
        with self._turn:
            self._asked += 1
            ticket = self._asked
            self._turn.notify_all()
            return self._turn.wait_for(lambda: self._served >= ticket or not self.is_alive(), timeout_s)

    def close(self) -> None:
        """Let the thread end after its present tick; :meth:`join` waits for it."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()

    def run(self) -> None:
        """Commit until closed. An error that ends the thread is handed on."""
        try:
            self._replace_producer()
            while not self._closing:
                ticket = self._await_turn()
                self._tick()
                with self._turn:
                    self._served = ticket
                    self._turn.notify_all()
            self._transaction.advance(Event.CLOSED)
            if self._producer is not None:
                self._producer.close()
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            if isinstance(error, Fenced):
                self._transaction.advance(Event.FENCED)
            self._on_failure(error)

    def _await_turn(self) -> int:
        with self._turn:
            self._turn.wait_for(lambda: self._asked > self._served or self._closing, self._interval_s)
            return self._asked

    def _tick(self) -> None:
        assert self._producer is not None
        self._producer.serve()
        taken = self._ledger.take()
        if taken is None:
            return
        try:
            self._commit(taken)
        except Fenced as error:
            if not self._transaction.forgive_fence():
                raise
            self._recover(taken, error)

    def _commit(self, taken: Taken) -> None:
        assert self._producer is not None
        started_s = time.monotonic()
        try:
            self._producer.begin()
            written = [self._write(self._producer, outcome) for outcome in taken.batch.outcomes]
            offsets = {Input(self._topic, partition): found for partition, found in taken.batch.offsets.items()}
            self._producer.commit(offsets, taken.group)
        except RecreateProducer as error:
            self._recover(taken, error)
        except (Fenced, AccessDenied):
            raise
        except BrokerError as error:
            self._abort(taken, error)
        else:
            self._ledger.committed(taken.batch)
            self._failures = 0
            self._metrics.transactions.labels("committed").inc()
            self._metrics.transaction_seconds.observe(time.monotonic() - started_s)
            self._count(taken.batch.outcomes, written)

    def _write(self, producer: TransactionalProducer, outcome: Outcome) -> OutputRecord:
        """Produce an outcome; one that is too large becomes a dead letter, cut where that is too large as well."""
        record = outcome.record
        if producer.produce(record):
            return record
        if record.topic != self._dead_letters:
            size = len(record.value or b"")
            error = f"the result of {size} bytes exceeds the topic's max.message.bytes; raise it or ask for less"
            record = dead_letter(self._dead_letters, outcome.source, "too_large", error)
            if producer.produce(record):
                return record
        cut = cut_to(record, self._max_record_bytes)
        if not producer.produce(cut):
            raise RecreateProducer(f"a dead letter cut to {self._max_record_bytes} bytes is refused as too large")
        return cut

    def _abort(self, taken: Taken, error: BrokerError) -> None:
        assert self._producer is not None
        try:
            self._producer.abort()
        except (Fenced, AccessDenied):
            raise
        except BrokerError as second:
            self._recover(taken, second)
            return
        self._ledger.aborted(taken.batch)
        self._metrics.transactions.labels("aborted").inc()
        self._failed("transaction aborted; its results go into the next one", taken.batch, error)

    def _recover(self, taken: Taken, error: BrokerError) -> None:
        """Replace the producer, then ask the group how the transaction ended."""
        self._metrics.transactions.labels("unknown").inc()
        self._metrics.producers_abandoned.inc()
        self._failed("producer replaced; the group's offsets tell how its transaction ended", taken.batch, error)
        self._transaction.advance(Event.ABANDONED)
        self._replace_producer()
        self._ledger.settled(taken.batch, self._group_offsets(taken.batch))

    def _failed(self, event: str, batch: Batch, error: BrokerError) -> None:
        self._failures += 1
        _log.warning(event, error=str(error), results=len(batch.ids), in_a_row=self._failures)
        self._back_off()

    def _replace_producer(self) -> None:
        """Start a producer, again and again until it works or the thread is closed."""
        while not self._closing:
            if self._producer is not None:
                self._producer.close()
                self._abandoned.append(self._producer)
                self._max_record_bytes = self._room()
            properties = transactional_properties(self._settings, self._max_record_bytes)
            properties |= reports("transaction", self._metrics.count, self._on_failure)
            self._producer = TransactionalProducer("transaction-calls", properties, self._transaction)
            try:
                self._producer.start()
            except AccessDenied:
                raise
            except BrokerError as error:
                if not isinstance(error, Fenced):
                    self._transaction.advance(Event.ABANDONED)
                elif not self._transaction.forgive_fence():
                    raise
                self._failures += 1
                _log.warning("the producer did not start; trying again", error=str(error), in_a_row=self._failures)
                self._back_off()
            else:
                return

    def _room(self) -> int:
        """Read the topics' limits again: a lowered one is a reason why a producer had to go."""
        try:
            return self._check_room()
        except AccessDenied:
            raise
        except (BrokerError, TopicsUnusable) as error:
            _log.warning("the topics could not be checked again", error=str(error))
            return self._max_record_bytes

    def _group_offsets(self, batch: Batch) -> dict[int, Committed]:
        consumer = Consumer(offsets_properties(self._settings))
        try:
            while True:
                try:
                    return read_committed_offsets(
                        consumer, self._topic, batch.offsets.keys(), CALL_TIMEOUT_S, self._metrics
                    )
                except KafkaException as error:
                    found = translate(kafka_error(error), Side.CONSUMER)
                    if isinstance(found, AccessDenied) or self._closing:
                        raise found from None
                    _log.warning("the group's offsets could not be read; trying again", error=str(found))
                    self._back_off()
        finally:
            consumer.close()

    def _back_off(self) -> None:
        first_s, longest_s = BACKOFF_S
        wait_s = min(first_s * 2 ** min(self._failures, 16), longest_s)
        with self._turn:
            self._turn.wait_for(lambda: self._closing, wait_s)

    def _count(self, outcomes: Iterable[Outcome], written: Iterable[OutputRecord]) -> None:
        results: Counter[tuple[str, str, str]] = Counter()
        for outcome, record in zip(outcomes, written, strict=True):
            if record.topic != self._dead_letters:
                results[outcome.labels] += 1
                if outcome.trial is not None:
                    self._metrics.trial_decisions.labels(*outcome.trial).inc()
                continue
            reason = next((value for name, value in record.headers if name == DLQ_REASON), None) or b""
            self._metrics.dead_letters.labels(reason.decode()).inc()
        for labels, count in results.items():
            self._metrics.results.labels(*labels).inc(count)
