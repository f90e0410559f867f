"""What a caller waits longer through the gateway than at the model server itself.

A local Kafka broker, ``stream-router serve`` as a process, and fake model servers, also processes, that answer every
completion after their service time, whatever the load. Callers in this process keep a fixed number of requests in
flight, in turns: straight to the model server; through the gateway under a version that keeps every query (one model
call, then the result's acknowledgement); and under one that escalates every query (two calls in a row, then the same).
The ratio of latencies within a round is what counts, the median of rounds is shown. The direct call is to one model: an
escalated query waits for two, so that its ratio cannot be below 2. Afterwards the topic is read: every answer must be
in it.

    python -m benchmarks.gateway --json gateway.json --quick
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks.results_json import tell
from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence, Signal, Target
from schemas.settings import Settings
from schemas.settings_text import load_settings
from stream_router.model_client.request import build_request
from ucci_stream.local.broker_probe import pick_port
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import create_topics

LOADS = ((1, 100), (32, 100), (1_000, 1_000))
"""Callers at a time, and the service time of a model call in milliseconds. A thousand callers of a model that takes a
second are a thousand queries a second."""

FULL, QUICK = (5, 6.0), (2, 4.0)
"""Rounds, and seconds of each turn."""

THRESHOLDS = {"kept": 1.0, "escalated": -1.0}
"""Workloads, by the threshold of their version: none of u lies above 1, and all above -1."""

_TEXT = "canon 5d mark iv with the 70-200 at f2.8 and 1/250, iso 400, shot in the evening"
_FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
_PATIENCE_S = 120.0
_JSON = {"Content-Type": "application/json"}

Ask = Callable[[aiohttp.ClientSession], Awaitable[None]]


def config_text(bootstrap: str, prefix: str, port: int, models: int) -> str:
    """Return an ``ucci.toml`` with a workload for each threshold, both of whose models are at one server."""
    endpoint = f'base_url = "http://127.0.0.1:{models}/v1", timeout_s = {_PATIENCE_S}, max_concurrency = 1000'
    lines = [
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[topics]\nprefix = "{prefix}"',
        f"[gateway]\nhttp_port = {port}\nmax_in_flight = 2000\nanswer_timeout_s = {_PATIENCE_S}",
    ]
    for name in THRESHOLDS:
        table = f'prompt = "Query: {{text}}"\nfields = {json.dumps(_FIELDS)}\ntarget.micro_f1 = 0.9\ncost.large = 3.0'
        small, large = (f'{role} = {{ {endpoint}, model = "{role}" }}' for role in ("small", "large"))
        lines.append(f"[workloads.{name}]\n{table}\n{small}\n{large}")
    return "\n".join(lines) + "\n"


def publish_versions(bootstrap: str, prefix: str) -> None:
    """Put a version in force for each workload."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for name, threshold in THRESHOLDS.items():
        version = CalibrationVersion.sealed(
            workload=name,
            version=1,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            map=CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.8)),
            uncertainty_threshold=threshold,
            threshold=0.8,
            exploration_probability=0.0,
            label_probability_kept=0.05,
            label_probability_escalated=0.1,
            target=Target(micro_f1=0.9),
            state="active",
            signal=Signal(small_model="small"),
            evidence=Evidence(trigger="bootstrap"),
        )
        producer.produce(f"{prefix}.calibration", version.to_json(), name)
    producer.flush(_PATIENCE_S)


@contextmanager
def model_server(service_ms: int) -> Iterator[int]:
    """Run a fake model server; yields its port."""
    argv = [sys.executable, "-m", "benchmarks.model_calls", "--serve", str(service_ms)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


@contextmanager
def gateway(config: Path) -> Iterator[None]:
    """Run a gateway until the block ends, and see that it drains."""
    ours = ("UCCI_", "KAFKA_BOOTSTRAP_SERVERS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    argv = [sys.executable, "-m", "stream_router", "serve", "--config", str(config), "--log-format", "json"]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield
            process.terminate()
            assert process.wait(_PATIENCE_S) == 0
        finally:
            process.kill()


async def until_ready(port: int) -> None:
    """Wait until a gateway answers queries."""
    async with asyncio.timeout(_PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)


async def turn(ask: Ask, callers: int, seconds: float) -> list[float]:
    """Keep so many requests in flight; return the seconds that each took.

    Counts from when every connection is open, and as many answers again have come: a gateway that starts gives its
    models one call at first, and more as they prove able to take them.
    """
    took: list[float] = []
    going, answered = True, 0
    warm = asyncio.Barrier(callers + 1)
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=callers), timeout=timeout) as session:

        async def caller() -> None:
            nonlocal answered
            await ask(session)
            await warm.wait()
            while going:
                began_s = time.perf_counter()
                await ask(session)
                took.append(time.perf_counter() - began_s)
                answered += 1

        tasks = [asyncio.create_task(caller()) for _ in range(callers)]
        await warm.wait()
        while answered < callers:  # noqa: ASYNC110 a count has no event, and one would slow what is measured
            await asyncio.sleep(0.01)
        before = len(took)
        await asyncio.sleep(seconds)
        found = took[before:]
        going = False
        await asyncio.gather(*tasks)
    return found


