"""How fast the status answers, and how fast a roll-back reaches every router.

Answers: one process serves over loopback what its view holds, 100 workloads and 10,000 versions of history, while 100
statuses a second come in; a client asks in turn for each kind of answer and for one of a bare FastAPI application in
the same process. Roll-backs: the demo's stack on a real broker, two routers, 50 queries a second; the time from the
request for a version until both routers decide by it.

    python -m research.status --json status.json --quick
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import numpy as np
from confluent_kafka import Producer
from fastapi import FastAPI
from rich.console import Console
from starlette.responses import JSONResponse

from recalibrator.api.http_context import Context
from recalibrator.api.http_server import HttpServer
from recalibrator.api.http_stage import create_app
from recalibrator.api.keys import Keys
from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.core import Recalibrator
from recalibrator.labelling.queue import LabelQueue
from recalibrator.prometheus_metrics import Metrics
from research.results_json import tell
from schemas.calibration import CalibrationMap, CalibrationVersion
from schemas.command import Command
from schemas.labelled import LabelledExample, OutcomeCounts
from schemas.routed import QueryEvent
from schemas.settings import Settings, WorkloadSettings
from schemas.status import (
    LabelerStatus,
    ModelHealth,
    RecalibratorStatus,
    RouterStatus,
    StageStatus,
    TopicLag,
    VersionInUse,
)
from schemas.topics import QUERIES
from ucci_demo.recorded.traffic import load_traffic
from ucci_runtime.broker.ports import Publisher, TopicReader
from ucci_runtime.process import SystemClock
from ucci_stream.local.stack import WORKLOAD, Stack, StackOptions
from ucci_stream.offline.bootstrap import send_events

WORKLOADS, VERSIONS, POINTS, ROUTERS = 100, 10_000, 700, 10
STATUSES_PER_SECOND = 100
QUERIES_PER_SECOND = 50
FULL, QUICK = (2_000, 200), (300, 20)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_PAUSE_S = 0.25
_PATIENCE_S = 20.0


def settings() -> Settings:
    """Return settings of so many workloads."""
    workload = {"fields": ["camera", "lens", "iso"], "target": {"micro_f1": 0.9}, "cost": {"large": 3.0}}
    return Settings.model_validate({"workloads": {f"workload-{n:03d}": workload for n in range(WORKLOADS)}})


def real_version_and_status(workload: WorkloadSettings) -> tuple[CalibrationVersion, Any]:
    """Return a version and a status of ordinary size, made by the core itself."""
    core, draw = Recalibrator(workload), np.random.default_rng(7)
    version = None
    for n, u in enumerate(draw.beta(0.5, 4.0, 3_000)):
        wrong, large_wrong = bool(draw.random() < u), bool(draw.random() < 0.05)
        example = LabelledExample(
            query_id=f"q-{n}",
            workload=workload.name,
            uncertainty=float(u),
            error_probability=float(u),
            small_exact=not wrong,
            small=OutcomeCounts(true_positives=2 if wrong else 3, predicted=3),
            large=OutcomeCounts(true_positives=2 if large_wrong else 3, predicted=3),
            gold_count=3,
            large_probability=1.0,
            label_probability=1.0,
            label_requested=True,
            reason="cold_start",
            agree=wrong == large_wrong,
            routed_at=_START + timedelta(seconds=n),
            labelled_at=_START + timedelta(seconds=n + 60),
        )
        version = core.observe(example) or version
    assert version is not None
    return version, core.status()


def fill(cache: TopicCache, letters: DeadLetterLog, configured: Settings) -> tuple[Any, float]:
    """Put in what the topics would tell; returns the status that goes on coming, and the seconds the versions took."""
    version, status = real_version_and_status(next(iter(configured.workloads.values())))
    content = {name: getattr(version, name) for name in type(version).model_fields if name != "digest"}
    now = datetime.now(UTC)
    versions_s = 0.0
    for name in configured.workloads:
        for number in range(1, VERSIONS // WORKLOADS + 1):
            changes = {"workload": name, "version": number, "parent_version": number - 1 or None}
            sealed = CalibrationVersion.sealed(**(content | changes))
            record = sealed.to_json()
            began_s = time.perf_counter()
            cache.take("ucci.calibration-history", f"{name}:{number}".encode(), record)
            versions_s += time.perf_counter() - began_s
        for point in range(POINTS):
            told = {"workload": name, "updated_at": now - timedelta(seconds=POINTS - point), "calibration_version": 50}
            cache.take("ucci.status", name.encode(), status.model_copy(update=told).to_json())
    for n in range(ROUTERS):
        router = RouterStatus(
            instance_id=f"router-{n}",
            started_at=_START,
            updated_at=now,
            ready=True,
            versions={name: VersionInUse(version=50, since=now) for name in configured.workloads},
            models={
                name: {"small": ModelHealth(state="up", latency_s={"p50": 0.02, "p90": 0.05, "p99": 0.2})}
                for name in configured.workloads
            },
            lag={str(partition): 3 for partition in range(6)},
        )
        cache.take("ucci.routers", router.instance_id.encode(), router.to_json())
    labelers = tuple(LabelerStatus(labeler=f"labeler-{n}", labels=100 + n) for n in range(20))
    recalibrator = RecalibratorStatus(
        instance_id="recalibrator-0/join",
        started_at=_START,
        updated_at=now,
        stages={"join": StageStatus(ready=True, lag={"ucci.results": TopicLag(records=5, seconds=0.2)})},
        labelers=dict.fromkeys(configured.workloads, labelers),
    )
    cache.take("ucci.recalibrators", b"recalibrator-0/join", recalibrator.to_json())
    headers: dict[str, bytes | None] = {"dlq.stage": b"route", "dlq.reason": b"not_json", "dlq.error": b"not JSON"}
    for n in range(1_000):
        letters.take(f"workload-{n % WORKLOADS:03d}".encode(), b"x", headers, int(now.timestamp() * 1_000))
    return status, versions_s


def serve(pipe: Connection) -> None:
    """Serve until told to end; runs as a process of its own."""
    configured = settings()
    cache, letters = TopicCache(tuple(configured.workloads), "ucci"), DeadLetterLog(tuple(configured.workloads))
    status, took_s = fill(cache, letters, configured)
    context = Context(
        Metrics(),
        SystemClock(),
        list,
        settings=configured,
        keys=Keys({}),
        cache=cache,
        letters=letters,
        documents=StatusDocuments(configured, cache, letters),
        queue=LabelQueue.configured(configured),
        producer=cast(Publisher, None),
        results=lambda: cast(TopicReader, None),
    )
    bare = FastAPI()

    @bare.get("/bare")
    async def answer() -> JSONResponse:
        return JSONResponse({"status": "alive"})

    servers = [HttpServer(create_app(context), "127.0.0.1", 0), HttpServer(bare, "127.0.0.1", 0)]
    for server in servers:
        server.start()
    size = len(status.to_json())
    pipe.send({"ports": [server.port for server in servers], "versions_s": took_s, "status_bytes": size})
    names = list(configured.workloads)
    turn = 0
    while not pipe.poll(1.0 / STATUSES_PER_SECOND):
        name = names[turn % len(names)]
        told = {"workload": name, "updated_at": datetime.now(UTC), "calibration_version": 50}
        cache.take("ucci.status", name.encode(), status.model_copy(update=told).to_json())
        turn += 1
    for server in servers:
        server.close()


def measure_answers(requests: int) -> dict[str, Any]:
    """Return latencies of each kind of answer, and their ratio to the bare application's."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    told = ours.recv()
    paths = {
        "bare": (1, lambda _: "/bare"),
        "one workload": (0, lambda n: f"/v1/status/workload-{n % WORKLOADS:03d}"),
        "all workloads": (0, lambda _: "/v1/status"),
        "history": (0, lambda n: f"/v1/status/workload-{n % WORKLOADS:03d}/history"),
        "versions": (0, lambda n: f"/v1/calibrations/workload-{n % WORKLOADS:03d}"),
        "one version": (0, lambda n: f"/v1/calibrations/workload-{n % WORKLOADS:03d}/{n % 100 + 1}"),
    }
    clients = [http.client.HTTPConnection("127.0.0.1", port) for port in told["ports"]]
    taken: dict[str, list[float]] = {kind: [] for kind in paths}
    sizes: dict[str, int] = {}
    for n in range(requests):
        for kind, (server, path) in paths.items():
            began_s = time.perf_counter()
            clients[server].request("GET", path(n))
            answer = clients[server].getresponse()
            body = answer.read()
            taken[kind].append(time.perf_counter() - began_s)
            assert answer.status == 200, body[:200]
            sizes[kind] = len(body)
    ours.send("end")
    process.join(_PATIENCE_S)
    bare_s = float(np.median(taken["bare"]))
    return {
        "workloads": WORKLOADS,
        "versions": VERSIONS,
        "seconds_to_take_the_versions": round(told["versions_s"], 2),
        "answers": {
            kind: quantiles_ms(values) | {"bytes": sizes[kind], "median_to_bare": round(np.median(values) / bare_s, 2)}
            for kind, values in taken.items()
        },
    }


