"""One suite over both brokers: what a service may rely on holds in memory as it does on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Thread

import pytest

from schemas.topics import Topic
from tests.support.broker_labs import (
    DEADLINE_S,
    INPUT,
    MAX_BYTES,
    OUTPUT,
    STATE,
    KafkaLab,
    Lab,
    MemoryLab,
    Notes,
    collect,
    drive,
)
from ucci_runtime.broker.errors import Fenced, OffsetsBeyondLog
from ucci_runtime.broker.ports import (
    Aborted,
    CommitEnd,
    Committed,
    GroupReader,
    TopicReader,
    TransactionSession,
    Unknown,
)
from ucci_runtime.broker.records import EndReached, Input, OffsetCommit, OutputRecord, Record

GROUP = "join"


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
def lab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Either broker, with topics of this test's own."""
    if request.param == "memory":
        return MemoryLab(monkeypatch)
    return KafkaLab(request.getfixturevalue("broker").bootstrap, monkeypatch)


@pytest.fixture
def member(lab: Lab) -> Iterator[Member]:
    """A process that has joined the group, and was given all partitions."""
    made = Member(lab)
    yield made
    made.close()


class Member:
    """One process: a group reader that has its partitions, and the session beside it."""

    def __init__(self, lab: Lab, instance_id: str = "a", notes: Notes | None = None) -> None:
        self.lab = lab
        self.broker = lab.process(instance_id)
        self.notes = notes or Notes()
        self.reader: GroupReader = self.broker.group_reader(GROUP, [self.topic(INPUT)])
        self.session: TransactionSession = self.broker.session(GROUP)
        self.session.start()
        self.reader.subscribe(self.notes)
        if instance_id == "a":
            drive([self.reader], lambda: len(self.notes.committed) == 2)

    def topic(self, topic: Topic) -> str:
        return topic.name(self.lab.prefix)

    def input(self, partition: int = 0) -> Input:
        return Input(self.topic(INPUT), partition)

    def output(self, value: bytes) -> OutputRecord:
        return OutputRecord(self.topic(OUTPUT), b"k", value)

    def commit(self, records: list[OutputRecord], offsets: dict[Input, OffsetCommit]) -> CommitEnd:
        return self.session.commit(records, offsets, self.reader.group())

    def close(self) -> None:
        self.reader.close()
        self.session.close()

    def close_alone(self) -> None:
        """Close after another member has: once its partitions have come over.

        A rebalance that ends within the client's own close can freeze the whole process: see
        ``KafkaGroupReader._close_client``.
        """
        self.notes.committed.clear()
        drive([self.reader], lambda: len(self.notes.committed) == 2)
        self.close()


def values(lab: Lab, topic: Topic) -> list[bytes | None]:
    """Return what a reader that starts now finds committed."""
    reader = lab.process("checker").topic_reader("checker", [topic.name(lab.prefix)])
    try:
        return [record.value for record in reader.up_to_end()]
    finally:
        reader.close()


def taken(reader: TopicReader, count: int) -> list[Record]:
    """Poll until so many records have come."""
    found: list[Record] = []
    for _ in range(1_000):
        found += reader.poll(0.05)
        if len(found) >= count:
            break
    return found


# --- transactions ---


def test_a_commit_shows_records_and_offsets_together(lab: Lab, member: Member) -> None:
    """With a note of up to 4,000 characters beside an offset."""
    offsets = {member.input(0): OffsetCommit(3, "x" * 4_000), member.input(1): OffsetCommit(0)}
    record = OutputRecord(member.topic(OUTPUT), b"k", b"v", (("h", b"1"), ("none", None)))
    lab.append(member.input(0), b"1", b"2", b"3")
    assert member.commit([record], offsets) == Committed((record,))
    (found,) = lab.process("checker").topic_reader("checker", [member.topic(OUTPUT)]).up_to_end()
    assert (found.key, found.value, found.headers) == (b"k", b"v", record.headers)
    member.reader.rewind()
    assert member.notes.committed == offsets


