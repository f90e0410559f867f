"""The gateway over model servers: it decides by the calibration in force, and waits for no server that is down."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.draws import uniform
from tests.support.gateways import RunningGateway, cascade, cluster, gateway, gateway_settings
from tests.support.memory_broker.broker import MemoryCluster
from tests.support.scripted_model_server import ScriptedModelServer
from tests.support.versions import sealed_version


@asynccontextmanager
async def between(
    topics: MemoryCluster,
) -> AsyncIterator[tuple[RunningGateway, ScriptedModelServer, ScriptedModelServer]]:
    """A gateway over two model servers."""
    async with (
        ScriptedModelServer("small", drops_abandoned=True) as small,
        ScriptedModelServer("large", drops_abandoned=True) as large,
        gateway(gateway_settings(photo={"small": small.base_url, "large": large.base_url}), topics, cascade) as running,
    ):
        yield running, small, large


async def test_a_new_version_decides_the_next_answer() -> None:
    """Without a restart; the answer names it."""
    topics = cluster()
    async with between(topics) as (running, *_):
        found = (await running.complete("canon", "q-1")).json
        assert (found["ucci"]["reason"], found["ucci"]["answered_by"]) == ("cold_start", "large")
        assert found["system_fingerprint"] == "ucci-photo-cold-start"
        assert found["usage"]["completion_tokens"] > 0
        version = sealed_version(version=7, uncertainty_threshold=1.0, exploration_probability=0.0)
        topics.append(topics.place("ucci.calibration", b"photo"), b"photo", version.to_json())
        await running.until(lambda: running.service.status().versions["photo"].version == 7, "version 7")
        found = (await running.complete("canon", "q-2")).json
        assert (found["ucci"]["calibration_version"], found["ucci"]["answered_by"]) == (7, "small")
        assert found["system_fingerprint"] == "ucci-photo-v7"
        assert 0.0 <= found["ucci"]["uncertainty"] <= 1.0
    routed_by = {json.loads(record.value or b"")["routed_by"] for record in topics.records("ucci.results")}
    assert routed_by == {"gateway-0"}


async def test_nobody_waits_for_servers_that_are_down() -> None:
    topics = cluster()
    async with between(topics) as (running, small, large):
        for server in (small, large):
            await server.stop()
        found = await running.complete()
        assert (found.status, found.code) == (503, "model_servers_down")
        assert int(found.headers["Retry-After"]) > 0
        assert (await running.get("/readyz")).status == 503
        await small.start()
        await running.until_ready()
        assert not topics.records("ucci.results")
        assert not topics.records("ucci.dead-letters"), "nothing is known about the query"


async def test_ids_searched_offline_win_no_labels_at_a_gateway() -> None:
    """Without ``draw_key`` too: a caller's id stays the query's, and the draw is the gateway's own."""
    searched = [name for name in map(str, range(4_000)) if uniform(name, "photo") < 0.01]
    async with between(cluster()) as (running, *_):
        found = [(await running.complete("canon", name)).json for name in searched]
    assert [one["id"] for one in found] == searched
    assert sum(one["ucci"]["label_requested"] for one in found) < len(searched) / 2
