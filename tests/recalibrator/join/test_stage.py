"""The join's loop, driven through crashes, aborts and rebalances: each output once, none lost."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recalibrator.errors import DiskFull, HomesChanged
from recalibrator.join.broker_time import to_ms
from recalibrator.join.joining import Joining, JoinTopics
from recalibrator.join.placement import home_of
from recalibrator.join.query_state import MAX_LABELERS
from recalibrator.join.sqlite_store import RowBounds, SqliteJoinStore
from recalibrator.join.stage import JoinLimits, JoinStage
from schemas.event import MAX_RECORD_BYTES
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.labelled import LabelledExample
from schemas.routed import LabelRequest, RoutedEvent
from schemas.status import LabelsWithoutResult
from schemas.traffic import TrafficSummary
from tests.support.cores import present
from tests.support.recalibrator_events import START, entities, feedback, routed, workload
from tests.support.recalibrator_memory import FAULTS, Counts, Crash, Fate, ManualClock, MemoryBroker, MemoryLog
from tests.support.recalibrator_memory import MemoryTransactions as Transactions
from ucci_runtime.broker.records import Input, OutputRecord

TOPICS = JoinTopics("results", "feedback", "repartition", "observations", "dead-letters", "label-requests")
PHOTO = workload(trusted_labelers=("ann",))
BOUNDS = RowBounds(1_000, 10**9)
UNASKED = LabelRequest(requested=False, probability=0.1)
PARTITIONS = 2
START_MS = int(START.timestamp() * 1_000)


def topic_of(event: RoutedEvent | FeedbackEvent) -> str:
    return TOPICS.results if isinstance(event, RoutedEvent) else TOPICS.feedback


class Join:
    """A join on memory and a real store; crashed, rebalanced and made anew at will."""

    def __init__(
        self,
        directory: Path,
        seed: int = 0,
        faults: int = 0,
        bounds: RowBounds = BOUNDS,
        max_record_bytes: int = MAX_RECORD_BYTES,
        **limits: Any,
    ) -> None:
        self.directory = directory
        self.bounds = bounds
        self.max_record_bytes = max_record_bytes
        self.workloads = {"photo": PHOTO}
        self.draw = random.Random(seed)
        self.budget: list[Fate] = [self.draw.choice(FAULTS) for _ in range(faults)]
        self.limits = JoinLimits(**limits)
        self.clock = ManualClock()
        self.count = Counts()
        self.broker = MemoryBroker(self.clock)
        self.broker.create(TOPICS.repartition, PARTITIONS)
        self.broker.create(TOPICS.results, PARTITIONS)
        self.broker.create(TOPICS.feedback, PARTITIONS)
        self.begin()

    def begin(self) -> None:
        self.store = SqliteJoinStore(self.directory / "join.sqlite3", self.bounds)
        inputs = (TOPICS.repartition, TOPICS.results, TOPICS.feedback)
        self.log = MemoryLog(self.broker, inputs, self.draw, self.clock)
        self.stage = JoinStage(
            Joining(self.workloads, TOPICS, self.max_record_bytes),
            self.limits,
            log=self.log,
            transactions=Transactions(self.broker, self.draw, self.budget),
            store=self.store,
            clock=self.clock,
            count=self.count,
        )
        self.stage.start()

    def crash(self, *, lose_state: bool = False) -> None:
        self.store.close()
        if lose_state:
            shutil.rmtree(self.directory)
        self.begin()

    def append(self, topic: str, number: int, value: bytes | None, timestamp_ms: int = START_MS, **more: Any) -> None:
        source = Input(topic, home_of(f"q-{number}", PARTITIONS))
        headers, key = (("trace", b"7"),), f"q-{number}".encode()
        self.broker.append(source, key, value, timestamp_ms=timestamp_ms, headers=headers, **more)
        if self.draw.random() < 0.3:
            self.broker.mark(source)

    def send(self, *events: RoutedEvent | FeedbackEvent, **stamp: Any) -> None:
        for event in events:
            self.append(topic_of(event), int(event.query_id.removeprefix("q-")), event.to_json(), **stamp)

    def send_to(self, partition: int, event: RoutedEvent | FeedbackEvent, key: bytes | None = None) -> None:
        """Send an event to a partition that its producer chose."""
        self.broker.append(Input(topic_of(event), partition), key, event.to_json(), timestamp_ms=START_MS)

    def turn(self) -> None:
        try:
            self.stage.turn()
        except Crash:
            self.crash()

    def disturb(self) -> None:
        lose_disk = partial(self.crash, lose_state=True)
        happenings: list[Callable[[], None]] = [self.log.revoke, self.log.lose, self.crash, lose_disk]
        try:
            self.draw.choice(happenings)()
        except Crash:
            self.crash()

    def wait(self, seconds: float) -> None:
        """Let time pass, and take one turn."""
        self.clock.advance(seconds)
        self.turn()

    def settle(self, *events: RoutedEvent | FeedbackEvent, **stamp: Any) -> None:
        """Send these events, and turn until everything is taken and committed."""
        self.send(*events, **stamp)
        for _ in range(2_000):
            self.turn()
            if self.stage.is_ready and self.broker.settled():
                return
        raise AssertionError("did not settle")

    def observations(self, kind: str) -> list[bytes]:
        return [value for value in self.broker.values(TOPICS.observations) if json.loads(value)["kind"] == kind]

    def examples(self) -> list[LabelledExample]:
        return list(map(LabelledExample.from_json, self.observations("labelled")))

    def letters(self) -> list[OutputRecord]:
        return [record for record in self.broker.outputs if record.topic == TOPICS.dead_letters]

    def open_requests(self) -> dict[str, LabelRequested]:
        """What the topic of the label requests holds once compacted."""
        records = [record for record in self.broker.outputs if record.topic == TOPICS.label_requests]
        latest = {(record.key or b"").decode(): record.value for record in records}
        return {key: LabelRequested.from_json(value) for key, value in latest.items() if value is not None}

    def traffic(self) -> list[TrafficSummary]:
        return list(map(TrafficSummary.from_json, self.observations("traffic")))

    def counted_queries(self) -> int:
        return sum(part.queries for one in self.traffic() for part in one.versions)


MakeJoin = Callable[..., Join]


@pytest.fixture
def make_join(tmp_path: Path) -> Iterator[MakeJoin]:
    """Return what makes a join; each is closed at the end."""
    made: list[Join] = []

    def make(**options: Any) -> Join:
        made.append(Join(tmp_path / f"state-{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        one.store.close()


@pytest.fixture
def join(make_join: MakeJoin) -> Join:
    return make_join()


def test_a_lost_store_is_rebuilt_from_the_topics(join: Join) -> None:
    """A correction still finds its result, and nothing comes twice."""
    join.settle(routed(1), feedback(1))
    join.crash(lose_state=True)
    join.settle()
    assert len(join.examples()) == 1
    join.settle(feedback(1, entities("q-1", wrong=True), revision=2))
    assert [example.revision for example in join.examples()] == [1, 2]


def test_a_group_whose_offsets_were_lost_repeats_nothing(join: Join) -> None:
    join.settle(routed(1), feedback(1))
    join.crash()
    join.broker.forget_offsets()
    join.send(routed(2), feedback(2))
    for _ in range(100):
        join.turn()
    assert Counter(example.query_id for example in join.examples()) == {"q-1": 1, "q-2": 1}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "not_json"),
        (b'"' + b"x" * MAX_RECORD_BYTES + b'"', "too_large"),
        (None, "empty"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_malformed_feedback_becomes_a_dead_letter_with_reason(join: Join, value: bytes | None, reason: str) -> None:
    join.append(TOPICS.feedback, 3, value)
    join.settle()
    (letter,) = join.letters()
    headers = dict(letter.headers)
    assert (letter.key, bool(headers.pop("dlq.error"))) == (b"q-3", True)
    cut = headers.pop("dlq.truncated", None)
    assert cut == (f"value of {MAX_RECORD_BYTES + 2} bytes".encode() if reason == "too_large" else None)
    assert letter.value == value or cut
    place = {"dlq.topic": b"feedback", "dlq.partition": b"0", "dlq.offset": b"0"}
    assert headers == {"trace": b"7", "dlq.stage": b"join", "dlq.reason": reason.encode(), **place}


@pytest.mark.parametrize("seed", range(4))
def test_feedback_beyond_a_querys_limit_is_dead_lettered(make_join: MakeJoin, seed: int) -> None:
    """Once for each record, naming the limit, also where a commit fails or the store is lost."""
    join = make_join(seed=seed, faults=8)
    join.settle(routed(1), *(feedback(1, labeler=f"labeler {number}") for number in range(MAX_LABELERS + 2)))
    join.disturb()
    join.settle()
    letters = [dict(record.headers) for record in join.letters()]
    assert [letter["dlq.reason"] for letter in letters] == [b"too_many_labelers"] * 2
    assert b"64 at most" in (letters[0]["dlq.error"] or b"")


def test_a_result_of_an_unknown_workload_is_dead_lettered(join: Join) -> None:
    """The dead letter names the workloads that are configured."""
    join.settle(routed(1, workload="audio"))
    (letter,) = join.letters()
    assert dict(letter.headers)["dlq.reason"] == b"unknown_workload"
    assert b"photo" in (dict(letter.headers)["dlq.error"] or b"")


def test_requests_end_by_age_and_by_number(make_join: MakeJoin) -> None:
    join = make_join(request_retention_s=3_600.0, requests_max=3)
    for number in range(6):
        join.send(routed(number), timestamp_ms=START_MS + number)
    join.settle()
    assert len(join.open_requests()) == 6
    join.wait(60.0)
    assert set(join.open_requests()) == {"q-3", "q-4", "q-5"}
    assert join.stage.gauges()["label_requests_open"] == 3.0
    join.wait(7_200.0)
    assert join.open_requests() == {}
    assert join.count.totals["label_requests expired photo"] == 6.0


@pytest.mark.parametrize("seed", range(8))
def test_however_the_end_of_a_request_fails_it_ends(make_join: MakeJoin, seed: int) -> None:
    join = make_join(seed=seed, requests_max=2)
    for number in range(8):
        join.send(routed(number), timestamp_ms=START_MS + number)
    join.settle()
    join.budget += [join.draw.choice(FAULTS) for _ in range(4)]
    for _ in range(12):
        join.wait(60.0)
    join.budget.clear()
    join.settle()
    join.wait(60.0)
    assert set(join.open_requests()) == {"q-6", "q-7"}


def test_a_request_too_large_for_the_topic_is_counted(make_join: MakeJoin) -> None:
    """And stops nothing."""
    join = make_join(max_record_bytes=2_000)
    join.settle(routed(1, text="x" * 3_000), routed(2))
    assert set(join.open_requests()) == {"q-2"}
    assert join.count.totals["label_requests too_large photo"] == 1.0


def test_an_outage_left_uncommitted_rows_in_memory(join: Join) -> None:
    """The frames of what had not committed hold them, and an error of the client those, as the group is asked again."""
    join.budget += [Fate.ABORT, Fate.UNSEEN_ABORT]
    for number in range(1, 30):
        join.settle(routed(number))
    assert not join.budget
    assert join.log.kept == []


@pytest.mark.parametrize("seed", range(5))
def test_agreement_counts_each_label_once_whatever_fails(make_join: MakeJoin, seed: int) -> None:
    join = make_join(seed=seed, faults=8)
    join.settle(*map(routed, range(30)))
    for number in range(30):
        join.send(feedback(number, labeler="ada" if number % 3 else "bob"))
        if join.draw.random() < 0.3:
            join.turn()
        if join.draw.random() < 0.1:
            join.disturb()
    join.settle()
    join.budget.clear()
    join.stage.commit()

    assert {one.labeler: one.labels for one in join.stage.labels().labelers["photo"]} == {"ada": 20, "bob": 10}


def test_rows_and_labelers_are_forgotten_after_the_retention(make_join: MakeJoin) -> None:
    join = make_join(retention_s=3_600.0)
    join.settle(routed(1), routed(2), feedback(1, labeler="ann"))
    for hours in (0.5, 2):
        join.wait(3_600.0 * hours)
        assert (bool(join.stage.labels().labelers), join.store.size.rows) == ((True, 2) if hours < 1 else (False, 0))
    assert set(join.stage.gauges().values()) == {0.0}


def without_result(join: Join) -> LabelsWithoutResult:
    return present(join.stage.labels().without_result)


HOME = home_of("q-1", PARTITIONS)
ELSEWHERE = 1 - HOME


def test_a_label_in_another_partition_meets_its_result(join: Join) -> None:
    """By the id in its value, and again after the store was lost; its dead letter would name where it was sent."""
    join.settle(routed(1))
    join.send_to(ELSEWHERE, feedback(1), key=b'"q-1"')
    join.settle()
    assert [example.query_id for example in join.examples()] == ["q-1"]
    assert join.count.totals["records_forwarded feedback"] == 1.0
    assert join.stage.labels().forwarded == {TOPICS.feedback: 1}
    join.crash(lose_state=True)
    join.settle(feedback(1, entities("q-1", wrong=True), revision=2))
    assert [example.revision for example in join.examples()] == [1, 2]


def test_a_result_in_another_partition_is_counted_once(join: Join) -> None:
    join.send_to(ELSEWHERE, routed(1))
    join.settle(feedback(1))
    assert (len(join.examples()), join.counted_queries()) == (1, 1)
    assert join.count.totals["records_forwarded results"] == 1.0


def test_partitions_added_while_it_runs_are_read(join: Join) -> None:
    """Corrections of queries that were routed before find them, wherever they come in."""
    join.settle(routed(1), feedback(1))
    join.broker.add_partitions(TOPICS.feedback, 5)
    for partition in range(5):
        join.send_to(partition, feedback(1, entities("q-1", wrong=bool(partition % 2)), revision=2 + partition))
        join.settle()
    assert [example.revision for example in join.examples()] == [1, 2, 3, 4, 5, 6]
    assert join.stage.is_ready


def test_what_an_earlier_release_left_misplaced_counts_once(join: Join) -> None:
    """Its commits carry no note; what it joined, counted as traffic or asked for is not counted again."""
    for event in (routed(1), routed(2)):
        join.send_to(ELSEWHERE, event)
    join.send_to(HOME, feedback(1))
    join.broker.commit_without_notes()
    while not join.examples():
        join.turn()
    join.settle()
    assert [example.query_id for example in join.examples()] == ["q-1"]
    assert join.counted_queries() == 0
    join.crash(lose_state=True)
    join.settle(feedback(2))
    assert [example.query_id for example in join.examples()] == ["q-1", "q-2"]
    assert join.count.totals["records_forwarded results"] == 2.0, "the note is committed: nothing is forwarded again"


def test_homes_of_another_number_end_the_join_with_a_line(join: Join) -> None:
    join.settle(routed(1))
    join.broker.add_partitions(TOPICS.repartition, PARTITIONS + 1)
    join.crash()
    with pytest.raises(HomesChanged, match=r"repartition: has 3 partitions, and the join has placed .* over 2"):
        join.settle()


def test_a_label_whose_result_never_comes_is_set_aside(make_join: MakeJoin) -> None:
    """Its dead letter keeps its bytes and place; until the retention ends, its number and age are shown."""
    join = make_join(retention_s=3_600.0)
    join.settle(routed(2))
    join.send_to(ELSEWHERE, feedback(1), key=b"k")
    join.settle(FeedbackEvent(query_id="q-3", entities=None, labeler="ann"))
    join.wait(120.0)
    waiting = without_result(join)
    assert (waiting.queries, waiting.last_hour, waiting.labels_last_hour) == (2, 2, 2)
    assert set(waiting.latest) == {"q-1", "q-3"}
    assert join.stage.gauges()["labels_without_result_seconds"] >= 120.0
    join.wait(7_200.0)
    (letter,) = join.letters()
    headers = dict(letter.headers)
    assert (letter.key, letter.value) == (b"k", feedback(1).to_json())
    assert (headers["dlq.reason"], headers["dlq.topic"]) == (b"no_result", b"feedback")
    assert headers["dlq.partition"] == b"%d" % ELSEWHERE
    assert b"'q-1'" in (headers["dlq.error"] or b"")
    assert without_result(join).queries == 0


def test_a_restart_makes_no_share_of_lost_labels_jump(join: Join) -> None:
    """The hour's labels are not known any more: both sides of the share begin with the first label taken since."""
    join.settle(*map(feedback, range(12)))
    join.wait(120.0)
    assert without_result(join).last_hour == 12
    join.crash()
    join.wait(120.0)
    assert (without_result(join).queries, without_result(join).last_hour) == (12, 0)
    join.settle(feedback(100), timestamp_ms=int(join.clock.now().timestamp() * 1_000))
    join.wait(120.0)
    found = without_result(join)
    assert (found.queries, found.last_hour, found.labels_last_hour) == (13, 1, 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_label_is_set_aside_however_commits_fail(make_join: MakeJoin, seed: int) -> None:
    join = make_join(seed=seed, retention_s=3_600.0)
    join.settle(*(feedback(number) for number in range(6)))
    join.budget += [join.draw.choice(FAULTS) for _ in range(4)]
    for _ in range(6):
        join.wait(1_800.0)
    join.budget.clear()
    join.wait(60.0)
    letters = {record.value for record in join.letters()}
    assert letters == {feedback(number).to_json() for number in range(6)}
    assert join.store.size.rows == 0


def test_a_record_too_large_to_forward_is_set_aside(join: Join) -> None:
    """With its headers it fits its own topic, and with ours beside them no other."""
    bulk = (("bulk", b"x" * (1_000_000 - 700 - len(feedback(1).to_json()))),)
    join.broker.append(Input(TOPICS.feedback, ELSEWHERE), b"q-1", feedback(1).to_json(), headers=bulk)
    join.settle(routed(1))
    (letter,) = join.letters()
    assert dict(letter.headers)["dlq.reason"] == b"too_large"
    assert join.examples() == []


def test_a_foreign_record_among_forwarded_ones_is_set_aside(join: Join) -> None:
    join.broker.append(Input(TOPICS.repartition, 0), b"q-1", feedback(1).to_json())
    join.settle()
    (letter,) = join.letters()
    assert dict(letter.headers)["dlq.reason"] == b"no_origin"


YEAR = timedelta(days=365)
YEAR_MS = int(YEAR.total_seconds() * 1_000)


@pytest.mark.parametrize(
    ("timestamp_ms", "by_broker"),
    [(START_MS, True), (START_MS, False), (START_MS + YEAR_MS, False), (0, False)],
    ids=["dated by the broker", "by a router set right since", "by the router's wrong clock", "not at all"],
)
def test_a_router_clock_a_year_ahead_dates_nothing_later(join: Join, timestamp_ms: int, by_broker: bool) -> None:
    """Neither the traffic nor the example is dated later than its record arrived, and the wrong clock is counted."""
    join.settle(routed(1, routed_at=START + YEAR), routed(2), timestamp_ms=timestamp_ms, by_broker=by_broker)
    join.crash()
    join.settle(feedback(1))
    latest = join.clock.now() + timedelta(minutes=5)
    assert all(summary.last_routed_at <= latest for summary in join.traffic())
    assert [START <= example.routed_at <= latest for example in join.examples()] == [True]
    assert all(START <= request.requested_at <= latest for request in join.open_requests().values())
    assert join.count.totals["join_notes clock_ahead"] == 1.0


def test_a_label_dated_a_year_ahead_gives_way_to_later_ones(join: Join) -> None:
    wrong = feedback(1, entities("q-1", wrong=True), labeler="bo", labelled_at=START + YEAR)
    join.settle(routed(1), wrong, by_broker=True)
    join.settle(feedback(1, labeler="ann"), by_broker=True)
    said = [(one.labeler, one.labelled_at) for one in join.examples()]
    assert said == [("bo", START), ("ann", START + timedelta(seconds=61))]
    assert join.count.totals["join_notes clock_ahead"] == 1.0


def test_a_router_clock_a_year_behind_expires_nothing(join: Join) -> None:
    """It keeps its rows and its label requests."""
    join.send(routed(1, routed_at=START - YEAR), by_broker=True)
    join.settle(routed(2, routed_at=START - YEAR), timestamp_ms=START_MS - YEAR_MS)
    join.wait(60.0)
    assert set(join.open_requests()) == {"q-1", "q-2"}
    join.settle(feedback(1), timestamp_ms=to_ms(join.clock.now()), by_broker=True)
    assert [example.routed_at for example in join.examples()] == [START - YEAR]
    assert join.count.totals["join_notes clock_behind"] == 1.0, "unknown of what the router dated itself"


@pytest.mark.parametrize("bounds", [RowBounds(200, 10**9), RowBounds(10**9, 80_000)], ids=["rows", "bytes"])
def test_requested_queries_survive_any_rate_of_results(make_join: MakeJoin, bounds: RowBounds) -> None:
    """And above 1,000 results a second nothing was bounded: what arrives within a tick must leave within it."""
    join = make_join(bounds=bounds)
    join.settle(*map(routed, range(50)))
    most = 0.0
    join.send(*(routed(number, label=UNASKED) for number in range(1_000, 3_000)))
    while join.counted_queries() < 2_050:
        join.turn()
        most = max(most, join.store.size.rows / bounds.rows, join.store.size.bytes / bounds.bytes)
    assert 0.9 < most <= 1.0
    join.settle(*map(feedback, (*range(50), 2_999)))
    assert {example.query_id for example in join.examples()} == {f"q-{number}" for number in (*range(50), 2_999)}
    assert join.count.totals["rows_expired result_without_label"] > 1_600
    assert join.count.totals["rows_expired requested_without_label"] == 0.0


def test_a_label_of_a_removed_workload_stops_nothing(join: Join) -> None:
    join.settle(routed(1))
    join.workloads = {"audio": PHOTO.model_copy(update={"name": "audio"})}
    join.crash()
    join.settle(feedback(1))
    assert join.examples() == []
    assert join.count.totals["join_notes unknown_workload"] == 1.0


def test_records_that_add_up_were_read_again_for_ever(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that took longer than the group waits for a member was lost whole, each time that it was read."""
    join.log.deliver_all()
    plain = Joining.join

    def slow(*arguments: Any, **more: Any) -> Any:
        join.log.spend(1.0)
        return plain(*arguments, **more)

    monkeypatch.setattr(Joining, "join", slow)
    join.settle(*(event for number in range(40) for event in (routed(number), feedback(number))))
    assert sorted(example.query_id for example in join.examples()) == sorted(f"q-{n}" for n in range(40))


def test_a_disk_that_fills_up_doubles_no_example(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka has the example when the disk refuses the row: the close adds nothing, the next start holds it back."""

    def refuses(*_: Any) -> None:
        raise DiskFull("join.sqlite3: full")

    join.settle(routed(1))
    with monkeypatch.context() as disk:
        disk.setattr(join.store, "commit", refuses)
        with pytest.raises(DiskFull):
            join.settle(feedback(1))
        join.stage.close()
    join.begin()
    join.settle()

    assert len(join.examples()) == 1
