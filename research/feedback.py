"""How much feedback one core takes over HTTP, each event acknowledged by a real broker.

A local Kafka broker; ``recalibrator run --stage api`` as a process pinned to one core; as the baseline, pinned to the
same core, a bare FastAPI application that parses the same event and answers. Callers on the other cores keep a fixed
number of requests in flight, one event each or a batch. Afterwards the topic is read: every acknowledged event must be
in it.

    python -m research.feedback --json feedback.json --quick
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition
from fastapi import FastAPI
from starlette.responses import JSONResponse

from recalibrator.api.http_server import HttpServer
from research.results_json import tell
from schemas.feedback import FeedbackEvent
from schemas.settings import Settings
from ucci_stream.local.kafka_node import LocalBroker, pick_port
from ucci_stream.topics.admin import create_topics

LINES = 1_000
SINGLE, BATCHES = 32, 4
"""Requests in flight."""

PACED = 500

FULL_S, QUICK_S = 15.0, 3.0
WARM_UP_S = 1.0
_PATIENCE_S = 60.0
_WORKLOAD = '[workloads.photo-search]\nfields = ["camera", "lens"]\ntarget.micro_f1 = 0.9\ncost.large = 3.0\n'


@dataclass
class Load:
    """What callers saw."""

    answers: list[float] = field(default_factory=list)
    events: int = 0
    seconds: float = 0.0

    def figures(self) -> dict[str, Any]:
        """Return events a second and quantiles of the answers' latency."""
        p50, p99 = np.quantile(self.answers, (0.5, 0.99))
        return {
            "events_per_second": round(self.events / self.seconds),
            "requests": len(self.answers),
            "p50_ms": round(1e3 * p50, 2),
            "p99_ms": round(1e3 * p99, 2),
        }


class Events:
    """Feedback of ordinary size under ids of their own."""

    def __init__(self) -> None:
        self.made = 0

    def one(self) -> bytes:
        """Return the next event."""
        number = self.made
        self.made += 1
        return (
            f'{{"query_id":"q-{number:08d}","entities":{{"camera":"canon eos 5d mark iv","lens":["ef 24-70mm f/2.8l",'
            f'"ef 50mm f/1.2l"]}},"labeler":"ann","labelled_at":"2026-01-31T12:00:00Z","feedback_id":"f-{number:08d}"}}'
        ).encode()

    def lines(self) -> bytes:
        """Return the next batch."""
        return b"\n".join(self.one() for _ in range(LINES))


def serve_bare(pipe: Connection) -> None:
    """Serve the baseline until told to end; runs as a process of its own."""
    app = FastAPI()

    @app.post("/bare", status_code=202)
    async def take(event: FeedbackEvent) -> JSONResponse:
        return JSONResponse({"query_id": event.query_id}, 202)

    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    pipe.send(server.port)
    pipe.recv()
    server.close()


