"""What the join costs, in CPU and bytes a result and a label, where producers place records right and where none does.

The real join on its real store, between a reader and a producer that only hand records over: what the Kafka client
costs is left out. Content depends on the seed alone, so that instructions can be counted instead of seconds, which a
busy machine disturbs: `valgrind --tool=callgrind python -m research.join_cost`. On a checkout of before placement it
measures the join of then.

    python -m research.join_cost --results 8000
    python -m research.join_cost --results 8000 --misplaced
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

from recalibrator.join.joining import Joining, JoinTopics
from recalibrator.join.sqlite_store import RowBounds, SqliteJoinStore
from recalibrator.join.stage import JoinLimits, JoinStage
from research.join_rows import START, result
from schemas.event import rfc3339
from schemas.settings import WorkloadSettings
from tests.support.lives import count_nothing
from ucci_runtime.broker.ports import Assignee, Committed
from ucci_runtime.broker.records import EndReached, Input, Lag, OffsetCommit, OutputRecord, Record

HOMES = 6
FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
WORKLOAD = WorkloadSettings.model_validate({"name": "photo-search", "fields": FIELDS, "target": {"micro_f1": 0.9}})
_REPARTITION = "ucci.join-repartition"
_TOPICS = {
    "results": "ucci.results",
    "feedback": "ucci.feedback",
    "repartition": _REPARTITION,
    "observations": "ucci.observations",
    "dead_letters": "ucci.dead-letters",
    "label_requests": "ucci.label-requests",
}
_POLL_S = 0.05


class StepClock:
    """Time that passes with every poll alone."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> Any:
        """Return the time as a date."""
        return START + timedelta(days=1, seconds=self.passed_s)

    def monotonic(self) -> float:
        """Return the seconds passed."""
        return self.passed_s


class Feed:
    """A group reader that hands over what it is given, and a session that takes everything at once."""

    def __init__(self, clock: StepClock, most: int) -> None:
        self._clock = clock
        self._most = most
        self._ends: dict[Input, int] = {}
        self._waiting: deque[Record] = deque()
        self.is_started = True
        self.partition_count = HOMES
        self.records = 0
        self.bytes = 0
        self.forwarded = 0

    def add(self, source: Input, key: bytes | None, value: bytes, headers: Any = ()) -> None:
        """Have one record read."""
        offset = self._ends.get(source, 0)
        self._ends[source] = offset + 1
        at_ms = int(self._clock.now().timestamp() * 1_000)
        self._waiting.append(Record(source, offset, key, value, at_ms, headers, by_broker=True))

    @property
    def is_empty(self) -> bool:
        """Whether everything was handed over."""
        return not self._waiting

    # --- reader ---

    def subscribe(self, assignee: Assignee) -> None:
        """Hand all partitions over."""
        topics = [_TOPICS["results"], _TOPICS["feedback"]]
        if "repartition" in _known_topics():
            topics.append(_REPARTITION)
        assignee.assigned({Input(topic, number): None for topic in topics for number in range(HOMES)})

    def poll(self, _timeout_s: float, _most: int = 0) -> Sequence[Record | EndReached]:
        """Return the next records."""
        self._clock.passed_s += _POLL_S
        return [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]

    def group(self) -> object:
        """Return nothing."""

    def rewind(self) -> None:
        """Never happens."""

    def pause(self, sources: Collection[Input]) -> None:
        """Never happens."""

    def read_from(self, starts: Mapping[Input, int]) -> None:
        """Read on."""

    def lag(self, _reached: Any = None) -> Mapping[Input, Lag]:
        """Return nothing."""
        return {}

    # --- session ---

    def start(self) -> None:
        """Begin."""

    def close(self) -> None:
        """End."""

    def commit(
        self, records: Sequence[OutputRecord], _offsets: Mapping[Input, OffsetCommit], _group: object
    ) -> Committed:
        """Count what is written, and hand over what is forwarded."""
        for record in records:
            self.records += 1
            self.bytes += len(record.key or b"") + len(record.value or b"")
            self.bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
            if record.topic == _REPARTITION:
                self.forwarded += 1
                assert record.partition is not None
                assert record.value is not None
                self.add(Input(_REPARTITION, record.partition), record.key, record.value, record.headers)
        return Committed(tuple(records))


def _known_topics() -> set[str]:
    return {field.name for field in dataclasses.fields(JoinTopics)}


def _partition(query_id: str, *, misplaced: bool) -> int:
    return (crc32(query_id.encode()) + misplaced) % HOMES


def _inputs(results: int, seed: int, *, misplaced: bool) -> tuple[list[Any], list[Any]]:
    """Return the records of results, and of their labels."""
    draw, sent, labels = random.Random(seed), [], []
    for number in range(results):
        routed = result(draw, number)
        place = _partition(routed.query_id, misplaced=misplaced)
        sent.append((Input(_TOPICS["results"], place), routed.query_id.encode(), routed.to_json()))
        event = {"query_id": routed.query_id, "entities": routed.entities, "labeler": "ada"}
        event["labelled_at"] = rfc3339(routed.routed_at + timedelta(minutes=1))
        labels.append((Input(_TOPICS["feedback"], place), routed.query_id.encode(), json.dumps(event).encode()))
    return sent, labels


def _figures(directory: Path, given: argparse.Namespace) -> Iterator[tuple[str, float]]:
    clock = StepClock()
    feed = Feed(clock, given.most)
    anything: Any = feed
    topics = JoinTopics(**{name: topic for name, topic in _TOPICS.items() if name in _known_topics()})
    stage = JoinStage(
        Joining({WORKLOAD.name: WORKLOAD}, topics, 1_000_000),
        JoinLimits(),
        log=anything,
        transactions=anything,
        store=SqliteJoinStore(directory / "join.sqlite3", RowBounds(10**7, 10**12)),
        clock=clock,
        count=count_nothing,
    )
    stage.start()
    stage.turn()
    for name, records in zip(
        ("result", "label"), _inputs(given.results, given.seed, misplaced=given.misplaced), strict=True
    ):
        for record in records:
            feed.add(*record)
        before = feed.bytes
        began_s = time.process_time()
        while not feed.is_empty:
            stage.turn()
            if feed.is_empty:
                stage.commit()
        passed_s = time.process_time() - began_s
        yield f"CPU a {name}, microseconds", passed_s / given.results * 1e6
        yield f"bytes written a {name}", (feed.bytes - before) / given.results
    yield "records forwarded", feed.forwarded
    stage.close()


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description="CPU and bytes of the join.")
    parser.add_argument("--results", type=int, default=8_000)
    parser.add_argument("--most", type=int, default=400, help="records of one poll, twenty of which make a second")
    parser.add_argument("--misplaced", action="store_true", help="every record lies at another home")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        figures = dict(_figures(Path(directory), given))
    sys.stdout.write(json.dumps({name: round(value, 1) for name, value in figures.items()}) + "\n")


if __name__ == "__main__":
    main()
