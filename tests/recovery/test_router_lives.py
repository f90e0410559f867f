"""Routers over the broker in memory, hundreds of lives long: every query exactly one result or dead letter.

The checker reads the topics and nothing else. Three planted defects show that it would find what it is there for.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import cast

import pytest

from schemas.routed import QueryEvent, RoutedEvent
from schemas.topics import DEAD_LETTERS, QUERIES, RESULTS
from stream_router import intake_thread
from stream_router.commit import commit_thread, done_offsets, shared_ledger
from stream_router.commit.commit_thread import CommitThread
from stream_router.commit.ledger import RecordId
from stream_router.commit.outcome import OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.errors import ModelsFailed
from stream_router.intake_thread import IntakeThread
from stream_router.otel_tracing import Tracing
from stream_router.prometheus_metrics import Metrics
from stream_router.query_loop import QueryLoop
from tests.support import answerers
from tests.support.lives import Life
from tests.support.memory_broker.broker import MemoryCluster
from tests.support.memory_broker.groups import Group
from tests.support.memory_broker.logs import PartitionLog, TransactionEnd
from ucci_runtime.broker.records import Input, OffsetCommit, Record

GROUP = "router"
PREFIX = "ucci"
TOPICS = OutputTopics(RESULTS.name(PREFIX), DEAD_LETTERS.name(PREFIX))
QUERIES_TOPIC = QUERIES.name(PREFIX)
LIVES = 430
THOROUGH_LIVES = 4_000
SENT = 30
IN_FLIGHT = 12
METRICS = Metrics()


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the loops wait for can happen while they wait: there is one thread."""
    monkeypatch.setattr(intake_thread, "SLOT_WAIT_S", 0.0)
    monkeypatch.setattr(intake_thread, "HANDOVER_S", 0.0)
    monkeypatch.setattr(shared_ledger, "_MANY_WAIT_S", 0.0)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


class HeldAnswerer(answerers.EchoAnswerer):
    """Answers a query when the life says so."""

    def __init__(self) -> None:
        self.held: list[asyncio.Future[None]] = []

    async def answer(self, query: QueryEvent, workload: str, headers: Mapping[str, str] | None = None) -> RoutedEvent:
        held = asyncio.get_running_loop().create_future()
        self.held.append(held)
        await held
        if query.text == "fail":
            raise ModelsFailed("refused", "refused")
        return answerers.routed(query, workload)


class RouterProcess:
    """The router's loops as a process holds them, its threads never started."""

    def __init__(self, life: Life, loop: asyncio.AbstractEventLoop, instance_id: str) -> None:
        self.instance_id = instance_id
        self._draw = life.draw
        self._loop = loop
        self._ledger = SharedLedger(IN_FLIGHT)
        self._answerer = HeldAnswerer()
        self._queries = QueryLoop(
            self._answerer, ("photo",), outputs=TOPICS, finished=self._ledger.finished, tracing=Tracing()
        )
        broker = life.broker(instance_id)
        self._session = broker.session(GROUP)
        self._session.start()
        self._committer = CommitThread(
            self._session, self._ledger, QUERIES_TOPIC, TOPICS, interval_s=0.2, on_failure=fail, metrics=METRICS
        )
        self._reader = broker.group_reader(GROUP, [QUERIES_TOPIC])
        self._intake = IntakeThread(
            self._reader,
            self._ledger,
            cast(CommitThread, self),
            deliver=self.deliver,
            give_up=self.give_up,
            on_failure=fail,
            metrics=METRICS,
        )
        self._reader.subscribe(self._intake)

    def step(self) -> None:
        what = self._draw.choice(("take", "take", "answer", "answer", "commit"))
        if what == "take":
            self._intake.turn()
            self._spin()
        elif what == "answer":
            self._answer(self._draw.randint(1, 5))
        else:
            self._committer.tick()

    def stop(self) -> None:
        self._intake.stop_taking()
        self._intake.turn()
        self._answer(len(self._answerer.held))
        self._committer.tick()
        self._reader.close()

    def kill(self) -> None:
        self._loop.run_until_complete(self._queries.close())

    def _answer(self, count: int) -> None:
        self._answerer.held = [held for held in self._answerer.held if not held.done()]
        chosen = self._draw.sample(self._answerer.held, min(count, len(self._answerer.held)))
        for held in chosen:
            held.set_result(None)
        self._spin()

    def _spin(self) -> None:
        # One round starts tasks or wakes them, the next lets them end.
        for _ in range(3):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    # --- called by the intake ---

    def deliver(self, records: list[Record]) -> None:
        self._loop.call_soon(self._queries.take, records)

    def give_up(self, record_ids: Collection[RecordId]) -> None:
        self._loop.call_soon(self._queries.give_up, record_ids)

    def flush(self, timeout_s: float) -> bool:
        self._spin()
        self._committer.tick()
        return True

    def note_foreign(self, source: Input, commit: OffsetCommit) -> None:
        raise AssertionError(f"{source} has the metadata {commit.metadata}, which no router wrote")


