"""What exactly-once, any order and validation cost: the router's path against a bare transactional loop.

Both run in this process, on one broker, over the same records, one after the other in rounds. The router answers by a
function that returns at once, so that what is measured is everything but the models: consume, decode, a task a query,
the ledger, encode, one transaction a tick. The bare loop consumes, parses, dumps and produces in order, committing
plain offsets in a transaction of the same tick. Speed is their ratio within a round; the median of rounds counts.
Standard error gets the router's CPU by thread as well.

With ``--tracing`` the same is measured of records that carry a W3C trace context, passed on as it came, and of a router
whose every query is recorded as a span by OpenTelemetry's SDK, the spans thrown away.

    python -m research.router --json router.json --quick --tracing
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from research.results_json import tell
from research.router_process import as_in_a_router
from schemas.costs import QueryCost
from schemas.routed import Decision, LabelRequest, ModelRole, ModelRun, QueryEvent, RoutedEvent
from schemas.settings import Settings
from schemas.status import ModelHealth
from stream_router.otel_tracing import Tracing
from stream_router.ports import Calibrations
from stream_router.prometheus_metrics import Metrics
from stream_router.service import Service
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.clock import Clock
from ucci_stream.local.kafka_node import LocalBroker

PARTITIONS = 4
TICK_MS = 200
FULL = (40_000, 5)
QUICK = (10_000, 3)
_TEXT = "canon 5d mark iv with the 70-200 at f2.8 and 1/250, iso 400, shot in the evening " * 3
_ROUTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_CALL_S = 20.0
_CONTEXT = [("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("tracestate", b"vendor=1")]


class InstantAnswerer:
    """Answers without a model."""

    can_answer = True

    def __init__(self, settings: Settings, _calibrations: Calibrations, _clock: Clock, _metrics: Metrics) -> None:
        self._routed_by = settings.router.instance_id

    async def start(self) -> None:
        """Open nothing."""

    async def close(self) -> None:
        """Close nothing."""

    async def answer(
        self,
        query: QueryEvent,
        workload: str,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002 part of the protocol
    ) -> RoutedEvent:
        """Return a result of ordinary size."""
        entities = {"camera": "canon 5d mark iv", "lens": "70-200", "iso": "400"}
        small = ModelRun(model="small", raw="{}", entities=entities, valid=True, uncertainty=0.1)
        return RoutedEvent(
            query_id=query.query_id,
            workload=workload,
            text=query.text,
            entities=entities,
            answered_by="small",
            decision=Decision(escalated=False, reason="kept", uncertainty=0.1, large_probability=0.0),
            small=small,
            large=None,
            cost=QueryCost(sequential=1.0, paper=1.0),
            label=LabelRequest(requested=False, probability=0.05),
            routed_at=_ROUTED_AT,
            routed_by=self._routed_by,
        )

    def health(self) -> Mapping[str, Mapping[ModelRole, ModelHealth]]:
        """Return no servers."""
        return {}


def fill(bootstrap: str, prefix: str, records: int, headers: list[tuple[str, bytes]]) -> None:
    """Create the topics and put the records in."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    plain = ("queries", "results", "dead-letters")
    topics = [NewTopic(f"{prefix}.{name}", num_partitions=PARTITIONS) for name in plain]
    topics += [
        NewTopic(f"{prefix}.{name}", num_partitions=1, config={"cleanup.policy": "compact"})
        for name in ("calibration", "routers")
    ]
    for future in admin.create_topics(topics).values():
        future.result(_CALL_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for n in range(records):
        value = json.dumps({"query_id": f"q{n}", "text": _TEXT}).encode()
        while True:
            try:
                producer.produce(f"{prefix}.queries", value, f"q{n}", headers=headers)  # type: ignore[arg-type]
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(_CALL_S)


def router_settings(bootstrap: str, prefix: str, instance_id: str = "router-0") -> Settings:
    """Return the settings of one router; its models are named and never called."""
    return Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": bootstrap},
            "topics": {"prefix": prefix},
            "router": {
                "instance_id": instance_id,
                "http_port": 0,
                "commit_interval_ms": TICK_MS,
                "max_in_flight": 2_000,
            },
            "workloads": {
                "photo": {
                    "fields": ["camera", "lens", "iso"],
                    "small": {"base_url": "http://127.0.0.1:9/v1", "model": "small"},
                    "large": {"base_url": "http://127.0.0.1:9/v1", "model": "large"},
                    "target": {"micro_f1": 0.9},
                }
            },
        }
    )


async def router_run(bootstrap: str, prefix: str, records: int, tracing: Tracing | None = None) -> tuple[float, float]:
    """Return seconds of wall clock and of CPU from the first transaction's queries to the last commit."""
    settings = router_settings(bootstrap, prefix)
    service = Service(settings, kafka_connect(settings, "router"), InstantAnswerer, tracing=tracing)
    task = asyncio.create_task(service.run())
    with as_in_a_router():
        took = await _first_to_last(service, records, task)
    service.end()
    await task
    return took


