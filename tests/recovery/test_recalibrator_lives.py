"""Recalibrators over the broker in memory, hundreds of lives long: every label used once, every version once.

Join and fit run on their real stores. The checker reads the topics and nothing else; planted defects show that it would
find what it is there for.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation, decode_observation
from recalibrator.fit.file_snapshots import SnapshotFiles
from recalibrator.fit.publish.version_topics import TopicVersionLog
from recalibrator.fit.stage import FitPorts, FitStage, FitTopics
from recalibrator.join.home_inputs import HomeInputs
from recalibrator.join.joining import Joining, JoinTopics
from recalibrator.join.sqlite_store import RowBounds, SqliteJoinStore
from recalibrator.join.stage import JoinLimits, JoinStage
from schemas.calibration import CalibrationMap
from schemas.command import Command
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.labelled import LabelledExample
from schemas.routed import RoutedEvent
from schemas.topics import (
    CALIBRATION,
    CALIBRATION_HISTORY,
    CALIBRATION_TRIAL,
    DEAD_LETTERS,
    FEEDBACK,
    JOIN_REPARTITION,
    LABEL_REQUESTS,
    OBSERVATIONS,
    RESULTS,
    STATUS,
)
from schemas.traffic import TrafficSummary
from tests.support.lives import Life, count_nothing
from tests.support.memory_broker.broker import MemoryCluster, MemoryTransactionSession
from tests.support.memory_broker.logs import TransactionEnd
from tests.support.recalibrator_events import PHOTO, START, drawn_inputs
from ucci_runtime.broker.ports import Aborted, CommitEnd, Committed, Unknown
from ucci_runtime.broker.records import Input, OutputRecord

PREFIX = "ucci"
JOINED = (RESULTS, FEEDBACK, JOIN_REPARTITION, OBSERVATIONS, DEAD_LETTERS, LABEL_REQUESTS)
JOIN_TOPICS = JoinTopics(*(topic.name(PREFIX) for topic in JOINED))
FOLDED = (OBSERVATIONS, CALIBRATION, CALIBRATION_HISTORY, STATUS, DEAD_LETTERS, CALIBRATION_TRIAL)
FIT_TOPICS = FitTopics(*(topic.name(PREFIX) for topic in FOLDED))
WORKLOADS = {"photo": PHOTO}
MAP = CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.9))
PARTITIONS = 2
QUERIES = 14
LIVES = 70
THOROUGH_LIVES = 1_000


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the processes keep their state: in memory where possible, since processes die here, not machines."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as made:
        yield Path(made)


class RecalibratorProcess:
    """Join and fit as a process holds them, their threads never started."""

    def __init__(self, life: Life, directory: Path, instance_id: str) -> None:
        self.instance_id = instance_id
        self.directory = directory
        self._draw = life.draw
        directory.mkdir(parents=True, exist_ok=True)
        broker = life.broker(instance_id)
        self.store = SqliteJoinStore(directory / "join.sqlite3", RowBounds(1_000, 10**9))
        self.join = JoinStage(
            Joining(WORKLOADS, JOIN_TOPICS, 1_000_000),
            JoinLimits(),
            log=broker.group_reader("join", (JOIN_TOPICS.repartition, JOIN_TOPICS.results, JOIN_TOPICS.feedback)),
            transactions=broker.session("join"),
            store=self.store,
            clock=life.clock,
            count=count_nothing,
        )
        versions = broker.topic_reader("versions", [FIT_TOPICS.calibration, str(FIT_TOPICS.trial)])
        self.fit = FitStage(
            frozenset(WORKLOADS),
            FIT_TOPICS,
            FitPorts(
                broker.group_reader("fit", (FIT_TOPICS.observations,)),
                broker.session("fit"),
                SnapshotFiles(directory, WORKLOADS),
                TopicVersionLog(versions, FIT_TOPICS.trial),
            ),
            clock=life.clock,
            count=count_nothing,
        )
        self.join.start()
        self.fit.start()

    def step(self) -> None:
        if self._draw.random() < 0.6:
            self.join.turn()
        else:
            self.fit.turn()

    def stop(self) -> None:
        self.join.close()
        self.fit.close()

    def kill(self) -> None:
        self.store.close()


class RecalibratorLife(Life):
    """A life of recalibrators, each on a directory of its own that a restart finds again, unless it is lost."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, ("join", "fit"), partitions=PARTITIONS)
        self.root = root
        self._made = 0

    def make(self, instance_id: str) -> RecalibratorProcess:
        self._made += 1
        directory = self.root / instance_id
        if any(process.instance_id == instance_id for process in self.processes):
            # A twin is on another machine: one directory has one process.
            directory = self.root / f"{instance_id}-{self._made}"
        elif directory.exists() and self.draw.random() < 0.2:
            shutil.rmtree(directory)
        return RecalibratorProcess(self, directory, instance_id)

    def send(self, topic: str, number: int, value: bytes | None) -> None:
        # No producer hashes as another does, and some give no key.
        source = Input(topic, int(self.draw.random() * self.cluster.configs[topic].partitions))
        if self.draw.random() < 0.1:
            transaction = self.cluster.begin("producer")
            self.cluster.append(source, b"k", b"aborted", writer=transaction)
            self.cluster.end("producer", TransactionEnd.ABORTED)
        self.cluster.append(source, self.draw.choice((f"q-{number}".encode(), f'"q-{number}"'.encode(), None)), value)

    def add_partitions(self) -> None:
        """Add partitions to results or feedback, as an operator does while everything runs."""
        topic = self.draw.choice((JOIN_TOPICS.results, JOIN_TOPICS.feedback))
        self.cluster.add_partitions(topic, self.cluster.configs[topic].partitions + self.draw.randint(1, 2))

    def is_settled(self) -> bool:
        groups = {
            "join": (JOIN_TOPICS.repartition, JOIN_TOPICS.results, JOIN_TOPICS.feedback),
            "fit": (FIT_TOPICS.observations,),
        }
        return all(
            (found := self.cluster.group(name).offsets.get(source)) is not None
            and found.offset == self.cluster.logs[source].end
            for name, topics in groups.items()
            for source in self.cluster.sources(topics)
            if self.cluster.logs[source].end
        )