def fail(error: BaseException) -> None:
    raise error


def send(life: Life) -> None:
    """Send one query, or something that is none, in a transaction at times."""
    source = Input(QUERIES_TOPIC, life.draw.randrange(3))
    number = life.draw.getrandbits(60)
    kind = life.draw.random()
    headers_fault = "not UTF-8" if kind < 0.04 else None
    value: bytes | None = json.dumps({"query_id": f"q-{number}", "text": "fail" if kind > 0.9 else "a query"}).encode()
    if 0.04 <= kind < 0.08:
        value = None if kind < 0.06 else b"garbage"
    if life.draw.random() < 0.2:
        transaction = life.cluster.begin("producer")
        life.cluster.append(source, b"k", value, headers_fault=headers_fault, writer=transaction)
        is_aborted = life.draw.random() < 0.5
        life.cluster.end("producer", TransactionEnd.ABORTED if is_aborted else TransactionEnd.COMMITTED)
    else:
        life.cluster.append(source, b"k", value, headers_fault=headers_fault)


def faults_of(cluster: MemoryCluster) -> list[str]:
    """Compare the topics: what is wrong with them, one line each."""
    letters: Counter[tuple[int, int]] = Counter()
    for letter in cluster.records(TOPICS.dead_letters):
        headers = dict(letter.headers)
        letters[int(headers["dlq.partition"] or b""), int(headers["dlq.offset"] or b"")] += 1
    results = Counter(json.loads(record.value or b"")["query_id"] for record in cluster.records(TOPICS.results))
    found = []
    for query in cluster.records(QUERIES_TOPIC):
        try:
            query_id = str(json.loads(query.value or b"")["query_id"])
        except ValueError:
            query_id = ""
        times = results.pop(query_id, 0) + letters.pop((query.source.partition, query.offset), 0)
        if times != 1:
            found.append(f"{query.source.partition}/{query.offset} {query_id} has {times} results and dead letters")
    found += [f"{query_id} was never sent" for query_id in results]
    found += [f"{place} was never sent" for place in letters]
    for source in cluster.sources([QUERIES_TOPIC]):
        if not is_taken(cluster, source):
            committed = cluster.group(GROUP).offsets.get(source)
            found.append(f"{source.partition}: {committed} is committed, of {cluster.logs[source].end}")
    return found


def is_taken(cluster: MemoryCluster, source: Input) -> bool:
    """Whether the group stands at the end of a partition; of one that never held a record it commits nothing."""
    log, committed = cluster.logs[source], cluster.group(GROUP).offsets.get(source)
    return committed == OffsetCommit(log.end) or (committed is None and not log.committed_from(0, 1)[0])


def live(seed: int, loop: asyncio.AbstractEventLoop) -> list[str]:
    """Live one life; return what is wrong with the topics at its end."""
    life = Life(seed, (GROUP,))

    def make(instance_id: str) -> RouterProcess:
        return RouterProcess(life, loop, instance_id)

    life.start(make, "a")
    left = SENT
    while left:
        if life.draw.random() < 0.3:
            left -= 1
            send(life)
        life.step()
        if life.draw.random() < 0.06:
            life.disturb(make)
        if not life.processes:
            life.start(make, life.draw.choice(("a", "b")))

    def is_settled() -> bool:
        return all(is_taken(life.cluster, source) for source in life.cluster.sources([QUERIES_TOPIC]))

    return life.finish(make, is_settled, faults_of)


def faulty_lives(seeds: range, loop: asyncio.AbstractEventLoop) -> dict[int, list[str]]:
    return {seed: found for seed in seeds if (found := live(seed, loop))}


@pytest.mark.slow
def test_every_query_has_one_result_or_dead_letter(loop: asyncio.AbstractEventLoop) -> None:
    assert faulty_lives(range(LIVES), loop) == {}


@pytest.mark.thorough
def test_every_query_has_one_result_in_thousands_of_lives(loop: asyncio.AbstractEventLoop) -> None:
    assert faulty_lives(range(LIVES, LIVES + THOROUGH_LIVES), loop) == {}


def read_everything(log: PartitionLog, position: int, most: int) -> tuple[list[Record], int]:
    found = [record for record in log._records if record.offset >= position]
    taken = found[:most] if most > 0 else found
    return taken, taken[-1].offset + 1 if len(taken) < len(found) else log.end


#: By name, what is replaced, and by what.
DEFECTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "offset metadata is forgotten": (done_offsets, "decode", lambda _offset, _text: ()),
    "the group fences nobody": (Group, "accepts", lambda _group, _metadata: True),
    "aborted records are read": (PartitionLog, "committed_from", read_everything),
    "an unseen commit is taken for none": (commit_thread, "committed_offsets", lambda _found, _foreign: {}),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_checker_finds_a_defect(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert any(live(seed, loop) for seed in range(LIVES))
