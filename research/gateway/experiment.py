"""One interleaved run: loads and paths take turns on one broker, with the same processes from first to last.

A load is a number of callers and a service time of the model server. The paths: straight to the server; through a
gateway under a version that keeps every query (one model call); the same through a gateway that does not wait for the
broker; and through the first one under a version that escalates every query (two calls in a row). Each round begins
with another load and another path.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from research.gateway.callers import PATIENCE_S, Ask, Asked, turn
from research.gateway.processes import SERVE, SERVE_UNACKNOWLEDGED, gateway, model_server, until_ready
from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence, Signal, Target
from schemas.settings_text import load_settings
from ucci_stream.local.kafka_node import LocalBroker, pick_port
from ucci_stream.topics.admin import create_topics

LOADS = ((1, 100), (32, 100), (256, 1_000), (1_000, 1_000))
"""Callers at a time, and the service time of a model call in milliseconds. A thousand callers of a model that takes a
second are a thousand queries a second."""

THRESHOLDS = {"kept": 1.0, "escalated": -1.0}
"""By the threshold of their version: none of u lies above 1, and all above -1."""

QUANTILES = ("p50", "p99")
_FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
_PREFIX = "bench"

Figures = dict[str, dict[str, float]]
"""Of one turn each, by path."""


def run(rounds: int, seconds: float) -> dict[str, Any]:
    """Measure all loads; each turn takes so many seconds, and its warm-up.

    Returns rounds by load; how many queries were answered, how many of them have no result, and how many took another
    path than the one that was measured.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        broker = LocalBroker(Path(name) / "kafka")
        broker.start()
        running.callback(broker.stop)
        services = {service_ms: running.enter_context(model_server(service_ms)) for _, service_ms in LOADS}
        ports = {SERVE: pick_port(), SERVE_UNACKNOWLEDGED: pick_port()}
        configs = {}
        for number, (module, port) in enumerate(ports.items()):
            configs[module] = Path(name) / f"gateway-{number}.toml"
            configs[module].write_text(_config(broker.bootstrap, number, port, services), encoding="utf-8")
        settings = load_settings(configs[SERVE], {})
        create_topics(settings)
        _publish_versions(broker.bootstrap, services)
        with ExitStack() as gateways:
            for module, config in configs.items():
                gateways.enter_context(gateway(module, config))
            asked = {service_ms: Asked(port, settings) for service_ms, port in services.items()}
            found = asyncio.run(_rounds(asked, ports[SERVE], ports[SERVE_UNACKNOWLEDGED], rounds, seconds))
        answered = set().union(*(one.answered for one in asked.values()))
        missing = answered - _written(broker.bootstrap, settings.topics.prefix + ".results")
    strayed = sum(one.strayed for one in asked.values())
    return {"loads": found, "answered": len(answered), "answered_without_result": len(missing), "strayed": strayed}


async def _rounds(
    asked: Mapping[int, Asked], port: int, unacknowledged: int, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    await until_ready(port)
    await until_ready(unacknowledged)
    found: dict[int, list[Figures]] = {callers: [] for callers, _ in LOADS}
    for number in range(rounds):
        for callers, service_ms in _from(LOADS, number):
            one = asked[service_ms]
            paths = {
                "direct": one.direct,
                "kept": one.through(port, f"kept-{service_ms}", escalated=False),
                "unacknowledged": one.through(unacknowledged, f"kept-{service_ms}", escalated=False),
                "escalated": one.through(port, f"escalated-{service_ms}", escalated=True),
            }
            figures = await _round(dict(_from(tuple(paths.items()), number)), callers, seconds)
            print(json.dumps({"callers": callers, **figures}), file=sys.stderr)
            found[callers].append(figures)
    return [
        {"callers": callers, "service_ms": service_ms, "rounds": found[callers], "median": _medians(found[callers])}
        for callers, service_ms in LOADS
    ]


async def _round(paths: Mapping[str, Ask], callers: int, seconds: float) -> Figures:
    """Ask each path in turn; with the ratio of each to the direct call, and what the acknowledgement adds."""
    one = {path: _figures(await turn(ask, callers, seconds), seconds) for path, ask in paths.items()}
    for q in QUANTILES:
        for path in ("kept", "unacknowledged", "escalated"):
            one[path][f"{q}_ratio"] = round(one[path][f"{q}_ms"] / one["direct"][f"{q}_ms"], 3)
        one["kept"][f"{q}_acknowledged_ms"] = round(one["kept"][f"{q}_ms"] - one["unacknowledged"][f"{q}_ms"], 2)
    return one


def _figures(took: list[float], seconds: float) -> dict[str, float]:
    p50, p99 = (round(1e3 * float(value), 2) for value in np.quantile(took, (0.5, 0.99)))
    return {"answers": len(took), "per_s": round(len(took) / seconds, 1), "p50_ms": p50, "p99_ms": p99}


def _medians(rounds: list[Figures]) -> Figures:
    """Return the median over rounds of each figure."""
    return {
        path: {key: statistics.median(one[path][key] for one in rounds) for key in rounds[0][path]}
        for path in ("direct", "kept", "unacknowledged", "escalated")
    }


def _from(items: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    first = number % len(items)
    return items[first:] + items[:first]


def _config(bootstrap: str, number: int, port: int, services: Mapping[int, int]) -> str:
    """Return an ``ucci.toml`` with a workload for each service time and threshold, both models at one server."""
    lines = [
        f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[topics]\nprefix = "{_PREFIX}"\n[gateway]',
        f'instance_id = "gateway-{number}"\nhttp_port = {port}\nmax_in_flight = 2000\nanswer_timeout_s = {PATIENCE_S}',
    ]
    for service_ms, models in services.items():
        endpoint = f'base_url = "http://127.0.0.1:{models}/v1", timeout_s = {PATIENCE_S}, max_concurrency = 1000'
        small, large = (f'{role} = {{ {endpoint}, model = "{role}" }}' for role in ("small", "large"))
        for name in THRESHOLDS:
            table = (
                f'prompt = "Query: {{text}}"\nfields = {json.dumps(_FIELDS)}\ntarget.micro_f1 = 0.9\ncost.large = 3.0'
            )
            lines.append(f"[workloads.{name}-{service_ms}]\n{table}\n{small}\n{large}")
    return "\n".join(lines) + "\n"


def _publish_versions(bootstrap: str, services: Mapping[int, int]) -> None:
    """Put a version in force for each workload."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for workload, threshold in ((f"{name}-{ms}", level) for ms in services for name, level in THRESHOLDS.items()):
        version = CalibrationVersion.sealed(
            workload=workload,
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
        producer.produce(f"{_PREFIX}.calibration", version.to_json(), workload)
    producer.flush(PATIENCE_S)


def _written(bootstrap: str, topic: str) -> set[str]:
    """Return the ids of the results in a topic."""
    reading = {"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"count-{uuid.uuid4().hex}", **reading})
    left = set(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
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