def measure_roll_backs(count: int) -> dict[str, Any]:
    """Return the time from the request to both routers deciding by the version, on a real broker."""
    with tempfile.TemporaryDirectory() as directory:
        options = StackOptions(directory=Path(directory), broker="kafka")
        with Stack(options, Console(stderr=True)) as stack:
            for threshold in (0.3, 0.4):
                _publish(stack, threshold)
            routers = [
                http.client.HTTPConnection(address.removeprefix("http://")) for address in stack.addresses.routers
            ]
            api = http.client.HTTPConnection(stack.addresses.recalibrator.removeprefix("http://"))
            last = _await_versions(routers, 2)
            taken = []
            stream = _Stream(stack)
            stream.start()
            for n in range(count):
                time.sleep(_PAUSE_S)
                began_s = time.perf_counter()
                api.request("POST", f"/v1/calibrations/{WORKLOAD}/{n % 2 + 1}:activate?wait_s=0")
                answer = api.getresponse()
                assert answer.read()
                assert answer.status == 202, answer.status
                last = _await_versions(routers, last + 1)
                taken.append(time.perf_counter() - began_s)
            stream.end()
    numbers = {"routers": len(routers), "roll_backs": count, "queries_per_second": QUERIES_PER_SECOND}
    return numbers | quantiles_ms(taken)


