"""A commit covers exactly what is done, and its metadata says what is done beyond the offset, or nothing at all."""

from __future__ import annotations

import base64
from itertools import accumulate
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.commit import done_offsets
from stream_router.commit.done_offsets import CommittedOffsets, CompletionTracker, OffsetRange, decode, encode
from stream_router.errors import OffsetsWentBack
from ucci_runtime.broker.records import Input, OffsetCommit

committed_offsets = st.integers(0, 2**60)
#: Offsets of a log with gaps, increasing.
LOGS = st.lists(st.integers(1, 4), min_size=1, max_size=60).map(lambda steps: [end - 1 for end in accumulate(steps)])

Written = tuple[int, tuple[OffsetRange, ...]]


@st.composite
def range_sets(draw: st.DrawFn) -> Written:
    committed = draw(committed_offsets)
    ranges, end = [], committed
    for distance, length in draw(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), max_size=40)):
        ranges.append(OffsetRange(end + distance, end + distance + length))
        end = ranges[-1].last + 1
    return committed, tuple(ranges)


@given(range_sets())
def test_what_was_written_is_read_back(written: Written) -> None:
    assert decode(written[0], encode(*written)) == written[1]


@given(range_sets(), committed_offsets)
def test_metadata_of_another_offset_counts_as_none(written: Written, other: int) -> None:
    if written[1] and other != written[0]:
        assert decode(other, encode(*written)) is None


@given(st.text(max_size=200))
def test_foreign_text_never_becomes_offsets(text: str) -> None:
    assert decode(5, text) in ((), None)


def test_what_others_noted_beside_an_offset_is_told_and_left() -> None:
    """The offset itself counts: a group that another program committed for is taken over from there."""
    foreign: list[Input] = []
    found = {Input("queries", 0): OffsetCommit(7, "someone else's note"), Input("queries", 1): None}
    read = done_offsets.committed_offsets(found, lambda source, _: foreign.append(source))
    assert read == {0: CommittedOffsets(7), 1: CommittedOffsets(None)}
    assert foreign == [Input("queries", 0)]


@given(range_sets(), st.data())
def test_a_changed_character_is_noticed(written: Written, data: st.DataObject) -> None:
    committed, ranges = written
    text = encode(committed, ranges)
    if not text:
        return
    position = data.draw(st.integers(0, len(text) - 2))
    other = data.draw(st.sampled_from("ABCDEFxyz019-_").filter(lambda c: c != text[position]))
    assert decode(committed, text[:position] + other + text[position + 1 :]) in (None, ranges)


def test_no_metadata_and_no_ranges_are_the_same() -> None:
    assert encode(9, ()) == ""
    assert decode(9, "") == decode(9, None) == ()


def test_a_slow_query_among_a_million_costs_a_few_characters() -> None:
    assert len(encode(0, [OffsetRange(1, 1_000_000)])) < 20


@pytest.mark.parametrize("ranges", [[OffsetRange(4, 6)], [OffsetRange(6, 5)], [OffsetRange(5, 7), OffsetRange(7, 8)]])
def test_ranges_that_contradict_themselves_are_not_written(ranges: list[OffsetRange]) -> None:
    with pytest.raises(ValueError, match="empty, overlaps or lies below"):
        encode(5, ranges)


def test_a_body_that_ends_within_a_number_counts_as_none() -> None:
    whole = encode(0, [OffsetRange(300, 600)])
    cut = base64.urlsafe_b64decode(whole[1:] + "=" * (-len(whole[1:]) % 4))[:-1]
    for data in (cut, crc32(bytes(8)).to_bytes(4, "big")):  # the other is a checksum of no ranges
        assert decode(0, "1" + base64.urlsafe_b64encode(data).decode().rstrip("=")) is None


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


def test_offsets_that_go_back_while_reading_stop_the_router() -> None:
    frontier = CompletionTracker(0)
    frontier.deliver(7)
    with pytest.raises(OffsetsWentBack, match="offset 3 came after 7"):
        frontier.deliver(3)
    assert frontier.commit({7}) == (8, ())


@given(LOGS, st.data())
def test_a_commit_covers_exactly_what_is_done(log: list[int], data: st.DataObject) -> None:
    frontier, done = CompletionTracker(0), set[int]()
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