def plan(life: RecalibratorLife) -> Iterator[tuple[str, int, bytes | None]]:
    """Yield results, labels, corrections, withdrawals, repetitions, garbage and commands, in a drawn order."""
    draw = life.draw
    sent = drawn_inputs(draw, QUERIES, 2, results=JOIN_TOPICS.results, feedbacks=JOIN_TOPICS.feedback)
    content = {"workload": "photo", "action": "bootstrap", "map": MAP, "issued_by": "test"}
    for number in range(3):
        more = {"uncertainty_threshold": (number + 1) / 10, "issued_at": START + timedelta(seconds=number)}
        act = Command.model_validate(content | more)
        sent.append((draw.random(), FIT_TOPICS.observations, 0, act.to_json()))
    for _, topic, number, value in sorted(sent, key=lambda one: one[0]):
        yield topic, number, value


def faults_of(cluster: MemoryCluster) -> list[str]:
    """Compare the topics: what is wrong with them, one line each."""
    records = [record for record in cluster.records(FIT_TOPICS.observations) if record.key == b"photo"]
    observations = [decode_observation(record.value, WORKLOADS) for record in records]
    return [*_labels(cluster, observations), *_versions(cluster, observations), *_letters(cluster)]


def _labels(cluster: MemoryCluster, observations: Sequence[Observation]) -> list[str]:
    examples = [one for one in observations if isinstance(one, LabelledExample)]
    times = Counter((one.query_id, one.revision) for one in examples)
    faults = [f"{place} is in the observations {count} times" for place, count in times.items() if count > 1]
    last = {one.query_id: one for one in sorted(examples, key=lambda one: one.revision)}
    counted = {query_id: one for query_id, one in last.items() if not one.retracted}
    said: dict[str, FeedbackEvent] = {}
    for record in cluster.records(JOIN_TOPICS.feedback):
        if record.value != b"garbage":
            event = FeedbackEvent.from_json(record.value or b"")
            said[event.query_id] = max(event, said.get(event.query_id, event), key=lambda one: one.revision)
    standing = {query_id for query_id, event in said.items() if not event.retracted}
    faults += [f"{query_id}: its label does not count" for query_id in standing - counted.keys()]
    faults += [f"{query_id}: counts without a label" for query_id in counted.keys() - standing]
    sent = [RoutedEvent.from_json(record.value) for record in cluster.records(JOIN_TOPICS.results) if record.value]
    results = {result.query_id: result for result in sent}
    for query_id in standing & counted.keys():
        example, pair = counted[query_id], (results[query_id], said[query_id])
        if example != LabelledExample.from_events(*pair, fields=PHOTO.fields, revision=example.revision):
            faults.append(f"{query_id}: its example does not say what its label does")
    summaries = (one for one in observations if isinstance(one, TrafficSummary))
    queries = sum(part.queries for one in summaries for part in one.versions)
    if queries != QUERIES:
        faults.append(f"{queries} of {QUERIES} queries are in the traffic")
    asked = {record.key: record.value for record in cluster.records(JOIN_TOPICS.label_requests or "")}
    open_ = [LabelRequested.from_json(value) for value in asked.values() if value is not None]
    wanted = [LabelRequested.from_result(results[query_id]) for query_id in results.keys() - standing]
    if sorted(open_, key=_id) != sorted(wanted, key=_id):
        faults.append(f"label requests are open for {sorted(map(_id, open_))}")
    return faults


