"""A router in this process, on a real broker, with an answerer that the test controls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import Message

from schemas.routed import QueryEvent
from schemas.settings import Settings
from stream_router.ports import Calibrations
from stream_router.prometheus_metrics import Metrics
from stream_router.service import Service
from tests.support.answerers import EchoAnswerer
from tests.support.broker import create, documents
from tests.support.waiting import until_served
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.clock import Clock

DEADLINE_S = 60.0
NOWHERE = "http://127.0.0.1:9/v1"
WORKLOAD: dict[str, Any] = {
    "fields": ["camera"],
    "small": {"base_url": NOWHERE, "model": "small"},
    "large": {"base_url": NOWHERE, "model": "large"},
    "target": {"micro_f1": 0.9},
}


def router_settings(bootstrap: str, prefix: str, **router: Any) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": bootstrap},
            "topics": {"prefix": prefix, "partitions": 4},
            "router": {"http_port": 0, "commit_interval_ms": 50, **router},
            "workloads": {"photo": WORKLOAD},
        }
    )


def create_topics(bootstrap: str, prefix: str, partitions: int = 4, **results: str) -> None:
    create(bootstrap, {f"{prefix}.queries": partitions})
    create(bootstrap, {f"{prefix}.results": partitions, f"{prefix}.dead-letters": partitions}, results)
    create(bootstrap, {f"{prefix}.calibration": 1, f"{prefix}.routers": 1}, {"cleanup.policy": "compact"})


def query(query_id: str, text: str = "a query", **more: Any) -> tuple[str, bytes]:
    return query_id, json.dumps({"query_id": query_id, "text": text, **more}).encode()


def result_ids(bootstrap: str, prefix: str) -> list[str]:
    return sorted(result["query_id"] for result in documents(bootstrap, f"{prefix}.results"))


def value_of(message: Message) -> bytes:
    value = message.value()
    assert value is not None
    return value


class RunningRouter:
    def __init__(self, settings: Settings, hold: Callable[[QueryEvent], Awaitable[object]] | None = None) -> None:
        self._hold = hold
        self.answerer: EchoAnswerer
        self.service = Service(settings, kafka_connect(settings, "router"), self._build)
        self.task: asyncio.Task[None] | None = None

    def _build(self, settings: Settings, calibrations: Calibrations, clock: Clock, metrics: Metrics) -> EchoAnswerer:
        self.answerer = EchoAnswerer(settings, calibrations, clock, self._hold)
        return self.answerer

    def count(self, name: str) -> int:
        return self.service.metrics.totals().get(name, 0)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds; fails when the service ends first."""
        assert self.task is not None
        await until_served(self.task, holds, what)

    async def until_ready(self) -> None:
        await self.until(lambda: self.service.status().ready, "ready")

    async def until_committed(self, results: int, dead_letters: int = 0) -> None:
        await self.until(
            lambda: self.count("results") >= results and self.count("dead_letters") >= dead_letters,
            f"{results} results and {dead_letters} dead letters",
        )

    async def end(self) -> None:
        """Drain, as on SIGTERM."""
        assert self.task is not None
        self.service.end()
        async with asyncio.timeout(DEADLINE_S):
            await self.task


@asynccontextmanager
async def running(
    settings: Settings, hold: Callable[[QueryEvent], Awaitable[object]] | None = None
) -> AsyncIterator[RunningRouter]:
    router = RunningRouter(settings, hold)
    router.task = asyncio.create_task(router.service.run())
    try:
        yield router
    finally:
        if not router.task.done():
            await router.end()
