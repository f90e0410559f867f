"""What may be committed never covers an offset that was delivered and is not done."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.commit.done_offsets import CommittedOffsets, CompletionTracker, OffsetRange
from stream_router.errors import OffsetsWentBack

#: Offsets of a log with gaps, increasing.
LOGS = st.lists(st.integers(1, 4), min_size=1, max_size=60).map(lambda steps: [end - 1 for end in accumulate(steps)])


@given(LOGS, st.data())
def test_a_commit_covers_exactly_what_is_done(log: list[int], data: st.DataObject) -> None:
    frontier = CompletionTracker(0)
    done: set[int] = set()
    for number, offset in enumerate(log, 1):
        assert frontier.deliver(offset)
        delivered = st.sampled_from(log[:number])
        for finished in data.draw(st.sets(delivered, max_size=2)) - done:
            frontier.done(finished)
            done.add(finished)
        also = data.draw(st.frozensets(delivered, max_size=3))
        commit = frontier.commit(also)
        assert commit is not None
        assert {o for o in log[:number] if CommittedOffsets(*commit).covers(o)} == done | also


@given(LOGS, st.data())
def test_after_a_restart_exactly_the_unfinished_are_answered(log: list[int], data: st.DataObject) -> None:
    read = log[: data.draw(st.integers(1, len(log)))]
    done = data.draw(st.frozensets(st.sampled_from(read)))
    first = CompletionTracker(0)
    for offset in read:
        first.deliver(offset)
    commit = first.commit(done)
    assert commit is not None
    left = [offset for offset in log if offset >= commit[0]]
    second = CompletionTracker(*commit)
    assert [offset for offset in left if second.deliver(offset)] == [offset for offset in left if offset not in done]


Spans = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("committed", "ahead", "delivered", "also_done", "first", "ranges"),
    [
        pytest.param(5, [(7, 100)], [5], {5}, 6, [(7, 100)], id="done ranges stay until they are redelivered"),
        pytest.param(5, [(7, 100)], [5, 6], {6}, 5, [(6, 100)], id="what becomes done joins the range behind it"),
        pytest.param(5, [(8, 8)], [5, 6], {6}, 5, [(6, 6), (8, 8)], id="a gap before a done offset stays open"),
        pytest.param(5, [(8, 100)], [5, 6], {6}, 5, [(6, 6), (8, 100)], id="a gap before a done range stays open"),
        pytest.param(0, [], range(0, 100, 2), {}, 0, [], id="markers between unfinished offsets make no ranges"),
        pytest.param(500, [(501, 600)], [0], {0}, 1, [], id="a log cut below the committed offset starts anew"),
        pytest.param(5, [(6, 8)], [20], {20}, 21, [], id="ranges that the log no longer holds are forgotten"),
    ],
)
def test_what_is_committed_follows_from_what_was_delivered(
    committed: int, ahead: Spans, delivered: list[int], also_done: set[int], first: int, ranges: Spans
) -> None:
    frontier = CompletionTracker(committed, [OffsetRange(*span) for span in ahead])
    assert all(frontier.deliver(offset) for offset in delivered)
    assert frontier.commit(also_done) == (first, tuple(ranges))


def test_the_commit_reaches_the_end_of_the_log_behind_a_marker() -> None:
    frontier = CompletionTracker(16)
    frontier.deliver(16)
    frontier.advance(18)
    assert frontier.commit() == (16, ())
    assert frontier.commit({16}) == (18, ())


def test_offsets_that_go_back_while_reading_stop_the_router() -> None:
    frontier = CompletionTracker(0)
    frontier.deliver(7)
    with pytest.raises(OffsetsWentBack, match="offset 3 came after 7"):
        frontier.deliver(3)
    assert frontier.commit({7}) == (8, ())
