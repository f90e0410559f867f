"""What may be committed never covers an offset that was delivered and is not done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.commit.done_offsets import CompletionTracker, OffsetRange
from stream_router.errors import OffsetsWentBack


def covered(commit: tuple[int, tuple[OffsetRange, ...]], offset: int) -> bool:
    first, ranges = commit
    return offset < first or any(low <= offset <= high for low, high in ranges)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=60), st.data())
def test_a_commit_covers_exactly_what_is_done(steps: list[int], data: st.DataObject) -> None:
    frontier = CompletionTracker(0)
    delivered, offset = [], -1
    done: set[int] = set()
    for step in steps:
        offset += step
        assert frontier.deliver(offset)
        delivered.append(offset)
        for finished in data.draw(st.lists(st.sampled_from(delivered), max_size=2)):
            if finished not in done:
                frontier.done(finished)
                done.add(finished)
        also = frozenset(data.draw(st.lists(st.sampled_from(delivered), max_size=3)))
        commit = frontier.commit(also)
        assert commit is not None
        assert {o for o in delivered if covered(commit, o)} == done | also


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.data())
def test_after_a_restart_exactly_the_unfinished_are_answered(steps: list[int], data: st.DataObject) -> None:
    offsets, offset = [], -1
    for step in steps:
        offset += step
        offsets.append(offset)
    read = data.draw(st.integers(1, len(offsets)))
    done = frozenset(data.draw(st.lists(st.sampled_from(offsets[:read]))))
    first = CompletionTracker(0)
    for each in offsets[:read]:
        first.deliver(each)
    commit = first.commit(done)
    assert commit is not None
    second = CompletionTracker(*commit)
    asked = [each for each in offsets if each >= commit[0] and second.deliver(each)]
    assert asked == [each for each in offsets if each not in done and each >= commit[0]]


def test_done_ranges_stay_until_redelivered() -> None:
    frontier = CompletionTracker(5, [OffsetRange(7, 100)])
    assert frontier.deliver(5)
    assert frontier.commit({5}) == (6, (OffsetRange(7, 100),))
    assert frontier.deliver(6)
    assert frontier.commit({6}) == (5, (OffsetRange(6, 100),))


@pytest.mark.parametrize("ahead", [OffsetRange(8, 8), OffsetRange(8, 100)])
def test_a_gap_before_a_done_range_stays_open(ahead: OffsetRange) -> None:
    """What was not delivered yet is not done, be it a single offset, and neither is a single one ahead forgotten."""
    frontier = CompletionTracker(5, [ahead])
    assert all(frontier.deliver(offset) for offset in (5, 6))
    assert frontier.commit({6}) == (5, (OffsetRange(6, 6), ahead))


def test_markers_between_unfinished_offsets_make_no_ranges() -> None:
    frontier = CompletionTracker(0)
    for offset in range(0, 100, 2):
        frontier.deliver(offset)
    assert frontier.commit() == (0, ())


def test_the_commit_reaches_the_end_of_the_log_behind_a_marker() -> None:
    frontier = CompletionTracker(16)
    frontier.deliver(16)
    frontier.advance(18)
    assert frontier.commit() == (16, ())
    assert frontier.commit({16}) == (18, ())


def test_no_commit_before_the_first_delivery() -> None:
    assert CompletionTracker(None).commit() is None


def test_a_log_cut_below_the_committed_offset_starts_anew() -> None:
    frontier = CompletionTracker(500, [OffsetRange(501, 600)])
    assert frontier.deliver(0)
    assert frontier.commit({0}) == (1, ())


def test_offsets_that_go_back_while_reading_stop_the_router() -> None:
    frontier = CompletionTracker(0)
    frontier.deliver(7)
    with pytest.raises(OffsetsWentBack, match="offset 3 came after 7"):
        frontier.deliver(3)
    assert frontier.commit({7}) == (8, ())


def test_ranges_that_the_log_no_longer_holds_are_forgotten() -> None:
    frontier = CompletionTracker(5, [OffsetRange(6, 8)])
    assert frontier.deliver(20)
    assert frontier.commit({20}) == (21, ())