@contextmanager
def bare(core: int) -> Iterator[int]:
    """Run the baseline on a core; yields its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_bare, args=(theirs,), daemon=True)
    process.start()
    # Before it has threads, which inherit it.
    os.sched_setaffinity(process.pid or 0, {core})
    yield ours.recv()
    ours.send("end")
    process.join(_PATIENCE_S)


@contextmanager
def serving(directory: Path, bootstrap: str, core: int | None = None) -> Iterator[tuple[int, int]]:
    """Run the API stage, on one core if so told; yields its port and process id."""
    port = pick_port()
    config = directory / "ucci.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[recalibrator]\nhttp_port = {port}\n'
        f'state_dir = "{directory / "state"}"\n{_WORKLOAD}',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "recalibrator", "run", "--config", str(config), "--stage", "api"]
    with (directory / "api.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        try:
            asyncio.run(_until_answered(port))
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(_PATIENCE_S)


async def _until_answered(port: int) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                caller = await Caller.connected(port)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            caller.close()
            return


class Caller:
    """One kept connection; does no more than it must, so that the server is what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connected(cls, port: int) -> Caller:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1_000_000))

    async def post(self, path: str, media_type: str, body: bytes) -> bytes:
        """Return the body of the answer, which must be 202."""
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = await self._reader.readexactly(length)
        assert answer.startswith(b"HTTP/1.1 202 "), (answer, content[:300])
        return content

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def drive(
    port: int,
    path: str,
    make: Callable[[], bytes],
    events: int,
    seconds: float,
    *,
    callers: int,
    per_second: float | None = None,
) -> Load:
    """Keep requests coming for so long, after a warm-up that is not counted.

    ``make``: returns the next body. ``events``: in one body: more than one is a batch. ``callers``: requests in flight.
    ``per_second``: requests, at an even pace; a late one's latency counts from when it was due. By default as many as
    are answered.
    """
    load = Load()
    starts_s = time.perf_counter()
    began_s = starts_s + WARM_UP_S
    ends_s = began_s + seconds
    media_type = "application/json" if events == 1 else "application/jsonl"

    async def call(number: int) -> None:
        caller = await Caller.connected(port)
        pause_s = 0.0 if per_second is None else callers / per_second
        due_s = starts_s + pause_s * number / callers
        while True:
            due_s = due_s + pause_s if pause_s else time.perf_counter()
            if due_s >= ends_s:
                break
            await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
            answer = await caller.post(path, media_type, make())
            assert events == 1 or answer.count(b'"status":202') == events
            if due_s >= began_s:
                load.answers.append(time.perf_counter() - due_s)
                load.events += events
        caller.close()

    await asyncio.gather(*(call(number) for number in range(callers)))
    load.seconds = time.perf_counter() - began_s
    return load


def ids_in_topic(bootstrap: str, topic: str) -> list[str]:
    """Return the feedback ids of a topic, from its beginning to its present end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "count", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    partitions = set(consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[str] = []
    while partitions:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                found.append(json.loads(message.value())["feedback_id"])
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # its only name
                partitions.discard(message.partition())
    consumer.close()
    return found


def measure(seconds: float) -> dict[str, Any]:
    """Return the figures of single events, batches and the baseline, and what the topic holds afterwards."""
    *others, core = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(0, others)
    events = Events()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with LocalBroker(directory / "kafka") as broker:
            settings = Settings.model_validate({"kafka": {"bootstrap.servers": broker.bootstrap}})
            create_topics(settings)
            with bare(core) as port:
                loads = {"bare FastAPI": asyncio.run(drive(port, "/bare", Events().one, 1, seconds, callers=SINGLE))}
            with serving(directory, broker.bootstrap, core) as (port, _):
                one, batch = "/v1/feedback", "/v1/feedback:batch"
                loads["single"] = asyncio.run(drive(port, one, events.one, 1, seconds, callers=SINGLE))
                loads[f"single, {PACED} a second"] = asyncio.run(
                    drive(port, one, events.one, 1, seconds, callers=SINGLE, per_second=PACED)
                )
                loads["batches of 1,000"] = asyncio.run(
                    drive(port, batch, events.lines, LINES, seconds, callers=BATCHES)
                )
            found = ids_in_topic(broker.bootstrap, f"{settings.topics.prefix}.feedback")
    acknowledged = events.made
    bare_rate = loads["bare FastAPI"].events / loads["bare FastAPI"].seconds
    return {
        "cores": {"server": 1, "callers and broker": len(others) or 1},
        "in_flight": {"single": SINGLE, "batches": BATCHES},
        "loads": {
            kind: load.figures() | {"rate_to_bare": round(load.events / load.seconds / bare_rate, 2)}
            for kind, load in loads.items()
        },
        "acknowledged": acknowledged,
        "in_topic": len(found),
        "lost": acknowledged - len(set(found)),
    }


def main() -> int:
    """Measure and write JSON; exit code 1 when an acknowledged event is not in the topic."""
    parser = argparse.ArgumentParser(
        prog="python -m research.feedback",
        description="How much feedback one core takes over HTTP, each event acknowledged by a real broker.",
        epilog="Example: python -m research.feedback --json feedback.json --quick",
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_S:g} s a load rather than {FULL_S:g}")
    options = parser.parse_args()
    numbers = measure(QUICK_S if options.quick else FULL_S)
    tell(numbers, options.json)
    return 1 if numbers["lost"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
