"""Whatever the order of answers, transactions and rebalances: every query is committed exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stream_router.commit.done_offsets import MAX_METADATA_CHARS, CommittedOffsets, OffsetRange, decode
from stream_router.commit.ledger import CommitBatch, Ledger, RecordId
from stream_router.commit.outcome import Outcome
from ucci_runtime.broker.records import Input, OutputRecord, Record

PARTITIONS = (0, 1, 2)


def outcome(partition: int, offset: int) -> Outcome:
    source = Record(Input("queries", partition), offset, None, b"query")
    return Outcome(source, OutputRecord("results", b"key", f"{partition}:{offset}".encode()))


def group_after(batch: CommitBatch) -> dict[int, CommittedOffsets]:
    """What the broker would say of the group after the batch was committed."""
    commits = batch.offsets.items()
    return {n: CommittedOffsets(at.offset, decode(at.offset, at.metadata) or ()) for n, at in commits}


class LedgerMachine(RuleBasedStateMachine):
    """One router's ledger against a broker, a group and another router that are modelled in the obvious way."""

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[int, list[int]] = {p: [] for p in PARTITIONS}
        self.group: dict[int, CommittedOffsets] = {p: CommittedOffsets(None) for p in PARTITIONS}
        self.results: Counter[RecordId] = Counter()
        self.ledger = Ledger()
        self.owned: dict[int, int] = {}
        self.asked: set[RecordId] = set()
        self.answered: set[RecordId] = set()
        self.batch: CommitBatch | None = None
        self.is_fenced = False
        self.is_applied = False

    @rule(partition=st.sampled_from(PARTITIONS), gap=st.integers(1, 3))
    def a_query_arrives(self, partition: int, gap: int) -> None:
        end = self.log[partition][-1] if self.log[partition] else -1
        self.log[partition].append(end + gap)

    @rule(data=st.data())
    @precondition(lambda self: any(self.deliverable()))
    def a_query_is_delivered(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.sampled_from(sorted(self.deliverable()))))

    def deliverable(self) -> list[int]:
        return [p for p, index in self.owned.items() if index < len(self.log[p])]

    def deliver(self, partition: int) -> None:
        offset = self.log[partition][self.owned[partition]]
        self.owned[partition] += 1
        record_id = RecordId(partition, offset)
        is_new = self.ledger.delivered(partition, offset)
        if is_new:
            assert record_id not in self.asked | self.answered, "asked of the models twice"
            assert not self.group[partition].covers(offset), "answered although committed"
            self.asked.add(record_id)
        else:
            assert record_id in self.asked | self.answered or self.results[record_id] == 1

    @rule(data=st.data())
    @precondition(lambda self: self.asked)
    def a_query_is_answered(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.sampled_from(sorted(self.asked))))

    def answer(self, record_id: RecordId) -> None:
        self.asked.remove(record_id)
        self.answered.add(record_id)
        assert self.ledger.finished(outcome(*record_id))

    @rule()
    @precondition(lambda self: self.batch is None)
    def a_transaction_begins(self) -> None:
        self.batch = self.ledger.take()
        self.is_fenced = self.is_applied = False
        if self.batch is None:
            return
        assert set(self.batch.ids) <= self.answered
        for partition, found in group_after(self.batch).items():
            for offset in self.log[partition]:
                record_id = RecordId(partition, offset)
                done = self.results[record_id] == 1 or record_id in self.batch.ids
                assert found.covers(offset) == done, "the commit says something else than the transaction"

    def apply(self) -> None:
        """Commit at the broker, unless the group has moved on."""
        assert self.batch is not None
        if self.is_fenced or self.is_applied:
            return
        self.is_applied = True
        self.results.update(self.batch.ids)
        self.group.update(group_after(self.batch))

    @rule()
    @precondition(lambda self: self.batch is not None)
    def the_transaction_is_committed_before_anyone_hears(self) -> None:
        self.apply()

    @rule(is_aborted=st.booleans())
    @precondition(lambda self: self.batch is not None)
    def the_transaction_ends(self, is_aborted: bool = False) -> None:
        assert self.batch is not None
        if not is_aborted:
            self.apply()
        if self.is_applied:
            self.ledger.committed(self.batch)
            self.answered.difference_update(self.batch.ids)
        else:
            self.ledger.settled(self.batch, {})
        self.batch = None

    @rule(is_committed=st.booleans())
    @precondition(lambda self: self.batch is not None)
    def the_end_of_the_transaction_is_not_seen(self, is_committed: bool) -> None:
        assert self.batch is not None
        if is_committed:
            self.apply()
        self.ledger.settled(self.batch, self.group)
        self.answered = {r for r in self.answered if self.results[r] == 0}
        self.batch = None

    @rule()
    def partitions_are_taken_away(self) -> None:
        self.ledger.released()
        self.owned = {}
        self.is_fenced = True

    @rule(data=st.data())
    @precondition(lambda self: not self.owned)
    def another_router_commits(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(PARTITIONS))
        left = [o for o in self.log[partition] if self.results[RecordId(partition, o)] == 0]
        done = data.draw(st.lists(st.sampled_from(left), unique=True)) if left else []
        self.results.update(RecordId(partition, offset) for offset in done)
        self.group[partition] = self.obvious(partition)

    def obvious(self, partition: int) -> CommittedOffsets:
        """The group's state as a list of single offsets."""
        finished = [o for o in self.log[partition] if self.results[RecordId(partition, o)] == 1]
        open_ = [o for o in self.log[partition] if self.results[RecordId(partition, o)] == 0]
        first = open_[0] if open_ else (finished[-1] + 1 if finished else 0)
        return CommittedOffsets(first, tuple(OffsetRange(o, o) for o in finished if o > first))

    @rule(partitions=st.sets(st.sampled_from(PARTITIONS)))
    @precondition(lambda self: not self.owned)
    def partitions_are_assigned(self, partitions: set[int]) -> None:
        given_up = self.ledger.assigned({p: self.group[p] for p in partitions})
        known = self.asked | self.answered
        ours = {r for r in known if r.partition in partitions and not self.group[r.partition].covers(r.offset)}
        assert set(given_up) == self.asked - ours
        self.asked, self.answered = self.asked & ours, self.answered & ours
        self.owned = {p: sum(o < (self.group[p].offset or 0) for o in self.log[p]) for p in partitions}

    @rule()
    def the_router_is_killed(self) -> None:
        self.ledger = Ledger()
        self.asked, self.answered, self.owned, self.batch = set(), set(), {}, None

    @invariant()
    def nothing_is_committed_twice_and_counts_agree(self) -> None:
        assert all(count == 1 for count in self.results.values())
        assert self.ledger.load().in_flight == len(self.asked)
        assert self.ledger.load().uncommitted >= 0
        assert (self.ledger.load().uncommitted == 0) == (self.ledger.uncommitted_bytes == 0)

    def teardown(self) -> None:
        """Whatever happened: once all partitions are ours and everything is answered, each is committed once."""
        if self.batch is not None:
            self.the_transaction_ends()
        self.ledger.released()
        self.partitions_are_assigned(set(PARTITIONS))
        while left := self.deliverable():
            self.deliver(left[0])
        for record_id in sorted(self.asked):
            self.answer(record_id)
        self.a_transaction_begins()
        if self.batch is not None:
            self.the_transaction_ends()
        assert self.ledger.load().uncommitted == self.ledger.load().in_flight == 0
        for partition, offsets in self.log.items():
            assert all(self.results[RecordId(partition, offset)] == 1 for offset in offsets)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=40, stateful_step_count=50)


