"""A stage's consumer: records and ends of partitions out; rebalances in, told to the stage as they happen.

Where to read from is the stage's to say, since it knows what it has stored; nothing is committed here. The group's
offsets are asked with isolation "read committed", which waits for a former owner's transaction to end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import cast

import structlog
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ucci_runtime.broker.errors import AccessDenied, BrokerError, Fenced
from ucci_runtime.broker.kafka_client_reports import reports
from ucci_runtime.broker.kafka_errors import Side, is_fatal, kafka_error, translate
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.ports import Assignee
from ucci_runtime.broker.records import Count, EndReached, Header, Input, Lag, Record

_log = structlog.get_logger()

MAX_POLLED = 2_000
_OFFSETS_TIMEOUT_S = 5.0
_OFFSETS_BUDGET_S = 240.0
_RETRY_WAIT_S = 0.1
_MILLISECONDS = 1_000.0


class KafkaEventLog:
    """The consumer of one stage; used by the stage's thread alone.

    Parameters
    ----------
    stage : str
    topics : sequence of str
        Co-partitioned where there are several.
    properties : mapping
        See :func:`~recalibrator.kafka_properties.group_properties`.
    count : callable
    on_final : callable
        Called with an error that waiting cannot mend.
    closing : threading.Event
    """

    def __init__(
        self,
        stage: str,
        topics: Sequence[str],
        properties: Properties,
        count: Count,
        *,
        on_final: Callable[[BrokerError], None],
        closing: Event,
    ) -> None:
        self._stage = stage
        self._topics = list(topics)
        self._count = count
        self._closing = closing
        self._consumer = Consumer(properties | reports(stage, count, on_final))
        self._assignee: Assignee | None = None
        self._assigned: list[Input] = []
        self._positions: dict[Input, int] = {}
        self._taken_ms: dict[Input, int] = {}
        self._rebalances = 0

    def subscribe(self, assignee: Assignee) -> None:
        """Join the group; partitions are told from within :meth:`poll`."""
        self._assignee = assignee
        self._consumer.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, timeout_s: float) -> Sequence[Record | EndReached]:
        """Return what has come; blocks up to ``timeout_s`` while nothing has.

        Raises
        ------
        Fenced, AccessDenied
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        rebalances = self._rebalances
        messages = [first, *self._consumer.consume(MAX_POLLED - 1, 0)]
        if self._rebalances != rebalances:
            # Messages of the assignment before could stand among them: read all of the new one again.
            self.rewind()
            return []
        return [item for message in messages if (item := self._item(message)) is not None]

    def group(self) -> object:
        """Return the group's metadata, by which the broker fences a former owner."""
        return self._consumer.consumer_group_metadata()

    def rewind(self) -> None:
        """Ask the group's offsets again and have the present partitions assigned anew; blocks up to a minute."""
        if self._assigned:
            self._assign(self._assigned)

    def hold(self, source: Input) -> None:
        """Deliver nothing of this partition until :meth:`read_from`."""
        self._consumer.pause([TopicPartition(source.topic, source.partition)])

    def read_from(self, starts: Mapping[Input, int]) -> None:
        """Read all partitions from these offsets."""
        partitions = [TopicPartition(source.topic, source.partition, offset) for source, offset in starts.items()]
        self._positions = dict(starts)
        self._consumer.assign(partitions)
        if partitions:
            # A partition that was paused before an assignment stays silent after it, unless it is told otherwise.
            self._consumer.resume(partitions)

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far each partition's reader is behind its end, as last heard; never blocks."""
        behind, now_ms = {}, time.time() * _MILLISECONDS
        for source in self._assigned:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*source), cached=True)
            if high >= 0:
                left = max(high - max(self._positions.get(source, 0), low), 0)
                taken_ms = now_ms if not left else self._taken_ms.get(source)
                behind[source] = Lag(left, None if taken_ms is None else max(now_ms - taken_ms, 0.0) / _MILLISECONDS)
        return behind

    def close(self) -> None:
        """Leave the loop; the static membership stays for whoever restarts in time."""
        self._consumer.close()

    def _item(self, message: Message) -> Record | EndReached | None:
        error = message.error()
        source = Input(cast(str, message.topic()), cast(int, message.partition()))
        if error is None:
            kind, timestamp_ms = message.timestamp()
            offset = cast(int, message.offset())
            self._positions[source] = offset + 1
            if kind != TIMESTAMP_NOT_AVAILABLE:
                self._taken_ms[source] = timestamp_ms
            headers = cast(list[Header] | None, message.headers())
            return Record(
                source,
                offset,
                message.key(),
                message.value(),
                0 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
                tuple(headers) if headers else (),
                by_broker=kind == TIMESTAMP_LOG_APPEND_TIME,
            )
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 a client-side code
            self._positions[source] = cast(int, message.offset())
            return EndReached(source, self._positions[source])
        found = translate(error, Side.CONSUMER)
        if isinstance(found, Fenced | AccessDenied) or is_fatal(error):
            raise found
        self._count("client_errors", client=self._stage, code=error.name())
        _log.warning("consumer", stage=self._stage, code=error.name(), error=error.str())
        return None

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._count("rebalances", stage=self._stage, kind="assigned")
        self._assigned = [Input(tp.topic, tp.partition) for tp in partitions]
        self._assign(self._assigned)
        _log.info("assigned", stage=self._stage, partitions=sorted({tp.partition for tp in partitions}))

    def _assign(self, sources: list[Input]) -> None:
        assert self._assignee is not None
        self.read_from(self._assignee.assigned(self._committed(sources)))

    def _committed(self, sources: list[Input]) -> dict[Input, int | None]:
        """Read the group's offsets, with patience: the coordinator may be on its way back."""
        asked = [TopicPartition(source.topic, source.partition) for source in sources]
        deadline_s = time.monotonic() + _OFFSETS_BUDGET_S
        while asked:
            try:
                found = self._consumer.committed(asked, _OFFSETS_TIMEOUT_S)
            except KafkaException as error:
                reason = translate(kafka_error(error), Side.CONSUMER)
                if isinstance(reason, Fenced | AccessDenied) or time.monotonic() > deadline_s or self._closing.is_set():
                    raise reason from None
                _log.warning(
                    "the group's offsets could not be read; trying again", stage=self._stage, error=str(reason)
                )
                self._closing.wait(_RETRY_WAIT_S)
            else:
                return {Input(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in found}
        return {}

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self._assignee is not None
        self._rebalances += 1
        self._count("rebalances", stage=self._stage, kind="revoked")
        # DecayedSums first: a commit that fails in a revocation must not have the old partitions assigned again.
        self._assigned = []
        self._assignee.revoked()
        _log.info("revoked", stage=self._stage, partitions=sorted({tp.partition for tp in partitions}))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert self._assignee is not None
        self._rebalances += 1
        self._count("rebalances", stage=self._stage, kind="lost")
        self._assigned = []
        self._assignee.lost()
        _log.warning("lost", stage=self._stage, partitions=sorted({tp.partition for tp in partitions}))
