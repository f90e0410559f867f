"""A gateway as a process on a real broker, drained by a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.support.broker import documents
from tests.support.gateway_processes import GatewayProcess, ask
from tests.support.router_processes import hashed_models, write_config
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


async def test_sigterm_answers_what_is_in_flight_and_exits_0(
    broker: LocalBroker, prefix: str, start: Callable[..., None], tmp_path: Path
) -> None:
    async with hashed_models() as (models, control), aiohttp.ClientSession() as http:
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, models, ["[gateway]", "http_port = 0"])
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
