"""The commit's thread, driven by the test: what it does about a broker that refuses what it writes."""

from __future__ import annotations

from collections import Counter

import pytest

from schemas.topics import DEAD_LETTERS, QUERIES, RESULTS
from stream_router.commit.commit_thread import CommitThread
from stream_router.commit.ledger import CommittedOffsets
from stream_router.commit.outcome import Outcome, OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.prometheus_metrics import Metrics
from tests.support.broker_labs import Notes
from tests.support.clocks import ManualClock
from tests.support.lives import count_nothing
from ucci_runtime.broker.memory import MemoryBroker, MemoryCluster, create_topics
from ucci_runtime.broker.records import Input, OffsetCommit, OutputRecord, Record

GROUP = "router"
TOPICS = OutputTopics(RESULTS.name("ucci"), DEAD_LETTERS.name("ucci"))
SOURCE = Input(QUERIES.name("ucci"), 0)
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
        create_topics(self.cluster, 1)
        broker = MemoryBroker(self.cluster, "a", count_nothing)
        reader, notes = broker.group_reader(GROUP, [SOURCE.topic]), Notes()
        reader.subscribe(notes)
        while not notes.events:
            reader.poll(0.1)
        self._ledger = SharedLedger(QUERIES_SENT)
        self._ledger.assigned({0: CommittedOffsets(None)}, reader.group())
        self._records = [Record(SOURCE, offset, b"k", b"query") for offset in range(QUERIES_SENT)]
        self._ledger.delivered(self._records, reader.group())
        session = broker.session(GROUP)
        session.start()
        self._thread = CommitThread(
            session, self._ledger, SOURCE.topic, TOPICS, interval_s=0.2, on_failure=fail, metrics=Metrics()
        )

    def finish(self, offsets: range) -> None:
        """Answer some queries, then let the thread commit for a while."""
        for offset in offsets:
            result = OutputRecord(TOPICS.results, b"%d" % offset, b"result")
            self._ledger.finished(Outcome(self._records[offset], result))
        for _ in range(TICKS):
            self._thread.tick()

    def results(self) -> Counter[bytes | None]:
        return Counter(record.key for record in self.cluster.records(TOPICS.results))


@pytest.mark.parametrize("max_metadata_chars", [0, 1, 40, 200, 4_095])
def test_broker_with_short_metadata_stopped_all_commits(max_metadata_chars: int) -> None:
    """Where ``offset.metadata.max.bytes`` was below what a router writes, each commit was refused, for ever."""
    router = Router(max_metadata_chars)
    router.finish(range(QUERIES_SENT // 2))
    router.finish(range(QUERIES_SENT // 2 + 1, QUERIES_SENT, 2))
    assert router.results().total() >= QUERIES_SENT // 2
    router.finish(range(QUERIES_SENT // 2, QUERIES_SENT, 2))
    assert router.results() == Counter({b"%d" % offset: 1 for offset in range(QUERIES_SENT)})
    assert router.cluster.group(GROUP).offsets[SOURCE] == OffsetCommit(QUERIES_SENT)
