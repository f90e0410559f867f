"""The end of a transaction arrives in the next one (KAFKA-17754), which lost or doubled results in six ways.

A process copies an input to an output in transactions. What strikes it, and when, is drawn.
`tests/faults/late_delivery.py` does the same to the real processes on a real broker.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.clocks import ManualClock
from tests.support.lives import count_nothing
from tests.support.memory_broker.broker import (
    TRANSACTION_TIMEOUT_S,
    DrawnFaults,
    Faults,
    MemoryBroker,
    MemoryCluster,
    ProcessCrashed,
)
from ucci_runtime.broker.ports import Aborted, GroupOffsets, Unknown
from ucci_runtime.broker.records import Input, OffsetCommit, OutputRecord, Record, next_offset
from ucci_runtime.broker.transaction_states import UnansweredRequests

SOURCE, OUTPUT = Input("in", 0), "out"
RECORDS = 12
SCHEDULES = 10_000


class Copier:
    """One process: takes over where the group stands, copies, and believes what the session says."""

    def __init__(self, cluster: MemoryCluster, faults: Faults) -> None:
        broker = MemoryBroker(cluster, "a", count_nothing, faults)
        self.reader, self.session = broker.group_reader("copy", [SOURCE.topic]), broker.session("copy")
        self.session.start()
        self.done = 0
        self._waiting: list[Record] = []
        self.reader.subscribe(self)

    def assigned(self, committed: GroupOffsets) -> dict[Input, int]:
        self.done = next_offset(committed[SOURCE])
        return {SOURCE: self.done}

    def revoked(self) -> None:
        self._waiting.clear()

    lost = revoked

    def step(self) -> None:
        if not self._waiting:
            self._waiting = [item for item in self.reader.poll(0.1) if isinstance(item, Record)]
        if not self._waiting:
            return
        after = self._waiting[-1].offset + 1
        outputs = [OutputRecord(OUTPUT, record.key, record.value) for record in self._waiting]
        end = self.session.commit(outputs, {SOURCE: OffsetCommit(after)}, self.reader.group())
        if isinstance(end, Aborted):
            return
        if isinstance(end, Unknown) and next_offset((end.offsets or {})[SOURCE]) < after:
            return
        self.done = after
        self._waiting.clear()


def harm(faults: Faults) -> Counter[str]:
    """Copy some records under these faults; return how many are lost and how many doubled."""
    clock = ManualClock()
    cluster = MemoryCluster(clock, clock.advance)
    for topic in (SOURCE.topic, OUTPUT):
        cluster.create(topic)
    for number in range(RECORDS):
        cluster.append(SOURCE, b"k", b"%d" % number)
    copier = Copier(cluster, faults)
    for _ in range(200):
        try:
            copier.step()
        except ProcessCrashed:
            copier = Copier(cluster, faults)
            copier.reader.poll(0.0)
        if copier.done == RECORDS:
            break
    clock.advance(TRANSACTION_TIMEOUT_S)
    times = Counter(record.value for record in cluster.records(OUTPUT))
    lost = sum(not times[b"%d" % number] for number in range(RECORDS))
    return Counter(lost=lost, doubled=sum(count - 1 for count in times.values() if count > 1))


def drawn(seed: int) -> Counter[str]:
    return harm(DrawnFaults(random.Random(seed).random, 0.5))


def test_a_late_end_lost_or_doubled_results() -> None:
    assert {seed: found for seed in range(SCHEDULES) if +(found := drawn(seed))} == {}


def test_without_a_raised_epoch_drawn_ones_do_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that finds nothing without the mend proves nothing with it."""
    monkeypatch.setattr(UnansweredRequests, "may_arrive", False)
    harmed = [found for seed in range(SCHEDULES // 10) if +(found := drawn(seed))]
    assert sum(found["lost"] > 0 for found in harmed) > SCHEDULES // 1_000
    assert sum(found["doubled"] > 0 for found in harmed) > SCHEDULES // 1_000
