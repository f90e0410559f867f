"""The consumer's thread: queries in, one assignment after the other, never more than there are free slots.

Messages flow in from the group's consumer; input records flow out to the loop. The thread never stops polling, full
or not: a member that is not polled never rejoins after a broker restart. Nothing is consumed before the ledger knows
what the group has committed for the partition, and nothing is committed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from threading import Event, Thread
from typing import cast

import structlog
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas.settings import Settings
from schemas.topics import QUERIES
from stream_router.commit.group_offsets import read_committed_offsets
from stream_router.commit.ledger import Committed, RecordId
from stream_router.commit.outcome import InputRecord
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.kafka_properties import intake_properties
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.errors import AccessDenied, Fenced
from ucci_runtime.broker.kafka_client_reports import reports
from ucci_runtime.broker.kafka_errors import Side, is_fatal, kafka_error, translate
from ucci_runtime.broker.records import Header

_log = structlog.get_logger()

POLL_S = 0.1
MAX_POLLED = 2_000
SLOT_WAIT_S = 0.25
"""How long a full router waits for slots before it pauses its partitions and polls on."""

REVOKE_DRAIN_S = 1.0
REVOKE_COMMIT_S = 6.0
_OFFSETS_TIMEOUT_S = 5.0
_OFFSETS_BUDGET_S = 60.0
_LAG_INTERVAL_S = 1.0
_MILLISECONDS = 1_000.0


class Intake(Thread):
    """The thread that owns the group's consumer.

    Parameters
    ----------
    settings : Settings
    ledger : SharedLedger
    deliver : callable
        Takes the records to answer; must not block.
    give_up : callable
        Takes the ids of queries in flight that are no longer ours; must not block.
    flush : callable
        Commits what is finished, blocking up to the seconds it is given.
    on_failure : callable
        Called once with the error that ended this thread.
    metrics : Metrics
    """

    def __init__(
        self,
        settings: Settings,
        ledger: SharedLedger,
        *,
        deliver: Callable[[list[InputRecord]], None],
        give_up: Callable[[Collection[RecordId]], None],
        flush: Callable[[float], bool],
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name="intake", daemon=True)
        self._topic = QUERIES.name(settings.topics.prefix)
        self._properties = intake_properties(settings)
        self._ledger = ledger
        self._deliver = deliver
        self._give_up = give_up
        self._flush = flush
        self._on_failure = on_failure
        self._metrics = metrics
        self._taking = True
        self._closing = Event()
        self._assignment: list[TopicPartition] = []
        self._paused: frozenset[int] = frozenset()
        self._rebalances = 0
        self._lag_due_s = 0.0
        self._taken_ms: dict[int, int] = {}
        self.lag: dict[int, int] = {}
        self.lag_s: dict[int, float] = {}

    def stop_taking(self) -> None:
        """Take no further queries; keep the membership, so that what is in flight can still be committed."""
        self._taking = False

    def close(self) -> None:
        """Leave the loop and close the consumer; :meth:`join` waits for it."""
        self._taking = False
        self._closing.set()

    def run(self) -> None:
        """Consume until closed. An error that ends the thread is handed on."""
        consumer = Consumer(self._properties | reports("intake", self._metrics.count, self._on_failure, is_member=True))
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            while not self._closing.is_set():
                self._turn(consumer)
            consumer.close()
        except KafkaException as error:
            self._on_failure(translate(kafka_error(error), Side.CONSUMER))
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            self._on_failure(error)

    def _turn(self, consumer: Consumer) -> None:
        free = self._ledger.await_slots(SLOT_WAIT_S) if self._taking else 0
        everything = frozenset(tp.partition for tp in self._assignment)
        self._pause(consumer, self._ledger.congested & everything if free else everything)
        messages = self._poll(consumer, free)
        group = consumer.consumer_group_metadata()
        if messages:
            self._hand_on(messages, group)
        elif self._assignment:
            positions = consumer.position(self._assignment)
            self._ledger.advance({tp.partition: tp.offset for tp in positions if tp.offset >= 0}, group)
        self._measure_lag(consumer)

    def _poll(self, consumer: Consumer, free: int) -> list[Message]:
        """Return one message as soon as there is one, and whatever else is there already."""
        first = consumer.poll(POLL_S)
        if first is None:
            return []
        rebalances = self._rebalances
        room = min(free, MAX_POLLED) - 1
        messages = [first, *consumer.consume(room, 0)] if room > 0 else [first]
        if self._rebalances != rebalances:
            # Messages of the assignment before could stand among them: read all of the new one again.
            if self._assignment:
                self._assign(consumer, self._assignment)
            return []
        return [message for message in messages if not self._is_report(message)]

    def _hand_on(self, messages: list[Message], group: object) -> None:
        records = [_record(message) for message in messages]
        for message in messages:
            self._taken_ms[cast(int, message.partition())] = message.timestamp()[1]
        fresh = self._ledger.delivered(records, group)
        self._metrics.queries.inc(len(fresh))
        if len(fresh) < len(records):
            self._metrics.skipped.inc(len(records) - len(fresh))
        if fresh:
            self._deliver(fresh)

    def _is_report(self, message: Message) -> bool:
        """Tell records from the client's reports; raise those that end the consumer."""
        error = message.error()
        if error is None:
            return False
        found = translate(error, Side.CONSUMER)
        if isinstance(found, Fenced | AccessDenied) or is_fatal(error):
            raise found
        self._metrics.client_errors.labels("intake", error.name()).inc()
        level = _log.info if error.code() == KafkaError._MAX_POLL_EXCEEDED else _log.warning  # noqa: SLF001 a client-side code
        level("consumer", code=error.name(), error=error.str())
        return True

    def _pause(self, consumer: Consumer, wanted: frozenset[int]) -> None:
        if wanted == self._paused:
            return
        if resumed := self._paused - wanted:
            consumer.resume([TopicPartition(self._topic, partition) for partition in resumed])
        if paused := wanted - self._paused:
            consumer.pause([TopicPartition(self._topic, partition) for partition in paused])
        self._paused = wanted

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._metrics.rebalances.labels("assigned").inc()
        self._assign(consumer, partitions)
        _log.info("assigned", partitions=[tp.partition for tp in partitions])

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        committed = self._committed(consumer, [tp.partition for tp in partitions])
        given_up = self._ledger.assigned(committed, consumer.consumer_group_metadata())
        if given_up:
            self._metrics.given_up.inc(len(given_up))
            self._give_up(given_up)
        self._assignment = [
            TopicPartition(self._topic, partition, OFFSET_INVALID if found.offset is None else found.offset)
            for partition, found in committed.items()
        ]
        consumer.assign(self._assignment)
        # A partition that was paused before the rebalance stays silent after it, unless it is told otherwise.
        if self._assignment:
            consumer.resume(self._assignment)
        self._paused = frozenset()

    def _committed(self, consumer: Consumer, partitions: list[int]) -> dict[int, Committed]:
        """Read the group's offsets, with patience: the coordinator may be on its way back."""
        deadline = time.monotonic() + _OFFSETS_BUDGET_S
        while True:
            try:
                return read_committed_offsets(consumer, self._topic, partitions, _OFFSETS_TIMEOUT_S, self._metrics)
            except KafkaException as error:
                found = translate(kafka_error(error), Side.CONSUMER)
                if isinstance(found, Fenced | AccessDenied) or time.monotonic() > deadline or self._closing.is_set():
                    raise
                _log.warning("the group's offsets could not be read; trying again", error=str(found))
                self._closing.wait(POLL_S)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit what is finished while the group still takes it from us; one deadline for all of it."""
        self._rebalances += 1
        self._metrics.rebalances.labels("revoked").inc()
        deadline = time.monotonic() + REVOKE_DRAIN_S + REVOKE_COMMIT_S
        if partitions and self._taking:
            self._ledger.await_idle(REVOKE_DRAIN_S)
        if partitions:
            self._flush(max(deadline - time.monotonic(), 0.0))
        self._release()
        _log.info("revoked", partitions=[tp.partition for tp in partitions])

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit nothing: others own the partitions already."""
        self._rebalances += 1
        self._metrics.rebalances.labels("lost").inc()
        self._release()
        _log.warning("lost", partitions=[tp.partition for tp in partitions])

    def _release(self) -> None:
        self._ledger.released()
        self._assignment = []
        self._paused = frozenset()
        self.lag, self.lag_s = {}, {}

    def _measure_lag(self, consumer: Consumer) -> None:
        now_s = time.monotonic()
        if now_s < self._lag_due_s:
            return
        self._lag_due_s = now_s + _LAG_INTERVAL_S
        lag = {}
        for tp in self._assignment:
            low, high = consumer.get_watermark_offsets(tp, cached=True)
            if high >= 0:
                done = self._ledger.committable(tp.partition)
                lag[tp.partition] = max(high - (low if done is None else done), 0)
        now_ms = time.time() * _MILLISECONDS
        self.lag_s = {
            partition: max(now_ms - self._taken_ms[partition], 0.0) / _MILLISECONDS if left else 0.0
            for partition, left in lag.items()
            if not left or self._taken_ms.get(partition, 0) > 0
        }
        self.lag = lag


def _record(message: Message) -> InputRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = cast(list[Header] | None, message.headers())
    return InputRecord(topic, partition, offset, message.key(), message.value(), tuple(headers) if headers else ())