def owning(*committed: int | None) -> Ledger:
    """Return a ledger that owns a partition for each of these committed offsets."""
    ledger = Ledger()
    ledger.assigned({partition: CommittedOffsets(offset) for partition, offset in enumerate(committed)})
    return ledger


def finish(ledger: Ledger, partition: int, offsets: Iterable[int]) -> None:
    for offset in offsets:
        assert ledger.finished(outcome(partition, offset))


def take(ledger: Ledger, metadata_chars: int = MAX_METADATA_CHARS) -> CommitBatch:
    batch = ledger.take(metadata_chars)
    assert batch is not None
    return batch


def test_done_offsets_beyond_the_metadata_wait() -> None:
    ledger = owning(0, 0)
    asked = [RecordId(0, offset) for offset in range(200)] + [RecordId(1, 0)]
    assert all(ledger.delivered(*record_id) for record_id in asked)
    finish(ledger, 0, range(1, 200, 2))
    finish(ledger, 1, [0])
    batch = take(ledger, metadata_chars=40)
    assert 0 < len(batch.ids) < 101
    assert RecordId(1, 0) in batch.ids, "the other partition goes on"
    assert ledger.congested == {0}
    assert all(len(commit.metadata) <= 40 for commit in batch.offsets.values())
    ledger.committed(batch)
    finish(ledger, 0, range(0, 200, 2))
    last = take(ledger, metadata_chars=40)
    assert ledger.congested == frozenset()
    assert last.offsets[0] == (200, "")
    assert sorted([*batch.ids, *last.ids]) == asked


def test_a_full_default_router_never_outgrows_the_metadata() -> None:
    ledger = owning(0)
    for offset in range(256 * 300):
        ledger.delivered(0, offset)
        if offset % 300:
            finish(ledger, 0, [offset])
    batch = take(ledger)
    assert len(batch.ids) == 256 * 299
    assert len(batch.offsets[0].metadata) <= MAX_METADATA_CHARS


def test_nothing_is_committed_when_nothing_happened() -> None:
    ledger = owning(7, None)
    assert ledger.take() is None
    ledger.delivered(0, 7)
    assert ledger.take() is None


def test_the_end_of_the_log_behind_a_marker_is_committed_once() -> None:
    ledger = owning(17)
    ledger.advance({0: 18, 5: 9})
    batch = take(ledger)
    assert batch.offsets == {0: (18, "")}
    ledger.committed(batch)
    assert ledger.committable(0) == 18
    assert ledger.take() is None


@pytest.mark.parametrize("took_place", [True, False])
def test_an_end_that_nobody_saw_is_told_by_the_group(took_place: bool) -> None:
    """What the group's offsets cover is done; the rest goes into the next transaction, and nothing is asked anew."""
    ledger = owning(0, 0)
    for partition in (0, 1):
        assert ledger.delivered(partition, 0)
        finish(ledger, partition, [0])
    batch = take(ledger)
    # Of partition 1 the group says nothing: that counts as not committed.
    ledger.settled(batch, {0: group_after(batch)[0]} if took_place else {})
    assert take(ledger).ids == (batch.ids[1:] if took_place else batch.ids)


def test_answer_after_revocation_is_dropped() -> None:
    ledger = owning(0)
    ledger.delivered(0, 0)
    assert ledger.assigned({}) == (RecordId(0, 0),)
    assert not ledger.finished(outcome(0, 0))
    assert ledger.load() == (0, 0)


def test_a_result_whose_query_the_log_no_longer_holds_is_dropped() -> None:
    ledger = owning(0)
    ledger.delivered(0, 0)
    finish(ledger, 0, [0])
    ledger.released()
    ledger.assigned({0: CommittedOffsets(0)})
    ledger.delivered(0, 9)
    ledger.take()
    assert ledger.load().uncommitted == 0
