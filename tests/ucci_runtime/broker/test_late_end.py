"""The end of a transaction arrives in the next one (KAFKA-17754): the six ways in which that loses or doubles results.

A process copies an input to an output in transactions. What strikes it, and when, is named by hand or drawn.
`tests/faults/late_delivery.py` does the same to the real processes on a real broker.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.support.clocks import ManualClock
from tests.support.lives import count_nothing
from tests.support.memory_broker.broker import (
    REQUESTS,
    TRANSACTION_TIMEOUT_S,
    DrawnFaults,
    Fate,
    Faults,
    MemoryBroker,
    MemoryCluster,
    NoFaults,
    ProcessCrashed,
    Request,
)
from ucci_runtime.broker.ports import Aborted, GroupOffsets, Unknown
from ucci_runtime.broker.records import Input, OffsetCommit, OutputRecord, Record, next_offset
from ucci_runtime.broker.transaction_states import UnansweredRequests

SOURCE, OUTPUT = Input("in", 0), "out"
RECORDS = 12
BATCH = 3
SCHEDULES = 10_000
OFFSETS_FIRST = REQUESTS
PRODUCE_FIRST = (*REQUESTS[2:], *REQUESTS[:2])
OFFSETS_AND_PARTITIONS_FIRST = (Request.ADD_OFFSETS, Request.ADD_PARTITIONS, Request.SEND_OFFSETS, Request.PRODUCE)
OFFSETS_LAST = (Request.ADD_OFFSETS, Request.ADD_PARTITIONS, Request.PRODUCE, Request.SEND_OFFSETS)


class Struck(NamedTuple):
    """What becomes of transaction A, and of B in which the end of A arrives."""

    first: Fate
    order: Sequence[Request]
    moment: int
    second: Fate = Fate.COMMIT


SIX = {
    "late_commit_before_produce": Struck(Fate.LATE_COMMIT, OFFSETS_AND_PARTITIONS_FIRST, 3),
    "late_commit_then_kill": Struck(Fate.LATE_COMMIT, OFFSETS_FIRST, 2, Fate.CRASH_OPEN),
    "late_commit_then_silence": Struck(Fate.LATE_COMMIT, OFFSETS_FIRST, 2, Fate.UNSEEN_ABORT),
    "late_abort_after_produce": Struck(Fate.LATE_ABORT, PRODUCE_FIRST, 2),
    "late_commit_after_produce_then_kill": Struck(Fate.LATE_COMMIT, OFFSETS_LAST, 3, Fate.CRASH_OPEN),
    "late_abort_after_offsets_then_kill": Struck(Fate.LATE_ABORT, OFFSETS_FIRST, 2, Fate.CRASH_AFTER),
}
LOST = {"late_commit_before_produce", "late_commit_then_kill", "late_commit_then_silence", "late_abort_after_produce"}


class Script(NoFaults):
    """Strikes the second of two transactions with the end of the first."""

    def __init__(self, struck: Struck) -> None:
        self._fates = [struck.second, struck.first]
        self._struck = struck

    def fate(self) -> Fate:
        return self._fates.pop() if self._fates else Fate.COMMIT

    def order(self) -> Sequence[Request]:
        return self._struck.order

    def moment(self) -> int:
        return self._struck.moment

    def batch(self, most: int) -> int:
        return min(BATCH, most)


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


@pytest.fixture
def late_requests_strike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no epoch be raised, as before."""
    monkeypatch.setattr(UnansweredRequests, "may_arrive", False)


@pytest.mark.parametrize("name", SIX)
def test_a_late_end_lost_or_doubled_results(name: str) -> None:
    assert not +harm(Script(SIX[name]))


@pytest.mark.usefixtures("late_requests_strike")
@pytest.mark.parametrize("name", SIX)
def test_without_a_raised_epoch_each_does_harm(name: str) -> None:
    """In four schedules results are lost, in two they are doubled."""
    found = harm(Script(SIX[name]))
    assert (found["lost"] > 0, found["doubled"] > 0) == (name in LOST, name not in LOST)


def drawn(seed: int) -> Counter[str]:
    return harm(DrawnFaults(random.Random(seed).random, 0.5))


def test_drawn_schedules_lose_and_double_nothing() -> None:
    assert {seed: found for seed in range(SCHEDULES) if +(found := drawn(seed))} == {}


@pytest.mark.usefixtures("late_requests_strike")
def test_without_a_raised_epoch_drawn_ones_do_harm() -> None:
    """A judge that finds nothing without the mend proves nothing with it."""
    harmed = [found for seed in range(SCHEDULES // 10) if +(found := drawn(seed))]
    assert sum(found["lost"] > 0 for found in harmed) > SCHEDULES // 1_000
    assert sum(found["doubled"] > 0 for found in harmed) > SCHEDULES // 1_000
