"""What an operator reads from a running router over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.broker import follow, produce, unique_prefix
from tests.support.router_processes import RouterProcess, hashed_models, publish_calibration, write_config
from tests.support.routers import create_topics, query
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

QUERIES = 20


@pytest.fixture
def router(tmp_path: Path) -> Iterator[RouterProcess]:
    """A router to be configured by the test, and ended with it."""
    process = RouterProcess(tmp_path / "ucci.toml", "router-0", tmp_path / "router.log", forked=True)
    yield process
    process.close()


async def test_metrics_count_every_call_and_result(broker: LocalBroker, router: RouterProcess) -> None:
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix, 2)
    publish_calibration(broker.bootstrap, prefix)
    results = follow(broker.bootstrap, f"{prefix}.results")
    async with hashed_models() as (url, _models), aiohttp.ClientSession() as http:
        write_config(router.config, broker.bootstrap, prefix, url)
        router.start()
        produce(broker.bootstrap, f"{prefix}.queries", [query(f"q{n}", f"text {n}") for n in range(QUERIES)])
        await router.until_logged("assigned")
        assert len(await asyncio.to_thread(results.consume, QUERIES, 60.0)) == QUERIES
        port = (await router.until_logged("serving status"))["port"]
        async with http.get(f"http://127.0.0.1:{port}/metrics") as reply:
            found = dict(line.rsplit(" ", 1) for line in (await reply.text()).splitlines() if line[0] != "#")
    results.close()
    assert found['ucci_router_model_calls_total{outcome="answered",role="small",workload="photo"}'] == "20.0"
    escalated = float(found['ucci_router_model_calls_total{outcome="answered",role="large",workload="photo"}'])
    assert 0 < escalated < QUERIES
    assert found['ucci_router_model_call_seconds_count{role="small",workload="photo"}'] == "20.0"
    for role in ("small", "large"):
        labels = f'{{role="{role}",workload="photo"}}'
        assert found[f"ucci_router_model_up{labels}"] == "1.0"
        assert float(found[f"ucci_router_model_concurrency_limit{labels}"]) >= 1.0
        for name in ("overloaded", "in_flight", "queued"):
            assert found[f"ucci_router_model_{name}{labels}"] == "0.0"
    assert found["ucci_router_ready"] == "1.0"
