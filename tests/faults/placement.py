"""Producers hash keys in five ways and partitions are added under load, while joins come and go and the broker dies.

What is misplaced then must be forwarded exactly once, and each label count once all the same. The broker is killed in
the thread that started it: see :mod:`tests.faults.broker_faults`.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from random import Random
from zlib import crc32

from confluent_kafka import Consumer, Message, TopicPartition

from schemas.topics import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC
from tests.faults import broker_faults
from tests.faults.arena import PARTITIONS, SETTLE_S, Arena
from tests.faults.checker import check
from tests.faults.child import Child
from tests.faults.episodes import Episode, Kind, recovered
from tests.faults.evidence import Evidence, event_of
from tests.faults.fault_points import Stage, Strike, point_named, points_of
from tests.faults.process_faults import STRIKE_S, killed_at
from tests.support.broker import add_partitions, read_all
from tests.support.waiting import wait_until

KIND = "placement"
#: Results, each of which is labelled, between two acts: with those that come during them, 20 acts see 10,000 labels.
RESULTS_BETWEEN = 120
_OTHER_JOIN = "join-2"
_ASK_S = 30.0
_EXIT_S = 30.0

#: Something that happens to an arena; the number names what it leaves behind.
Act = Callable[[Arena, Random, int], Episode]


def placement(results_between: int = RESULTS_BETWEEN) -> Kind:
    def befall(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
        arena.senders.scatter()
        for number, act in zip(range(times), _acts(), strict=False):
            arena.await_results(results_between)
            yield act(arena, draw, number)

    return befall


def _acts() -> Iterator[Act]:
    """Yield what happens, in order: at first what needs no other broker than one that others use too."""
    yield partial(_kill_join, point="forward a record, before")
    yield partial(_grow, topics=("feedback",), count=2 * PARTITIONS, stage="join")
    yield partial(_kill_join, point="forward a record, after")
    yield _begin_other_join
    yield partial(_kill_join_as_it_grows, topics=("results", "queries"), count=2 * PARTITIONS)
    yield _kill_broker
    yield _end_other_join
    yield _kill_join
    yield partial(_kill_join_as_it_grows, topics=("feedback",), count=3 * PARTITIONS)
    yield _kill_broker
    yield _begin_other_join
    yield partial(_grow, topics=("results", "queries"), count=3 * PARTITIONS, stage="router")
    yield _kill_join
    yield _kill_other_join
    yield from itertools.cycle((_kill_join, _kill_broker, _begin_other_join, _kill_join, _end_other_join))


def _kill_join(arena: Arena, draw: Random, number: int, *, point: str | None = None) -> Episode:
    points = points_of("join", misplaced=True)
    chosen = draw.choice(points) if point is None else point_named(point)
    return replace(killed_at(arena, "join", chosen, number, draw), kind=KIND)


def _kill_broker(arena: Arena, _draw: Random, _number: int) -> Episode:
    broker_faults.killed(arena)
    return recovered(arena, KIND, "broker: killed", "join")


def _begin_other_join(arena: Arena, _draw: Random, number: int) -> Episode:
    """Have another join, with a state directory of its own, take some of the homes over."""
    other = arena.another("join", _OTHER_JOIN, state=f"{_OTHER_JOIN}-{number}")
    before, began_s = _times_assigned(other), time.monotonic()
    other.start()
    wait_until(lambda: _times_assigned(other) > before, "another join is assigned homes", within_s=SETTLE_S)
    return Episode(KIND, "another join comes", 0.0, time.monotonic() - began_s)


def _end_other_join(arena: Arena, _draw: Random, _number: int) -> Episode:
    return _without_other_join(arena, "leaves", signal.SIGTERM)


def _kill_other_join(arena: Arena, _draw: Random, _number: int) -> Episode:
    return _without_other_join(arena, "is killed", signal.SIGKILL)


def _without_other_join(arena: Arena, how: str, number: int) -> Episode:
    other = arena.child(_OTHER_JOIN)
    with suppress(ProcessLookupError):
        other.signal(number)
    if other.await_end(_EXIT_S) not in {0, -signal.SIGKILL}:
        return Episode(KIND, f"the other join {how} and says {other.tail(1)}", 0.0, None)
    return recovered(arena, KIND, f"the other join {how}", "join")


def _times_assigned(child: Child) -> int:
    return sum('"assigned"' in line for line in child.tail(10**6))


def _kill_join_as_it_grows(arena: Arena, draw: Random, number: int, *, topics: Collection[str], count: int) -> Episode:
    """Add partitions, and kill the join as it takes them over."""
    child, armed = arena.child("join"), arena.directory / f"join-{number}.armed"
    point = point_named(draw.choice(("join assigned, before", "join assigned, after")))
    child.kill()
    child.start(replace(child.orders, strike=Strike(point, 1, armed)))
    arena.recovery_s("join", time.monotonic())
    wait_until(lambda: _times_assigned(child) > 0, "the join is assigned its homes", within_s=SETTLE_S)
    armed.touch()
    _add_partitions(arena, topics, count)
    code = child.await_end(STRIKE_S)
    child.kill()
    child.start()
    what = f"join: {point.name}" + ("" if code == -signal.SIGKILL else " (not reached)")
    return recovered(arena, KIND, what, "join")


def _grow(arena: Arena, _draw: Random, _number: int, *, topics: Collection[str], count: int, stage: Stage) -> Episode:
    """Add partitions, and wait until a stage has taken something of every one that is new to it."""
    inputs = [topic for topic in topics if topic in {"feedback", "queries"}]
    before = arena.settings.topics.partitions
    _add_partitions(arena, topics, count)
    added_s = time.monotonic()
    places = [TopicPartition(f"{arena.prefix}.{topic}", n) for topic in inputs for n in range(before, count)]
    what = f"{_and(topics)} to {count} partitions"
    try:
        wait_until(lambda: _have_all_begun(arena, stage, places), "all partitions are read", within_s=SETTLE_S)
    except AssertionError as error:
        return Episode(KIND, f"{what}: {error}", 0.0, None)
    return Episode(KIND, what, 0.0, time.monotonic() - added_s)


def _have_all_begun(arena: Arena, stage: Stage, places: list[TopicPartition]) -> bool:
    consumer = Consumer({"bootstrap.servers": arena.broker.bootstrap, "group.id": f"{arena.prefix}-{stage}"})
    with closing(consumer):
        return all(found.offset > 0 for found in consumer.committed(places, timeout=_ASK_S))


def _add_partitions(arena: Arena, topics: Collection[str], count: int) -> None:
    """Add partitions while everything runs, and have the archive follow them."""
    add_partitions(arena.broker.bootstrap, {f"{arena.prefix}.{topic}": count for topic in topics})
    arena.has_grown = True
    arena.archive.find_growth()


def _and(topics: Collection[str]) -> str:
    return " and ".join(topics)


# --- what came of it ---


def figures(arena: Arena, evidence: Evidence) -> Mapping[str, int]:
    """Return how many labels were sent, counted and forwarded, as the topics have it."""
    feedback = list(evidence.of("feedback"))
    harmed = Counter(finding.harm for finding in check(evidence) if finding.area == "labels")
    misplaced = sum(
        crc32(event_of(record)["query_id"].encode()) % PARTITIONS != record.place.partition % PARTITIONS
        for topic in ("results", "feedback")
        for record in evidence.of(topic)
    )
    forwarded = read_all(arena.broker.bootstrap, f"{arena.prefix}.join-repartition")
    origins = Counter(map(_origin, forwarded))
    examples = {
        (event["query_id"], event["revision"])
        for event in map(event_of, evidence.of("observations"))
        if event["kind"] == "labelled"
    }
    return {
        "records of feedback": len(feedback),
        **{f"sent by {way}": count for way, count in sorted(arena.senders.ways.items())},
        "labels acknowledged": len(evidence.labels),
        "queries labelled": len({event_of(record)["query_id"] for record in feedback}),
        "queries with an example": len({query_id for query_id, _ in examples}),
        "examples": len(examples),
        "lost": harmed["lost"],
        "doubled": harmed["doubled"],
        "records misplaced": misplaced,
        "records forwarded": len(forwarded),
        "records forwarded twice": sum(count > 1 for count in origins.values()),
        "partitions of feedback": 1 + max(record.place.partition for record in feedback),
        "partitions of results": 1 + max(record.place.partition for record in evidence.of("results")),
    }


def _origin(message: Message) -> tuple[object, ...]:
    headers = dict(message.headers() or ())
    return tuple(headers.get(name) for name in (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET))
