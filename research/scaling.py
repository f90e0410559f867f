"""How long partitions stand still while routers join and leave: 1, 3 and 1 again, one after the other and together.

Router processes on a real broker and a scripted model server, under a steady load of queries on every partition. Each
round takes a router to three at once and back one by one, then to three one by one and back at once; routers leave by
SIGTERM, as when Kubernetes scales in. Given is, for each act and round, over all partitions, the longest time

- ``untaken_s``: in which no query of a partition was put to a model for the first time, though they kept coming: it
  stood still;
- ``unanswered_s``: between two committed results of a partition, which holds a call of the model too;
- ``waited_s``: from sending a query to reading its result.

Of two loads: a model that answers within 0.1 s and one that takes 2 s, so that every router has calls in flight as it
leaves. In the end every query must have exactly one result, and every router must have left with exit code 0. Exit code
1 where that fails, or where a partition stood still for longer than 3 s.

    python -m research.scaling --json scaling.json
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from aiohttp import web
from confluent_kafka import Producer

from research.__main__ import provenance
from research.results_json import tell
from tests.support.broker import follow, key_of, read_all, unique_prefix
from tests.support.router_processes import (
    HashedModels,
    RouterProcess,
    hashed_models,
    publish_calibration,
    write_config,
)
from tests.support.routers import create_topics, query
from ucci_stream.local.kafka_node import LocalBroker

PARTITIONS = 6
LOADS = ((0.1, 0.2), (2.0, 0.5))
"""What a call of a model takes, and the time from one query of a partition to its next; in seconds."""

SETTLE_S = 5.0
"""How long partitions are watched after the last router of an act has joined or gone; longer where queries wait."""

WARM_S = 20.0
"""For the first router, which gives its models one call at a time at first."""

LIMIT_S = 3.0
"""The longest that a partition may stand still."""

DEADLINE_S = 150.0
ROUTERS = 3
_LOOK_S = 0.02


class Act(NamedTuple):
    """Routers that start or stop at one moment.

    ``name``: from how many to how many. ``starts``, ``stops``: their numbers.
    """

    name: str
    starts: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()


ROUND = (
    Act("none"),
    Act("1 to 3", starts=(1, 2)),
    Act("3 to 2", stops=(2,)),
    Act("2 to 1", stops=(1,)),
    Act("1 to 2", starts=(1,)),
    Act("2 to 3", starts=(2,)),
    Act("3 to 1", stops=(1, 2)),
)
"""Leaves one router, as it found it."""


class Window(NamedTuple):
    """When an act began, and until when the partitions were watched; in monotonic seconds."""

    act: str
    since_s: float
    until_s: float


class TimedModels(HashedModels):
    """Both models, a call of which takes its time; notes when each query was first put to one, and how often."""

    def __init__(self, service_s: float) -> None:
        super().__init__()
        self._service_s = service_s
        self.called_s: dict[str, list[float]] = defaultdict(list)

    async def complete(self, request: web.Request) -> web.Response:
        """Answer ``POST /v1/completions``."""
        body = await request.json()
        if body["model"] == "small":
            self.called_s[body["prompt"].removeprefix("find ")].append(time.monotonic())
        await asyncio.sleep(self._service_s)
        return await super().complete(request)


class Load:
    """Sends queries to all partitions in turn, at a steady pace, and notes when the result of each is read.

    ``period_s``: from one query of a partition to its next.
    """

    def __init__(self, bootstrap: str, prefix: str, period_s: float) -> None:
        self._pace_s = period_s / PARTITIONS
        self._topic = f"{prefix}.queries"
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._consumer = follow(bootstrap, f"{prefix}.results")
        self.sent_s: dict[str, float] = {}
        self.read_s: dict[str, float] = {}
        self._ending, self._closing = Event(), Event()
        self._sender, self._reader = (Thread(target=each, daemon=True) for each in (self._send, self._read))

    def start(self) -> None:
        """Begin."""
        self._reader.start()
        self._sender.start()

    def catch_up(self) -> None:
        """Wait for the results of what was sent until now.

        Raises TimeoutError naming how many results have not come.
        """
        sent = self.sent_s.copy().keys()
        deadline_s = time.monotonic() + DEADLINE_S
        while missing := sent - self.read_s.keys():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{len(missing)} of {len(sent)} queries have no result")
            time.sleep(_LOOK_S)

    def end(self) -> None:
        """Send no more and wait for the results of what was sent."""
        self._ending.set()
        self._sender.join()
        self.catch_up()

    def close(self) -> None:
        """End the threads."""
        self._ending.set()
        self._closing.set()
        for thread in (self._sender, self._reader):
            if thread.is_alive():
                thread.join()
        self._consumer.close()

    def _send(self) -> None:
        due_s = time.monotonic()
        number = 0
        while not self._ending.wait(max(due_s - time.monotonic(), 0.0)):
            name, value = query(f"q{number}", f"q{number}")
            self.sent_s[name] = time.monotonic()
            self._producer.produce(self._topic, value, name, partition=number % PARTITIONS)
            self._producer.poll(0)
            number += 1
            due_s += self._pace_s
        self._producer.flush(DEADLINE_S)

    def _read(self) -> None:
        while not self._closing.is_set():
            for message in self._consumer.consume(1_000, _LOOK_S):
                if message.error() is None:
                    self.read_s.setdefault(key_of(message), time.monotonic())


def partition_of(query_id: str) -> int:
    """Return the partition that a query was sent to."""
    return int(query_id.removeprefix("q")) % PARTITIONS


def longest_gap_s(at_s: Mapping[str, float], window: Window) -> float:
    """Return the longest time, over partitions, between two events of a partition of which the later is in a window.

    ``at_s``: when something happened to each query.

    Returns infinity where nothing happened to a partition at all.
    """
    by_partition: dict[int, list[float]] = {partition: [] for partition in range(PARTITIONS)}
    for name, when_s in at_s.items():
        by_partition[partition_of(name)].append(when_s)
    return max(_longest(sorted(found), window) for found in by_partition.values())


def _longest(at_s: Sequence[float], window: Window) -> float:
    within = (after - before for before, after in pairwise(at_s) if window.since_s < after <= window.until_s)
    return max(within, default=float("inf"))


def longest_wait_s(load: Load, window: Window) -> float:
    """Return the longest time that a query waited for its result, of those sent within a window."""
    within = [name for name, at_s in load.sent_s.items() if window.since_s <= at_s < window.until_s]
    return max(load.read_s[name] - load.sent_s[name] for name in within)


async def scale(routers: Sequence[RouterProcess], load: Load, act: Act) -> Window:
    """Start or stop routers, wait until they have joined or gone and the queue behind them is answered."""
    since_s = time.monotonic()
    joined = [_times(routers[number], "assigned") + 1 for number in act.starts]
    for number in act.starts:
        routers[number].start()
    for number in act.stops:
        routers[number].terminate()
    for number, times in zip(act.starts, joined, strict=True):
        await routers[number].until_logged("assigned", times, DEADLINE_S)
    for number in act.stops:
        code = await routers[number].exit_code()
        assert code == 0, f"{routers[number].instance_id} ended with exit code {code}: {routers[number].lines()[-3:]}"
    await asyncio.sleep(SETTLE_S)
    await asyncio.to_thread(load.catch_up)
    return Window(act.name, since_s, time.monotonic())


def _times(router: RouterProcess, event: str) -> int:
    return sum(line["event"] == event for line in router.events()) if router.log.exists() else 0


async def measure(broker: LocalBroker, directory: Path, how: tuple[float, float], rounds: int) -> dict[str, Any]:
    """Measure one of :data:`LOADS` with topics and routers of its own."""
    service_s, period_s = how
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix, PARTITIONS)
    publish_calibration(broker.bootstrap, prefix)
    models = TimedModels(service_s)
    windows: list[Window] = []
    async with hashed_models(models) as (url, _):
        config = write_config(directory / "ucci.toml", broker.bootstrap, prefix, url)
        routers = [RouterProcess(config, f"router-{n}", directory / f"{prefix}-{n}.log") for n in range(ROUTERS)]
        load = Load(broker.bootstrap, prefix, period_s)
        try:
            routers[0].start()
            await routers[0].until_logged("assigned", 1, DEADLINE_S)
            load.start()
            await asyncio.sleep(WARM_S)
            await asyncio.to_thread(load.catch_up)
            for _ in range(rounds):
                windows += [await scale(routers, load, act) for act in ROUND]
            await asyncio.to_thread(load.end)
        finally:
            load.close()
            for router in routers:
                router.close()
    found = {"service_s": service_s, "queries_per_s": round(PARTITIONS / period_s, 1), "queries": len(load.sent_s)}
    asked_again = sum(len(calls) - 1 for calls in models.called_s.values())
    return found | verdict(broker, prefix, load) | {"asked_again": asked_again, "acts": figures(load, models, windows)}


def verdict(broker: LocalBroker, prefix: str, load: Load) -> dict[str, int]:
    """Return how many queries have no result, or several, or a dead letter, by what is committed."""
    results = Counter(key_of(message) for message in read_all(broker.bootstrap, f"{prefix}.results"))
    return {
        "lost": len(load.sent_s.keys() - results.keys()),
        "doubled": sum(times > 1 for times in results.values()),
        "dead_letters": len(read_all(broker.bootstrap, f"{prefix}.dead-letters")),
    }


def figures(load: Load, models: TimedModels, windows: Iterable[Window]) -> dict[str, dict[str, list[float]]]:
    """Return the figures of each act, one for each round."""
    called_s = {name: calls[0] for name, calls in models.called_s.items()}
    found: dict[str, dict[str, list[float]]] = {}
    for window in windows:
        each = found.setdefault(window.act, {"untaken_s": [], "unanswered_s": [], "waited_s": []})
        each["untaken_s"].append(round(longest_gap_s(called_s, window), 2))
        each["unanswered_s"].append(round(longest_gap_s(load.read_s, window), 2))
        each["waited_s"].append(round(longest_wait_s(load, window), 2))
    return found


def main() -> int:
    """Measure and write JSON; exit code 1 where a query was lost or doubled, or a partition stood still too long."""
    parser = argparse.ArgumentParser(
        prog="python -m research.scaling",
        description="How long partitions stand still while routers join and leave.",
        epilog="Example: python -m research.scaling --json scaling.json --rounds 3",
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--rounds", type=int, default=3, help="of seven acts each (3)")
    parser.add_argument("--quick", action="store_true", help="one round of each load")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as name, LocalBroker(Path(name) / "kafka") as broker:
        found = [asyncio.run(measure(broker, Path(name), how, rounds)) for how in LOADS]
    command = ["-m", "research.scaling", "--rounds", str(rounds)]
    tell({"made": provenance(command) | {"load": os.getloadavg()[2]}, "results": found}, options.json)
    return 0 if all(holds(one) for one in found) else 1


def holds(found: Mapping[str, Any]) -> bool:
    """Return whether nothing was lost or doubled, and no partition stood still for too long."""
    stood_s = max(max(each["untaken_s"]) for each in found["acts"].values())
    return not (found["lost"] or found["doubled"] or found["dead_letters"]) and stood_s <= LIMIT_S


if __name__ == "__main__":
    raise SystemExit(main())
