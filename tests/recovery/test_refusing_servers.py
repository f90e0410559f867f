"""A router whose model servers refuse everybody as configured: its queries wait, and go on once that is mended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker import documents, produce, unique_prefix
from tests.support.probes import get
from tests.support.router_processes import RouterProcess, hashed_models, publish_calibration, write_config
from tests.support.routers import create_topics, query, result_ids
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

REFUSAL = "Unrecognized request argument supplied: return_tokens_as_token_ids"


async def test_queries_wait_for_servers_that_refuse_everybody(
    broker: LocalBroker, start: Callable[..., None], tmp_path: Path
) -> None:
    """No query is lost or becomes a dead letter, nobody restarts anything, and the router says what the servers say."""
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix)
    publish_calibration(broker.bootstrap, prefix)
    names = sorted(f"q{number}" for number in range(20))
    async with hashed_models() as (url, models):
        models.refusal = REFUSAL
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, url)
        router = RouterProcess(config, "router-0", tmp_path / "router.log")
        start(router)
        port = (await router.until_logged("serving status"))["port"]
        await router.until_logged("assigned")
        await asyncio.to_thread(produce, broker.bootstrap, f"{prefix}.queries", [query(name, name) for name in names])
        status, _ = await eventually(lambda: get(port, "/readyz"), lambda found: REFUSAL in found[1])
        assert status == 503
        health = json.loads(get(port, "/v1/status")[1])["models"]["photo"]
        assert all(REFUSAL in server["reason"] and server["misconfigured"] for server in health.values())
        # Each is asked about by probes alone, and no more often than an outage is.
        refused = sum(models.calls.values())
        await models.until_called("small", models.calls["small"] + 2)
        assert result_ids(broker.bootstrap, prefix) == []
        models.refusal = None
        answered = await eventually(
            lambda: result_ids(broker.bootstrap, prefix), lambda found: len(found) >= len(names)
        )
        await router.until_ready(port)
        router.terminate()
        assert await router.exit_code() == 0
    assert answered == names
    assert result_ids(broker.bootstrap, prefix) == names
    assert documents(broker.bootstrap, f"{prefix}.dead-letters") == []
    # Beyond its first attempts, no query was sent to a server known to refuse it.
    assert refused <= 2 * len(names) + 20
