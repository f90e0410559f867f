"""Gateways as processes on a real broker: drained by a signal, and part of the loop from labels to the next version."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.broker import documents, produce
from tests.support.gateway_processes import DEADLINE_S, GatewayProcess, ask
from tests.support.recalibrator_processes import RecalibratorProcess
from tests.support.router_processes import hashed_models, write_config
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LABELLED = 400
GATEWAY = ["[gateway]", "http_port = 0"]


async def test_sigterm_answers_what_is_in_flight_and_exits_0(
    broker: LocalBroker, prefix: str, start: Callable[..., None], tmp_path: Path
) -> None:
    async with hashed_models() as (models, control), aiohttp.ClientSession() as http:
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, models, GATEWAY)
        process = GatewayProcess(config, "gateway-0", tmp_path / "gateway.log")
        start(process)
        url = await process.until_serving()
        asking = [asyncio.create_task(ask(http, url, f"q-{n}", f"slow {n}")) for n in range(5)]
        await control.until_called("small", 5)
        process.terminate()
        await process.until_logged("draining; a second signal ends at once")
        control.release.set()
        found = await asyncio.gather(*asking)
        assert await process.exit_code() == 0
    assert {status for status, _ in found} == {200}
    assert process.events()[-1]["event"] == "ended"
    written = {result["query_id"] for result in documents(broker.bootstrap, f"{prefix}.results")}
    assert written == {f"q-{n}" for n in range(5)}


async def test_labels_of_its_queries_make_the_next_version(
    broker: LocalBroker, prefix: str, start: Callable[..., None], tmp_path: Path
) -> None:
    """Results and labels of the gateway's queries move the calibration, and its next answer names the new version.

    A query that was asked twice under one id has two results; its label counts once.
    """
    ask_all = "sampling = { label_probability_kept = 1.0, label_probability_escalated = 1.0 }"
    keep = ["[recalibrator]", f'state_dir = "{tmp_path / "state"}"', "http_port = 0"]
    async with hashed_models() as (models, _), aiohttp.ClientSession() as http:
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, models, [ask_all, *GATEWAY, *keep])
        process = GatewayProcess(config, "gateway-0", tmp_path / "gateway.log")
        recalibrator = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log", forked=True)
        start(process, recalibrator)
        url = await process.until_serving()
        ids = [f"q-{n}" for n in range(LABELLED)]
        found = dict(zip(ids, await asyncio.gather(*(ask(http, url, one, one) for one in ids)), strict=True))
        assert {(status, answer["ucci"]["reason"]) for status, answer in found.values()} == {(200, "cold_start")}
        assert all(answer["ucci"]["label_requested"] for _, answer in found.values())
        assert (await ask(http, url, "q-0", "q-0"))[0] == 200, "asked again"
        gold = {name: answer["ucci"]["entities"] for name, (_, answer) in found.items()}
        labels = [{"query_id": name, "entities": entities, "labeler": "ann"} for name, entities in gold.items()]
        lines = [(label["query_id"], json.dumps(label).encode()) for label in labels]
        await asyncio.to_thread(produce, broker.bootstrap, f"{prefix}.feedback", lines)

        def published() -> list[Any]:
            recalibrator.assert_runs()
            return documents(broker.bootstrap, f"{prefix}.calibration")

        newest = (await eventually(published))[-1]
        answer = await until_decided(http, url)
        assert answer["calibration_version"] >= newest["version"]
        assert answer["reason"] != "cold_start"
    observed = documents(broker.bootstrap, f"{prefix}.observations")
    counted = Counter(one["query_id"] for one in observed if one["kind"] == "labelled")
    assert set(counted.values()) == {1}
    results = [one["query_id"] for one in documents(broker.bootstrap, f"{prefix}.results")]
    assert results.count("q-0") == 2


async def until_decided(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        for number in itertools.count():
            decision: dict[str, Any] = (await ask(http, url, f"after-{number}"))[1]["ucci"]
            if decision["calibration_version"] is not None:
                return decision
    raise AssertionError("no end")
