"""A gateway in this process, over any broker, with an answerer that the test controls or with model servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from schemas.routed import QueryEvent
from schemas.settings import Settings
from stream_router.cascade.answerer import CascadeAnswerer
from stream_router.gateway.service import GatewayService
from stream_router.ports import Answerer, Calibrations
from stream_router.process import AnswererFactory
from stream_router.prometheus_metrics import Metrics
from tests.support.answerers import EchoAnswerer
from tests.support.memory_broker.broker import MemoryCluster, create_topics, memory_connect
from tests.support.model_clients import workload
from tests.support.waiting import until_served
from ucci_runtime.broker.ports import Connect
from ucci_runtime.clock import Clock
from ucci_runtime.process import SystemClock

DEADLINE_S = 60.0


@dataclass
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        found = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return str(found["code"])


async def _answered(answer: aiohttp.ClientResponse) -> Answered:
    """Read an answer; each one carries the headers that browsers go by."""
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Server"] == "stream-router"
    return Answered(answer.status, dict(answer.headers), await answer.read())


@dataclass
class RunningGateway:
    service: GatewayService
    task: asyncio.Task[None]
    session: aiohttp.ClientSession

    @property
    def port(self) -> int:
        return self.service.http_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(self, path: str, body: Any, **headers: str) -> Answered:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        async with self.session.post(f"{self.url}{path}", data=data, headers=named) as answer:
            return await _answered(answer)

    async def get(self, path: str, **headers: str) -> Answered:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        async with self.session.get(f"{self.url}{path}", headers=named) as answer:
            return await _answered(answer)

    async def complete(self, text: str = "a query", query_id: str | None = None, **more: Any) -> Answered:
        metadata = {} if query_id is None else {"metadata": {"query_id": query_id}}
        return await self.post("/v1/completions", {"model": "photo", "prompt": text} | metadata | more)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds; fails when the service ends first."""
        await until_served(self.task, holds, what)

    async def until_ready(self) -> None:
        await self.until(lambda: self.service.status().ready, "ready")

    def metric(self, name: str, **labels: str) -> float:
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0


def gateway_settings(bootstrap: str = "127.0.0.1:9", prefix: str = "ucci", **tables: Any) -> Settings:
    """Return settings of a gateway on a free port, with one workload; ``gateway`` adds to its table."""
    gateway = {"http_port": 0} | tables.pop("gateway", {})
    fixed = {"kafka": {"bootstrap.servers": bootstrap}, "topics": {"prefix": prefix, "partitions": 4}}
    photo = workload(**tables.pop("photo", {})).model_dump()
    return Settings.model_validate(fixed | {"gateway": gateway, "workloads": {"photo": photo}} | tables)


def cluster() -> MemoryCluster:
    made = MemoryCluster(SystemClock())
    create_topics(made, 4)
    return made


def cascade(settings: Settings, calibrations: Calibrations, clock: Clock, metrics: Metrics) -> Answerer:
    return CascadeAnswerer(settings, calibrations, clock, settings.gateway.instance_id, metrics, waits=False)


def echo(hold: Callable[[QueryEvent], Awaitable[object]] | None = None) -> AnswererFactory:
    def build(settings: Settings, calibrations: Calibrations, clock: Clock, metrics: Metrics) -> Answerer:
        return EchoAnswerer(settings, calibrations, clock, hold)

    return build


@asynccontextmanager
async def gateway(
    settings: Settings | None = None,
    connect: Connect | MemoryCluster | None = None,
    build: AnswererFactory | None = None,
) -> AsyncIterator[RunningGateway]:
    """Run a gateway for the length of a block; by default over a broker in memory, without models."""
    given = connect if connect is not None else cluster()
    made = memory_connect(given) if isinstance(given, MemoryCluster) else given
    service = GatewayService(settings or gateway_settings(), made, build or echo())
    task = asyncio.create_task(service.run())
    async with aiohttp.ClientSession() as session:
        running = RunningGateway(service, task, session)
        try:
            await running.until(lambda: service._listener._listening is not None, "listening")
            await running.until_ready()
            yield running
        finally:
            service.end()
            async with asyncio.timeout(DEADLINE_S):
                await task
