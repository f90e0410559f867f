"""The commit's thread, driven by the test: what it does about a broker that refuses what it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import NoReturn

import pytest

from schemas.topics import DEAD_LETTERS, QUERIES, RESULTS
from stream_router.commit.commit_thread import CommitThread
from stream_router.commit.done_offsets import CommittedOffsets
from stream_router.commit.outcome import Outcome, OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.prometheus_metrics import Metrics
from tests.support.broker_labs import Notes
from tests.support.clocks import ManualClock
from tests.support.lives import count_nothing
from tests.support.memory_broker.broker import MemoryBroker, MemoryCluster, create_topics
from ucci_runtime.broker.records import Input, OffsetCommit, OutputRecord, Record

GROUP = "router"
TOPICS = OutputTopics(RESULTS.name("ucci"), DEAD_LETTERS.name("ucci"))
TOPIC = QUERIES.name("ucci")
PARTITIONS = (0, 1)
#: To each partition.
QUERIES_SENT = 200

TICKS = 20


def fail(error: BaseException) -> None:
    raise error


class Router:
    """A ledger with queries in flight, and the thread that commits it, which is never started."""

    def __init__(self, max_metadata_chars: int) -> None:
        clock = ManualClock()
        self.cluster = MemoryCluster(clock, clock.advance)
        self.cluster.max_metadata_chars = max_metadata_chars
        create_topics(self.cluster, len(PARTITIONS))
        broker = MemoryBroker(self.cluster, "a", count_nothing)
        reader, notes = broker.group_reader(GROUP, [TOPIC]), Notes()
        reader.subscribe(notes)
        while not notes.events:
            reader.poll(0.1)
        self._ledger = SharedLedger(QUERIES_SENT)
        self._ledger.assigned({partition: CommittedOffsets(None) for partition in PARTITIONS}, reader.group())
        for partition in PARTITIONS:
            self._ledger.delivered((record(partition, offset) for offset in range(QUERIES_SENT)), reader.group())
        session = broker.session(GROUP)
        session.start()
        self._thread = CommitThread(
            session, self._ledger, TOPIC, TOPICS, interval_s=0.2, on_failure=fail, metrics=Metrics()
        )

    def finish(self, partition: int, offsets: range) -> None:
        """Answer some queries, then let the thread commit for a while."""
        for offset in offsets:
            result = OutputRecord(TOPICS.results, name(partition, offset), b"result")
            self._ledger.finished(Outcome(record(partition, offset), result))
        for _ in range(TICKS):
            self._thread.tick()

    def results(self) -> Counter[bytes | None]:
        return Counter(record.key for record in self.cluster.records(TOPICS.results))


def name(partition: int, offset: int) -> bytes:
    return b"%d/%d" % (partition, offset)


def record(partition: int, offset: int) -> Record:
    return Record(Input(TOPIC, partition), offset, b"k", b"query")


@pytest.mark.parametrize("max_metadata_chars", [0, 1, 40, 200, 4_095])
def test_broker_with_short_metadata_stopped_all_commits(max_metadata_chars: int) -> None:
    """Where ``offset.metadata.max.bytes`` was below what a router writes, each commit was refused, for ever."""
    router = Router(max_metadata_chars)
    router.finish(0, range(1, QUERIES_SENT, 2))
    router.finish(1, range(QUERIES_SENT))
    assert router.results() >= Counter(name(1, offset) for offset in range(QUERIES_SENT))
    router.finish(0, range(0, QUERIES_SENT, 2))
    assert router.results() == Counter(name(n, offset) for n in PARTITIONS for offset in range(QUERIES_SENT))
    for partition in PARTITIONS:
        assert router.cluster.group(GROUP).offsets[Input(TOPIC, partition)] == OffsetCommit(QUERIES_SENT)


#: What a test waits for at most, and a wait that nobody's patience outlasts.
BOUND_S, LONG_S = 20.0, 3_600.0


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[CommitThread]:
    """A thread that commits once an hour unless it is asked to."""
    made = Router(100)._thread
    monkeypatch.setattr(made, "_interval_s", LONG_S)
    yield made
    made.close()


def test_a_flush_waits_for_the_commit_it_asked_for(thread: CommitThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a revocation, what is finished must be committed before the partitions go."""
    begun, may_end, has_ended = Event(), Event(), Event()

    def slow_tick() -> None:
        begun.set()
        assert may_end.wait(BOUND_S)
        has_ended.set()

    monkeypatch.setattr(thread, "tick", slow_tick)
    thread.start()
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(lambda: thread.flush(BOUND_S) and has_ended.is_set())
        assert begun.wait(BOUND_S)
        may_end.set()
        assert flushed.result(BOUND_S)


def test_a_flush_does_not_wait_for_a_thread_that_is_dead(thread: CommitThread, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> NoReturn:
        raise OSError("no broker")

    monkeypatch.setattr(thread.session, "start", failing)
    monkeypatch.setattr(thread, "_on_failure", lambda error: None)
    thread.start()
    thread.join(BOUND_S)
    waited = list[float | None]()
    monkeypatch.setattr(thread._turn, "wait", lambda timeout=None: waited.append(timeout))
    thread.flush(0.0)
    assert waited == []