class _Stream(Thread):
    """Queries at an even pace meanwhile: routers, join and fit have their ordinary work to do."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(name="stream", daemon=True)
        self._topic = QUERIES.name(stack.settings.topics.prefix)
        self._producer = Producer({"bootstrap.servers": stack.settings.kafka["bootstrap.servers"], "linger.ms": 5})
        self._ending = Event()

    def run(self) -> None:
        """Send until told to end."""
        for number, query in enumerate(cycle(load_traffic())):
            if self._ending.wait(1.0 / QUERIES_PER_SECOND):
                return
            event = QueryEvent(query_id=f"bench-{number}", text=query.text)
            self._producer.produce(self._topic, key=event.query_id.encode(), value=event.to_json())
            self._producer.poll(0)

    def end(self) -> None:
        """Send no more, and wait for the rest to be taken."""
        self._ending.set()
        self.join()
        self._producer.flush(_PATIENCE_S)
        # A client that outlived the broker would complain of it.
        del self._producer


def _connect(address: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(address.removeprefix("http://"))


def _publish(stack: Stack, threshold: float) -> None:
    command = Command(
        workload=WORKLOAD,
        action="bootstrap",
        map=CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.9)),
        uncertainty_threshold=threshold,
        issued_by="benchmark",
        issued_at=datetime.now(UTC),
    )
    send_events(stack.settings, WORKLOAD, [command])


def _await_versions(routers: list[http.client.HTTPConnection], wanted: int) -> int:
    """Ask every router until all decide by this version or a later one; returns the lowest."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        found = [_version(router) for router in routers]
        if min(found) >= wanted:
            return min(found)
        time.sleep(0.001)
    raise TimeoutError(f"not every router decides by version {wanted} after {_PATIENCE_S:g} s: {found}")


def _version(router: http.client.HTTPConnection) -> int:
    router.request("GET", "/v1/status")
    status: Mapping[str, Any] = json.loads(router.getresponse().read())
    return int(status["versions"][WORKLOAD]["version"] or 0)


def quantiles_ms(seconds: list[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum in milliseconds."""
    p50, p99 = np.quantile(seconds, (0.5, 0.99))
    return {"p50_ms": round(1e3 * p50, 2), "p99_ms": round(1e3 * p99, 2), "max_ms": round(1e3 * max(seconds), 2)}


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="How fast the status answers, and roll-backs reach the routers.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer requests and roll-backs")
    parser.add_argument("--only", choices=("answers", "roll-backs"), help="one of the two; by default both")
    options = parser.parse_args()
    requests, roll_backs = QUICK if options.quick else FULL
    numbers: dict[str, Any] = {}
    if options.only != "roll-backs":
        numbers["status"] = measure_answers(requests)
    if options.only != "answers":
        numbers["roll_back"] = measure_roll_backs(roll_backs)
    tell(numbers, options.json)


if __name__ == "__main__":
    main()
