"""The stages' ports over the broker in memory: transactions that fail, or end the process, where drawn.

A crash is an exception that no stage catches; the test then makes a new stage on what was stored.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from recalibrator.prometheus_metrics import Metrics
from tests.support.clocks import ManualClock
from tests.support.lives import count_nothing
from tests.support.memory_broker.broker import (
    FAULTS,
    DrawnFaults,
    Fate,
    MemoryCluster,
    MemoryGroupReader,
    MemoryTransactionSession,
    NoFaults,
    ProcessCrashed,
)
from tests.support.memory_broker.logs import TopicConfig
from ucci_runtime.broker.ports import MAX_POLLED
from ucci_runtime.broker.records import EndReached, Header, Input, OffsetCommit, OutputRecord, Record

__all__ = ["FAULTS", "Counts", "Crash", "Fate", "ManualClock", "MemoryBroker", "MemoryLog", "MemoryTransactions"]

Crash = ProcessCrashed
OUTPUT_TOPICS = (
    "observations",
    "calibration",
    "history",
    "status",
    "dead-letters",
    "trial",
    "label-requests",
    "happenings",
)
_GROUP, _INSTANCE = "stage", "test"


class Counts:
    """Metrics, added up by name and labels; a name or label that the real ones do not have is refused."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self.totals: dict[str, float] = defaultdict(float)

    def __call__(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self._metrics.count(name, amount, **labels)
        self.totals[" ".join([name, *(labels[key] for key in sorted(labels))])] += amount


class Budget(DrawnFaults):
    """Faults from a list, one in three transactions until it is empty; deliveries mixed at random."""

    def __init__(self, draw: random.Random, budget: list[Fate]) -> None:
        super().__init__(draw.random)
        self._draw_from = draw
        self._budget = budget

    def fate(self) -> Fate:
        return self._budget.pop() if self._budget and self._draw_from.random() < 0.3 else Fate.COMMIT


class OrderedCluster(MemoryCluster):
    """A cluster that knows in which order records of different topics were written."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, clock.advance)
        self._written: list[tuple[Input, int]] = []

    def append(self, source: Input, key: bytes | None, value: bytes | None, **more: Any) -> int:
        offset = super().append(source, key, value, **more)
        self._written.append((source, offset))
        return offset

    def outputs(self) -> list[OutputRecord]:
        """Return what is committed to the stages' output topics, in the order of writing."""
        topics = self.configs.keys() & set(OUTPUT_TOPICS)
        found = {(record.source, record.offset): record for topic in topics for record in self.records(topic)}
        records = [found[place] for place in self._written if place in found]
        return [OutputRecord(r.source.topic, r.key, r.value, r.headers) for r in records]


class MemoryBroker:
    """One cluster, one group, and everything committed."""

    def __init__(self, clock: ManualClock) -> None:
        self.cluster = OrderedCluster(clock)
        self._inputs: list[Input] = []
        for topic in OUTPUT_TOPICS:
            self.cluster.create(topic)

    def create(self, topic: str, partitions: int) -> None:
        self.cluster.create(topic, TopicConfig(partitions))
        self._inputs += self.cluster.sources((topic,))

    def add_partitions(self, topic: str, count: int) -> None:
        self.cluster.add_partitions(topic, count)
        self._inputs = [source for source in self._inputs if source.topic != topic] + self.cluster.sources((topic,))

    def commit_without_notes(self) -> None:
        """Commit everything as an earlier release did, whose commits carried no notes."""
        found = {source: OffsetCommit(end) for source, end in self.ends.items() if end}
        self.cluster.group(_GROUP).offsets.update(found)

    def append(
        self,
        source: Input,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int = 0,
        headers: tuple[Header, ...] = (),
        by_broker: bool = False,
    ) -> None:
        log = self.cluster.logs[source]
        log.append(Record(source, log.end, key, value, timestamp_ms, headers, by_broker))

    def mark(self, source: Input) -> None:
        """Leave an offset without record, as the end of a transaction does."""
        self.cluster.logs[source].mark()

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        self.cluster.append(Input(topic, 0), key, value)

    @property
    def outputs(self) -> list[OutputRecord]:
        return [one for one in self.cluster.outputs() if Input(one.topic, 0) not in self._inputs]

    @property
    def ends(self) -> dict[Input, int]:
        return {source: self.cluster.logs[source].end for source in self._inputs}

    @property
    def offsets(self) -> dict[Input, int]:
        return {source: found.offset for source, found in self.cluster.group(_GROUP).offsets.items()}

    def forget_offsets(self) -> None:
        self.cluster.group(_GROUP).offsets.clear()

    def settled(self) -> bool:
        return all(self.offsets.get(source, 0) == end for source, end in self.ends.items())

    def values(self, topic: str) -> list[bytes]:
        return [record.value or b"" for record in self.cluster.records(topic)]


class MemoryLog(MemoryGroupReader):
    """The group's only member, whose every poll takes time."""

    def __init__(self, broker: MemoryBroker, topics: Sequence[str], draw: random.Random, clock: ManualClock) -> None:
        super().__init__(broker.cluster, _GROUP, topics, _INSTANCE, Budget(draw, []), count_nothing)
        self._clock = clock
        self.kept: list[BaseException] = []
        """Exceptions that were being handled at a rewind: an error of the client would keep them, and their frames."""

    def rewind(self) -> None:
        if (handled := sys.exc_info()[1]) is not None:
            self.kept.append(handled)
        super().rewind()

    def poll(self, timeout_s: float, most: int = MAX_POLLED) -> Sequence[Record | EndReached]:
        self._clock.advance(0.05)
        return super().poll(timeout_s, most)

    def deliver_all(self) -> None:
        """Let every poll deliver whatever there is."""
        self._faults = NoFaults()

    def spend(self, seconds: float) -> None:
        """Let time pass between two polls, in which the group gives up a member that is silent for too long."""
        self._clock.advance(seconds)
        self._cluster.group(_GROUP).expire(self._clock.monotonic())

    def revoke(self) -> None:
        self._cluster.group(_GROUP).rebalance()
        self.poll(0.0)

    def lose(self) -> None:
        """Give all partitions to others without asking; they give them back untouched."""
        self._cluster.group(_GROUP).evict(_INSTANCE)
        self.poll(0.0)


class MemoryTransactions(MemoryTransactionSession):
    """Commits, or does not, as drawn; never more faults than ``budget`` has left."""

    def __init__(self, broker: MemoryBroker, draw: random.Random, budget: list[Fate]) -> None:
        super().__init__(broker.cluster, _GROUP, _INSTANCE, Budget(draw, budget), 1_000_000)