class Targets:
    """What is asked in turns, and which of it was answered.

    Parameters
    ----------
    gateway_port, models_port : int
    settings : Settings
        Those of the gateway.
    """

    def __init__(self, gateway_port: int, models_port: int, settings: Settings) -> None:
        workload = settings.workloads["kept"]
        assert workload.small is not None
        self._direct_body = build_request(workload, workload.small, _TEXT).body
        self._direct = f"http://127.0.0.1:{models_port}/v1/completions"
        self._gateway = f"http://127.0.0.1:{gateway_port}/v1/chat/completions"
        self.answered: set[str] = set()

    def all(self) -> dict[str, Ask]:
        """Return each by its name."""
        return {"direct": self.direct, "kept": self._asking("kept"), "escalated": self._asking("escalated")}

    async def direct(self, session: aiohttp.ClientSession) -> None:
        """Ask the model server itself what the gateway would ask it."""
        async with session.post(self._direct, data=self._direct_body, headers=_JSON) as answer:
            document = json.loads(await answer.read())
        assert document["choices"][0]["finish_reason"] == "stop"

    def _asking(self, workload: str) -> Ask:
        async def ask(session: aiohttp.ClientSession) -> None:
            query_id = uuid.uuid4().hex
            body = {"model": workload, "messages": [{"role": "user", "content": _TEXT}]}
            async with session.post(self._gateway, json=body, headers={"X-Query-Id": query_id}) as answer:
                document = json.loads(await answer.read())
                assert answer.status == 200, document
            assert document["ucci"]["escalated"] == (workload == "escalated"), document
            self.answered.add(query_id)

        return ask


def figures(took: list[float]) -> dict[str, float]:
    """Return the quantiles of latencies, in milliseconds, and how many there are."""
    p50, p99 = np.quantile(took, (0.5, 0.99))
    return {"answers": len(took), "p50_ms": round(1e3 * float(p50), 2), "p99_ms": round(1e3 * float(p99), 2)}


async def rounds_of(targets: dict[str, Ask], callers: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Ask in turns; each round begins with another target."""
    found = []
    names = list(targets)
    for number in range(rounds):
        first = number % len(names)
        one = {name: figures(await turn(targets[name], callers, seconds)) for name in names[first:] + names[:first]}
        for name in THRESHOLDS:
            one[name] |= {
                f"{q}_ratio": round(one[name][f"{q}_ms"] / one["direct"][f"{q}_ms"], 3) for q in ("p50", "p99")
            }
        found.append(one)
        print(json.dumps({"callers": callers, **one}), file=sys.stderr)
    return found


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median over rounds of each figure."""
    return {
        name: {key: statistics.median(one[name][key] for one in rounds) for key in rounds[0][name]}
        for name in rounds[0]
    }


def written(bootstrap: str, topic: str) -> set[str]:
    """Return the ids of the results in a topic."""
    reading = {"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"count-{uuid.uuid4().hex}", **reading})
    left = set(consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
    found = set()
    while left:
        for message in consumer.consume(5_000, 1.0):
            error = message.error()
            if error is None:
                found.add((message.key() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 the library has no public name for it
                left.discard(message.partition())
    consumer.close()
    return found


def measure(bootstrap: str, directory: Path, load: tuple[int, int], how: tuple[int, float]) -> dict[str, Any]:
    """Measure one load with a gateway, topics and a model server of its own."""
    callers, service_ms = load
    prefix, port = f"bench-{uuid.uuid4().hex[:8]}", pick_port()
    with model_server(service_ms) as models:
        config = directory / f"{prefix}.toml"
        config.write_text(config_text(bootstrap, prefix, port, models), encoding="utf-8")
        settings = load_settings(config, {})
        create_topics(settings)
        publish_versions(bootstrap, prefix)
        targets = Targets(port, models, settings)

        async def run() -> list[dict[str, Any]]:
            await until_ready(port)
            return await rounds_of(targets.all(), callers, *how)

        with gateway(config):
            found = asyncio.run(run())
    missing = targets.answered - written(bootstrap, f"{prefix}.results")
    return {
        "callers": callers,
        "service_ms": service_ms,
        "rounds": found,
        "median": medians(found),
        "answered": len(targets.answered),
        "answered_without_result": len(missing),
    }


def main() -> int:
    """Measure and write JSON; exit code 1 when an answer has no result in the topic."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway",
        description="Latency through the gateway against a direct call to the model server.",
        epilog="Example: python -m benchmarks.gateway --json gateway.json --quick",
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    options = parser.parse_args()
    how = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory() as name:
        broker = LocalBroker(Path(name) / "kafka")
        broker.start()
        try:
            found = [measure(broker.bootstrap, Path(name), load, how) for load in LOADS]
        finally:
            broker.stop()
    tell(found, options.json)
    return 1 if any(one["answered_without_result"] for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