async def _first_to_last(service: Service, records: int, task: asyncio.Task[None]) -> tuple[float, float]:
    while service.metrics.totals().get("queries", 0) == 0 and not task.done():  # noqa: ASYNC110 counters have no event
        await asyncio.sleep(0.001)
    began_s, began_cpu_s, began = time.perf_counter(), cpu_s(), cpu_by_thread()
    while service.metrics.totals().get("results", 0) < records and not task.done():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began_s, cpu_s() - began_cpu_s
    each = {name: round((used - began[name]) / records * 1e6, 2) for name, used in cpu_by_thread().items()}
    print(json.dumps({"cpu_us_by_thread": {name: us for name, us in each.items() if us}}), file=sys.stderr)
    return took


def bare_run(bootstrap: str, prefix: str, records: int) -> tuple[float, float]:
    """Return the same of a loop that does the least."""
    group = f"bare-{uuid.uuid4().hex}"
    reading = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **reading})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(_CALL_S)
    consumer.subscribe([f"{prefix}.queries"])
    first = None
    while first is None:
        first = consumer.poll(0.1)
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    pending, committed, messages = 0, 0, [first]
    producer.begin_transaction()
    due_s = time.perf_counter() + TICK_MS / 1_000
    while committed < records:
        for message in messages:
            query = json.loads(message.value())
            value = json.dumps({"query_id": query["query_id"], "text": query["text"], "entities": {}}).encode()
            producer.produce(f"{prefix}.results", value, query["query_id"])
        pending += len(messages)
        if pending and (time.perf_counter() >= due_s or committed + pending >= records):
            positions = consumer.position([TopicPartition(f"{prefix}.queries", p) for p in range(PARTITIONS)])
            read = [position for position in positions if position.offset >= 0]
            producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), _CALL_S)
            producer.commit_transaction(_CALL_S)
            committed, pending = committed + pending, 0
            producer.begin_transaction()
            due_s = time.perf_counter() + TICK_MS / 1_000
        messages = consumer.consume(2_000, 0.01)
    took = time.perf_counter() - began_s, cpu_s() - began_cpu_s
    producer.abort_transaction(_CALL_S)
    consumer.close()
    return took


def cpu_by_thread() -> dict[str, float]:
    """Return the CPU seconds of this process's threads by name (Linux); the client library's begin with ``rdk:``."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    used: dict[str, float] = defaultdict(float)
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile
            name = names.get(int(task.name)) or (task / "comm").read_text().strip()
            used[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return used


def cpu_s() -> float:
    """Return this process's CPU time, the client library's threads included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def spans_to_nowhere() -> Tracing:
    """Return OpenTelemetry's SDK as it comes, without an exporter: every span is made and dropped."""
    from opentelemetry.sdk.trace import TracerProvider

    from stream_router.otel_tracing import OpenTelemetry

    return OpenTelemetry(TracerProvider())


def measure(bootstrap: str, records: int, rounds: int, *, tracing: bool = False) -> dict[str, Any]:
    """Run all in turn; each run has topics of its own, and each round begins with another one."""
    runs: dict[str, Callable[[str], tuple[float, float]]] = {
        "router": lambda prefix: asyncio.run(router_run(bootstrap, prefix, records)),
        "bare": lambda prefix: bare_run(bootstrap, prefix, records),
    }
    if tracing:
        runs["context"] = runs["router"]
        runs["spans"] = lambda prefix: asyncio.run(router_run(bootstrap, prefix, records, spans_to_nowhere()))
    found: list[dict[str, float]] = []
    names = list(runs)
    for number in range(rounds):
        took: dict[str, tuple[float, float]] = {}
        first = number % len(names)
        for name in names[first:] + names[:first]:
            prefix = f"bench-{uuid.uuid4().hex[:8]}"
            fill(bootstrap, prefix, records, _CONTEXT if name in ("context", "spans") else [])
            took[name] = runs[name](prefix)
        each = {f"{name}_per_s": records / wall_s for name, (wall_s, _) in took.items()}
        each |= {f"{name}_cpu_us": used_s / records * 1e6 for name, (_, used_s) in took.items()}
        each["speed_ratio"] = took["bare"][0] / took["router"][0]
        if tracing:
            each |= {f"{name}_cpu_to_router": took[name][1] / took["router"][1] for name in ("context", "spans")}
        found.append(each)
        print(json.dumps(found[-1]), file=sys.stderr)
    medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
    return {"records": records, "rounds": found, "median": medians}


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="The router's path against a bare transactional loop.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer records and rounds")
    parser.add_argument("--tracing", action="store_true", help="also with trace contexts, and with spans")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    records, rounds = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory() as directory, LocalBroker(Path(directory)) as broker:
        numbers = measure(broker.bootstrap, records, rounds, tracing=options.tracing)
    tell(numbers, options.json)


if __name__ == "__main__":
    main()