def _id(request: LabelRequested) -> str:
    return request.query_id


def _versions(cluster: MemoryCluster, observations: Sequence[Observation]) -> list[str]:
    core = Recalibrator(WORKLOADS["photo"])
    expected = [version.to_json() for event in observations if (version := core.observe(event)) is not None]
    published = [record.value for record in cluster.records(FIT_TOPICS.calibration)]
    history = [record.value for record in cluster.records(FIT_TOPICS.history)]
    faults = []
    if published != expected:
        faults.append(f"{len(published)} versions instead of the {len(expected)} of a plain fold")
    if history != published:
        faults.append(f"{len(history)} versions in the history, {len(published)} in force")
    return faults


def _letters(cluster: MemoryCluster) -> list[str]:
    letters = Counter(
        (headers["dlq.topic"], headers["dlq.partition"], headers["dlq.offset"])
        for headers in (dict(record.headers) for record in cluster.records(JOIN_TOPICS.dead_letters))
    )
    garbage = {
        (record.source.topic.encode(), b"%d" % record.source.partition, b"%d" % record.offset)
        for topic in (JOIN_TOPICS.results, JOIN_TOPICS.feedback)
        for record in cluster.records(topic)
        if record.value in (None, b"garbage")
    }
    return [f"{place}: {letters[place]} dead letters" for place in garbage | letters.keys() if letters[place] != 1]


def live(seed: int, root: Path) -> list[str]:
    """Live one life; return what is wrong with the topics at its end."""
    life = RecalibratorLife(seed, root / str(seed))
    life.start(life.make, "a")
    for topic, number, value in plan(life):
        if topic == FIT_TOPICS.observations:
            life.cluster.append(life.cluster.place(topic, b"photo"), b"photo", value)
        else:
            life.send(topic, number, value)
        for _ in range(life.draw.randint(0, 3)):
            life.step()
        if life.draw.random() < 0.04:
            life.add_partitions()
        if life.draw.random() < 0.12:
            life.disturb(life.make)
        if not life.processes:
            life.start(life.make, life.draw.choice(("a", "b")))
    try:
        return life.finish(life.make, life.is_settled, faults_of)
    finally:
        shutil.rmtree(life.root, ignore_errors=True)


def faulty_lives(seeds: range, root: Path) -> dict[int, list[str]]:
    return {seed: found for seed in seeds if (found := live(seed, root))}


@pytest.mark.slow
def test_every_label_counts_once_and_every_version_comes_once(root: Path) -> None:
    assert faulty_lives(range(LIVES), root) == {}


@pytest.mark.thorough
def test_every_label_counts_once_in_thousands_of_lives(root: Path) -> None:
    assert faulty_lives(range(LIVES, LIVES + THOROUGH_LIVES), root) == {}


REAL_COMMIT = MemoryTransactionSession.commit
Commit = Callable[..., CommitEnd]


def live_at_once(partition: HomeInputs) -> bool:
    """Forget, when what was taken is read again, that its outputs are in the topics already."""
    partition.limits = dict(partition.positions)
    return True


def taken_for_committed(kind: type[CommitEnd]) -> Commit:
    def commit(session: MemoryTransactionSession, records: Sequence[OutputRecord], *rest: Any) -> CommitEnd:
        end = REAL_COMMIT(session, records, *rest)
        return Committed(tuple(records)) if isinstance(end, kind) else end

    return commit


def without_offsets(session: MemoryTransactionSession, records: Sequence[OutputRecord], *rest: Any) -> CommitEnd:
    return REAL_COMMIT(session, records, {}, *rest[1:]) if records else REAL_COMMIT(session, records, *rest)


#: By name, what is replaced, and by what.
DEFECTS: dict[str, tuple[object, str, object]] = {
    "outputs are not held back": (HomeInputs, "has_caught_up", property(live_at_once)),
    "an abort is taken for a commit": (MemoryTransactionSession, "commit", taken_for_committed(Aborted)),
    "an unseen end is taken for a commit": (MemoryTransactionSession, "commit", taken_for_committed(Unknown)),
    "outputs are committed without offsets": (MemoryTransactionSession, "commit", without_offsets),
    "misplaced records are not forwarded": (HomeInputs, "forwards", lambda *_: False),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_checker_finds_a_defect(root: Path, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert any(live(seed, root) for seed in range(LIVES))