def test_an_aborted_transaction_shows_nothing(lab: Lab, member: Member) -> None:
    """Its offsets are too large for the broker; the next transaction of the same session works."""
    refusal = member.commit([member.output(b"lost")], {member.input(): OffsetCommit(1, "x" * 6_000)})
    assert isinstance(refusal, Aborted)
    assert refusal.is_metadata_too_long, "the same commit would be refused for ever"
    assert isinstance(member.commit([member.output(b"kept")], {member.input(): OffsetCommit(1)}), Committed)
    assert values(lab, OUTPUT) == [b"kept"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_unseen_end_is_found_in_the_groups_offsets(lab: Lab, member: Member, *, is_committed: bool) -> None:
    lab.unseen(is_committed=is_committed)
    offset = OffsetCommit(5, "done")
    end = member.commit([member.output(b"first")], {member.input(): offset})
    assert isinstance(end, Unknown)
    assert end.offsets == {member.input(): offset if is_committed else None}
    assert isinstance(member.commit([member.output(b"second")], {member.input(): offset}), Committed)
    assert values(lab, OUTPUT) == [b"first", b"second"][not is_committed :]


def test_a_newer_process_of_the_same_name_fences_the_older(lab: Lab, member: Member) -> None:
    newer = Member(lab, "a")
    assert newer.notes.events == ["assigned"]
    with pytest.raises(Fenced):
        drive([member.reader], lambda: False)
    with pytest.raises(Fenced):
        member.commit([member.output(b"old")], {member.input(): OffsetCommit(1)})
    assert isinstance(newer.commit([newer.output(b"new")], {newer.input(): OffsetCommit(1)}), Committed)
    assert values(lab, OUTPUT) == [b"new"]
    newer.close()


def test_a_record_too_large_is_written_as_what_it_names_instead(lab: Lab, member: Member) -> None:
    limits: list[int] = []

    def smaller(limit: int) -> OutputRecord:
        limits.append(limit)
        return member.output(b"small")

    large = OutputRecord(member.topic(OUTPUT), b"k", b"x" * (MAX_BYTES + 5_000), instead=smaller)
    plain = member.output(b"plain")
    end = member.commit([plain, large], {member.input(): OffsetCommit(1)})
    assert end == Committed((plain, member.output(b"small")))
    assert [MAX_BYTES - 1_000 < limit <= MAX_BYTES for limit in limits] == [True]
    assert values(lab, OUTPUT) == [b"plain", b"small"]


def test_a_record_too_large_without_another_writes_nothing(lab: Lab, member: Member) -> None:
    large = OutputRecord(member.topic(OUTPUT), b"k", b"x" * (MAX_BYTES + 5_000))
    offsets = {member.input(): OffsetCommit(1)}
    end = member.commit([member.output(b"plain"), large], offsets)
    assert isinstance(end, Unknown)
    assert end.offsets == {member.input(): None}
    assert isinstance(member.commit([], offsets), Committed)
    assert values(lab, OUTPUT) == []


# --- isolation ---


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_open_transaction_hides_what_comes_after_it(lab: Lab, member: Member, *, is_committed: bool) -> None:
    source = member.input()
    lab.append(source, b"before")
    end = lab.open_transaction(source, b"open")
    lab.append(source, b"after")
    found = collect(member.reader, 1)
    found += [item for item in member.reader.poll(0.5) if isinstance(item, Record)]
    assert [record.value for record in found] == [b"before"]
    end(is_committed)
    expected = [b"open", b"after"] if is_committed else [b"after"]
    assert [record.value for record in collect(member.reader, len(expected))] == expected


def test_the_end_of_a_partition_lies_behind_its_markers(lab: Lab, member: Member) -> None:
    """A group that commits it has no lag, though no record stands at the last offset."""
    source = member.input()
    for is_committed in (True, False):
        lab.open_transaction(source, b"in a transaction")(is_committed)
    seen: list[EndReached] = []

    def at_end() -> bool:
        seen.extend(item for item in member.reader.poll(0.05) if isinstance(item, EndReached))
        return EndReached(source, 4) in seen

    drive([], at_end)
    member.commit([], {source: OffsetCommit(4)})
    member.reader.rewind()
    assert member.notes.committed[source] == OffsetCommit(4)
    assert member.reader.lag({source: 4})[source].records == 0


# --- reading ---


def test_a_poll_returns_no_more_than_it_is_asked_for(lab: Lab, member: Member) -> None:
    lab.append(member.input(), *(b"%d" % number for number in range(50)))
    found: list[Record] = []
    while len(found) < 50:
        items = member.reader.poll(0.05, 3)
        assert len(items) <= 3
        found += [item for item in items if isinstance(item, Record)]
    assert [record.offset for record in found] == list(range(50))


def test_a_paused_partition_is_silent_until_it_is_resumed(lab: Lab, member: Member) -> None:
    """Or assigned anew."""
    member.reader.pause([member.input(0)])
    lab.append(member.input(0), b"paused")
    lab.append(member.input(1), b"flowing")
    assert [record.value for record in collect(member.reader, 1)] == [b"flowing"]
    assert not [item for item in member.reader.poll(0.3) if isinstance(item, Record)]
    member.reader.resume([member.input(0)])
    assert [record.value for record in collect(member.reader, 1)] == [b"paused"]
    member.reader.pause([member.input(0)])
    member.reader.rewind()
    assert {record.value for record in collect(member.reader, 2)} == {b"paused", b"flowing"}


def test_a_rewind_delivers_again_what_is_not_committed(lab: Lab, member: Member) -> None:
    lab.append(member.input(), b"0", b"1", b"2")
    collect(member.reader, 3)
    member.commit([], {member.input(): OffsetCommit(1)})
    member.reader.rewind()
    assert [record.value for record in collect(member.reader, 2)] == [b"1", b"2"]


def test_log_made_anew_was_taken_again_without_a_word(lab: Lab, member: Member) -> None:
    """A group beyond the end of its log, made anew or restored, began again at the log's beginning."""
    lab.append(member.input(), *(b"%d" % number for number in range(3)))
    member.commit([], {member.input(): OffsetCommit(50)})
    member.close()
    again = Member(lab, "a")
    with pytest.raises(OffsetsBeyondLog, match=r"input, partition 0: .* before offset 50, and the log ends at 3: .*"):
        drive([again.reader], lambda: False)


def test_records_deleted_before_they_were_taken_count(lab: Lab, member: Member) -> None:
    """A stopped consumer that retention has overtaken went on behind the gap without a word."""
    lab.append(member.input(), *(b"%d" % number for number in range(6)))
    collect(member.reader, 6)
    member.commit([], {member.input(): OffsetCommit(1)})
    member.close()
    lab.cut(member.input(), 4)
    again = Member(lab, "a")
    assert [record.offset for record in collect(again.reader, 2)] == [4, 5]
    assert lab.counts["records_lost"] == 3
    again.close()


def test_a_pause_outlasts_what_another_partition_has_lost(lab: Lab, member: Member) -> None:
    """An offset that the log has lost means its beginning."""
    lab.append(member.input(0), *(b"%d" % number for number in range(6)))
    lab.append(member.input(1), b"paused")
    lab.cut(member.input(0), 4)
    member.reader.read_from({member.input(0): 1, member.input(1): 0})
    member.reader.pause([member.input(1)])
    assert [record.offset for record in collect(member.reader, 2)] == [4, 5]
    assert not [item for item in member.reader.poll(0.3) if isinstance(item, Record)]


def test_headers_that_are_not_utf8_are_left_out_and_named(lab: Lab, member: Member) -> None:
    lab.append_with_bad_headers(member.input(), 20)
    found = collect(member.reader, 40)
    bad = [record for record in found if record.key == b"bad"]
    assert {(record.headers, bool(record.headers_fault)) for record in bad} == {((), True)}
    assert {record.headers for record in found if record.key == b"good"} == {(("good", b"1"),)}


# --- rebalances ---


def test_rebalance_refuses_stale_batches(lab: Lab, member: Member) -> None:
    """A second member takes its share of the partitions, and stale batches are refused.

    What the first member took before it lost a partition cannot be committed under its old membership.
    """
    stale = member.reader.group()
    second = Member(lab, "b")
    both = [member.reader, second.reader]
    drive(both, lambda: len(member.notes.committed) == 1 and len(second.notes.committed) == 1)
    assert member.notes.events == ["assigned", "revoked", "assigned"]
    assert not member.notes.committed.keys() & second.notes.committed.keys()
    lost = next(iter(second.notes.committed))
    offsets = {lost: OffsetCommit(9)}
    assert isinstance(member.session.commit([member.output(b"stale")], offsets, stale), Aborted)
    assert isinstance(second.commit([second.output(b"new")], offsets), Committed)
    assert values(lab, OUTPUT) == [b"new"]
    second.close()


def test_a_revoked_member_can_still_commit_what_it_took(lab: Lab) -> None:
    ends: list[CommitEnd] = []

    class Leaving(Notes):
        def revoked(self) -> None:
            offsets = {first.input(0): OffsetCommit(4), first.input(1): OffsetCommit(4)}
            ends.append(first.commit([first.output(b"in time")], offsets))
            super().revoked()

    first = Member(lab, "a", Leaving())
    for partition in (0, 1):
        lab.append(first.input(partition), *[b"taken"] * 4)
    second = Member(lab, "b")
    drive([first.reader, second.reader], lambda: len(second.notes.committed) == 1)
    assert [type(end) for end in ends] == [Committed]
    assert next(iter(second.notes.committed.values())) == OffsetCommit(4)
    second.close()
    first.close_alone()


def test_a_member_that_leaves_amid_a_rebalance_takes_nothing(lab: Lab) -> None:
    """It asked the group's offsets of a client that was closing, again and again for minutes."""
    first, second = Member(lab, "a"), Member(lab, "b")
    drive([first.reader, second.reader], lambda: len(second.notes.committed) == 1)
    leaving = first if first.notes.events[-1] == "revoked" else second
    events = list(leaving.notes.events)
    leaving.close()
    assert leaving.notes.events in (events, [*events, "revoked"])
    (second if leaving is first else first).close_alone()


def test_a_stopped_member_leaves_its_partitions_standing(lab: Lab) -> None:
    """The others had to wait for the end of its session, though it had ended in good order."""
    lab.make_sessions_endless()
    first, second = Member(lab, "a"), Member(lab, "b")
    both = [first.reader, second.reader]
    drive(both, lambda: len(first.notes.committed) == 1 and len(second.notes.committed) == 1)
    first.close()
    drive([second.reader], lambda: len(second.notes.committed) == 2)
    second.close()


def test_a_member_that_left_amid_a_rebalance_kept_its_place(lab: Lab) -> None:
    """Two were scaled in at once: the second asked to join anew when it was stopped, and its partitions stood still."""
    lab.make_sessions_endless()
    stays, second, first = [Member(lab, name) for name in "abc"]
    drive(
        [stays.reader, second.reader, first.reader],
        lambda: len(stays.notes.committed) == 1 and "assigned" in first.notes.events,
    )
    first.close()
    drive([second.reader], lambda: second.notes.events[-1] == "revoked")
    ending = Thread(target=second.close)
    ending.start()
    try:
        drive([stays.reader], lambda: len(stays.notes.committed) == 2)
    finally:
        ending.join(DEADLINE_S)
    assert lab.members(GROUP) == ["a"]
    stays.close()


def test_a_restart_finds_its_partitions_and_offsets(lab: Lab, member: Member) -> None:
    """It needs no rebalance, which a broker delays while a group is new: who is alone keeps its place."""
    member.commit([], {member.input(): OffsetCommit(2, "x")})
    member.close()
    assert lab.members(GROUP) == ["a"]
    again = Member(lab, "a")
    assert again.notes.events == ["assigned"]
    assert again.notes.committed == {again.input(0): OffsetCommit(2, "x"), again.input(1): None}
    again.close()


# --- whole topics ---


def test_a_late_reader_reads_a_topic_from_its_beginning(lab: Lab, member: Member) -> None:
    """A reader of the tail begins near the end instead."""
    source = Input(member.topic(STATE), 0)
    lab.append(source, b"1", b"2")
    reader = lab.process("late").topic_reader("late", [member.topic(STATE), member.topic(OUTPUT)])
    assert [record.value for record in taken(reader, 2)] == [b"1", b"2"]
    for _ in range(200):
        if reader.has_reached_ends:
            break
        assert not list(reader.poll(0.05))
    assert reader.has_reached_ends, "an empty topic counts as read"
    lab.append(source, *(b"%d" % number for number in range(3, 30)))
    assert [record.value for record in taken(reader, 27)][-1] == b"29"
    reader.close()
    reader = lab.process("tail").topic_reader("tail", [member.topic(STATE)], tail=5)
    assert [record.value for record in taken(reader, 5)] == [b"%d" % number for number in range(25, 30)]
    lab.append(source, b"next")
    assert [record.value for record in taken(reader, 1)] == [b"next"]
    reader.close()


def test_compaction_keeps_the_last_of_each_key_and_tombstones(lab: Lab, member: Member) -> None:
    source = Input(member.topic(STATE), 0)
    for number in range(5):
        lab.append(source, b"%d" % number, key=b"changing")
        lab.append(source, b"%d" % number, key=b"deleted")
    lab.append(source, None, key=b"deleted")
    lab.append(source, b"last", key=b"other")
    lab.compact(STATE)
    reader = lab.process("late").topic_reader("late", [source.topic])
    found = [record for record in reader.up_to_end() if record.key != b"filler"]
    assert {record.key: record.value for record in found} == {b"changing": b"4", b"deleted": None, b"other": b"last"}
    assert len(found) < 12
    assert [record.offset for record in found] == sorted(record.offset for record in found)
    reader.close()


# --- single records ---


async def test_a_published_record_is_there_when_it_is_acknowledged(lab: Lab) -> None:
    publisher = (await asyncio.to_thread(lab.process)).publisher("api-producer")
    await publisher.queue(OUTPUT.name(lab.prefix), b"k", b"v", {"h": b"1"})
    assert await asyncio.to_thread(values, lab, OUTPUT) == [b"v"]
    assert publisher.post(OUTPUT.name(lab.prefix), b"k", b"w")
    await asyncio.to_thread(publisher.close)
    assert await asyncio.to_thread(values, lab, OUTPUT) == [b"v", b"w"]
