"""The stages' ports over memory: logs, group offsets and transactions that fail, or end the process, where drawn.

A crash is an exception that no stage catches; the test then makes a new stage on what was stored.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from recalibrator.errors import Rewind
from recalibrator.fit.publish.version_topics import TakenNumbers
from recalibrator.prometheus_metrics import Metrics
from schemas.calibration import CalibrationVersion
from tests.support.recalibrator_events import START
from ucci_runtime.broker.ports import Assignee
from ucci_runtime.broker.records import EndReached, Header, Input, Lag, OutputRecord, Record

Fate = Literal["committed", "aborted", "unseen", "crash_before", "crash_after"]
FAULTS: tuple[Fate, ...] = ("aborted", "unseen", "crash_before", "crash_after")


class Crash(BaseException):
    """The process ends here."""


class ManualClock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(START.timestamp() + self._passed_s, UTC)

    def monotonic(self) -> float:
        return self._passed_s

    def advance(self, seconds: float) -> None:
        self._passed_s += seconds


class Counts:
    """Metrics, added up by name and labels; a name or label that the real ones do not have is refused."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self.totals: dict[str, float] = defaultdict(float)

    def __call__(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self._metrics.count(name, amount, **labels)
        self.totals[" ".join([name, *(labels[key] for key in sorted(labels))])] += amount


class MemoryBroker:
    """Input logs, the group's offsets and everything committed."""

    def __init__(self) -> None:
        self.logs: dict[Input, list[Record]] = {}
        self.ends: dict[Input, int] = {}
        self.offsets: dict[Input, int] = {}
        self.outputs: list[OutputRecord] = []
        self.generation = 0

    def create(self, topic: str, partitions: int) -> None:
        for partition in range(partitions):
            source = Input(topic, partition)
            self.logs[source], self.ends[source] = [], 0

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
        self.logs[source].append(Record(source, self.ends[source], key, value, timestamp_ms, headers, by_broker))
        self.ends[source] += 1

    def mark(self, source: Input) -> None:
        """Leave an offset without record, as the end of a transaction does."""
        self.ends[source] += 1

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        """Commit one record of a foreign writer."""
        self.outputs.append(OutputRecord(topic, key, value))

    def values(self, topic: str) -> list[bytes]:
        return [record.value or b"" for record in self.outputs if record.topic == topic]


class MemoryLog:
    """The group's only member."""

    def __init__(self, broker: MemoryBroker, topics: Sequence[str], draw: random.Random, clock: ManualClock) -> None:
        self._broker = broker
        self._sources = sorted(source for source in broker.logs if source.topic in topics)
        self._draw = draw
        self._clock = clock
        self._assignee: Assignee | None = None
        self._positions: dict[Input, int] = {}
        self._held: set[Input] = set()
        self._told: set[Input] = set()

    def subscribe(self, assignee: Assignee) -> None:
        self._assignee = assignee

    def poll(self, timeout_s: float) -> Sequence[Record | EndReached]:
        if not self._positions:
            self._broker.generation += 1
            self._assign()
            return []
        self._clock.advance(0.05)
        items: list[Record | EndReached] = []
        for source in self._draw.sample(self._sources, self._draw.randint(1, len(self._sources))):
            if source not in self._held:
                items += self._next_of(source, self._draw.randint(1, 6))
        return items

    def group(self) -> object:
        return self._broker.generation

    def rewind(self) -> None:
        if self._positions:
            self._assign()

    def hold(self, source: Input) -> None:
        self._held.add(source)

    def read_from(self, starts: Mapping[Input, int]) -> None:
        self._positions = dict(starts)
        self._held, self._told = set(), set()

    def lag(self) -> Mapping[Input, Lag]:
        behind = {source: self._broker.ends[source] - position for source, position in self._positions.items()}
        return {source: Lag(left, None if left else 0.0) for source, left in behind.items()}

    def close(self) -> None:
        if self._positions:
            self.revoke()

    def revoke(self) -> None:
        """Take all partitions away in good order."""
        assert self._assignee is not None
        self._positions = {}
        self._assignee.revoked()

    def lose(self) -> None:
        """Give all partitions to others without asking; they give them back untouched."""
        assert self._assignee is not None
        self._positions = {}
        self._broker.generation += 1
        self._assignee.lost()

    def _assign(self) -> None:
        assert self._assignee is not None
        self.read_from(self._assignee.assigned({source: self._broker.offsets.get(source) for source in self._sources}))

    def _next_of(self, source: Input, most: int) -> list[Record | EndReached]:
        left = [record for record in self._broker.logs[source] if record.offset >= self._positions[source]]
        if left:
            taken = left[:most]
            self._positions[source] = taken[-1].offset + 1
            self._told.discard(source)
            return [*taken]
        end = max(self._broker.ends[source], self._positions[source])
        if source in self._told and end == self._positions[source]:
            return []
        self._positions[source] = end
        self._told.add(source)
        return [EndReached(source, end)]


class MemoryTransactions:
    """Commits, or does not, as drawn; never more faults than ``budget`` has left."""

    def __init__(self, broker: MemoryBroker, draw: random.Random, budget: list[Fate]) -> None:
        self._broker = broker
        self._draw = draw
        self._budget = budget

    def commit(self, records: Sequence[OutputRecord], offsets: Mapping[Input, int], group: object) -> None:
        fate: Fate = self._budget.pop() if self._budget and self._draw.random() < 0.3 else "committed"
        if fate == "crash_before":
            raise Crash
        if fate == "aborted" or group != self._broker.generation:
            raise Rewind("aborted")
        self._broker.outputs.extend(records)
        self._broker.offsets.update(offsets)
        if fate == "crash_after":
            raise Crash
        if fate == "unseen":
            raise Rewind("nobody saw the end")

    def close(self) -> None:
        """Nothing is open between commits."""


class MemoryVersions:
    """The calibration topic, read from the committed outputs."""

    def __init__(self, broker: MemoryBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._read = 0
        self._numbers = TakenNumbers()

    def news(self) -> dict[str, int]:
        found: dict[str, int] = {}
        values = self._broker.values(self._topic)
        for value in values[self._read :]:
            version = CalibrationVersion.from_json(value)
            if self._numbers.take(version):
                found[version.workload] = max(version.version, found.get(version.workload, 0))
        self._read = len(values)
        return found

    def highest(self) -> dict[str, int]:
        self.news()
        return dict(self._numbers.highest)

    def ignored(self) -> dict[str, int]:
        return self._numbers.ignored()

    def close(self) -> None:
        """Nothing is open."""
