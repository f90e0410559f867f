"""The whole loop in one process, on the broker in memory: calls through the gateway, their labels, the next version."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from schemas.settings import Settings
from tests.support.gateways import RunningGateway, cascade, gateway
from tests.support.live_recalibrator import live_settings, new_cluster, running
from tests.support.memory_broker.broker import MemoryCluster
from tests.support.model_clients import workload
from tests.support.router_processes import hashed_models

LABELLED = 400


def values(of: MemoryCluster, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in of.records(topic)]


def settings_for(models: str, state_dir: Path) -> Settings:
    """Return settings of both services, under which every label is asked for."""
    always = {"label_probability_kept": 1.0, "label_probability_escalated": 1.0}
    photo = workload(models, models, cost={"small": 1.0, "large": 3.0}, sampling=always)
    return live_settings(state_dir, gateway={"http_port": 0}, workloads={"photo": photo.model_dump()})


async def label_answers(running_gateway: RunningGateway, topics: MemoryCluster) -> None:
    """Ask, and label each answer as right; the first query is asked twice under one id."""
    ids = [f"q-{n}" for n in range(LABELLED)]
    found = await asyncio.gather(*(running_gateway.complete(one, one) for one in [*ids, ids[0]]))
    assert {(one.status, one.json["ucci"]["reason"]) for one in found} == {(200, "cold_start")}
    for one in found[:LABELLED]:
        key, entities = one.json["id"], one.json["ucci"]["entities"]
        label = {"query_id": key, "entities": entities, "labeler": "ann"}
        topics.append(topics.place("ucci.feedback", key.encode()), key.encode(), json.dumps(label).encode())


async def test_labels_of_its_queries_make_the_next_version(tmp_path: Path) -> None:
    """Its next answer names the version. A query asked twice has two results, and its label counts once."""
    topics = new_cluster()
    async with hashed_models() as (models, _):
        settings = settings_for(models, tmp_path)
        recalibrator = running(settings, topics)
        await asyncio.to_thread(recalibrator.__enter__)
        try:
            async with gateway(settings, topics, cascade) as asked:
                await label_answers(asked, topics)
                await asked.until(lambda: asked.service.status().versions["photo"].version is not None, "a version")
                decision = (await asked.complete("after", "after")).json["ucci"]
        finally:
            await asyncio.to_thread(recalibrator.__exit__, None, None, None)
    published = {one["version"] for one in values(topics, "ucci.calibration")}
    assert decision["calibration_version"] in published
    assert decision["reason"] != "cold_start"
    labelled = Counter(one["query_id"] for one in values(topics, "ucci.observations") if one["kind"] == "labelled")
    assert set(labelled.values()) == {1}
    assert Counter(one["query_id"] for one in values(topics, "ucci.results"))["q-0"] == 2
