"""Services whose broker is away when they start: they wait, say so, and go on by themselves once it is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support import probes
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.router_processes import RouterProcess, write_config
from ucci_runtime.process import SAID_EVERY_S
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PREFIX = "away"
NO_MODELS = "http://127.0.0.1:9/v1"
NOWHERE = "127.0.0.1:1"
WAITING = "waiting for the broker"
STAGES = ("join", "fit", "api")


def both_services(directory: Path, bootstrap: str, router_port: int, http_port: int) -> list[RouterProcess]:
    """Return a router and a recalibrator with all its stages, not started yet."""
    router = write_config(directory / "router.toml", bootstrap, PREFIX, NO_MODELS, http_port=router_port)
    recalibrator = write_recalibrator_config(
        directory / "recalibrator.toml", bootstrap, PREFIX, directory / "state", http_port
    )
    return [
        RouterProcess(router, "router-0", directory / "router.log"),
        RecalibratorProcess(recalibrator, "recalibrator", directory / "recalibrator.log", stages=STAGES),
    ]


async def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    code, body = await asyncio.to_thread(probes.get, port, path)
    return code, json.loads(body)


async def test_broker_away_at_start_ended_the_services(
    own_broker: LocalBroker, start: Callable[..., None], tmp_path: Path
) -> None:
    """A recalibrator and a router ended with exit code 1, and began again for as long as a supervisor let them."""
    create_all_topics(own_broker.bootstrap, PREFIX)
    own_broker.stop()
    ports = (pick_port(), pick_port())
    started = both_services(tmp_path, own_broker.bootstrap, *ports)
    start(*started)
    for process, port in zip(started, ports, strict=True):
        await process.until_logged(WAITING)
        # A restart brings no broker back: 200 all the same.
        code, document = await get(port, "/healthz")
        assert (code, document["status"]) == (200, "waiting")
        assert document["reason"].startswith(f"no broker answers at {own_broker.bootstrap}")
        code, document = await get(port, "/readyz")
        assert code == 503
        assert any(f"{WAITING}: no broker answers at {own_broker.bootstrap}" in line for line in document["missing"])
    assert (await get(ports[1], "/v1/status"))[0] == 503
    await asyncio.to_thread(own_broker.start)
    await started[0].until_logged("assigned")
    await started[1].until_logged("assigned", len(STAGES) - 1)
    await started[1].until_ready(ports[1])
    assert (await get(ports[1], "/v1/status"))[0] == 200
    for process in started:
        said = [datetime.fromisoformat(line["timestamp"]) for line in process.events() if line["event"] == WAITING]
        pauses = [after - before for before, after in pairwise(said)]
        assert all(pause > timedelta(seconds=SAID_EVERY_S - 1.0) for pause in pauses), "a line a minute at most"


async def test_sigterm_ends_the_wait_for_a_broker(start: Callable[..., None], tmp_path: Path) -> None:
    started = both_services(tmp_path, NOWHERE, 0, 0)
    start(*started)
    for process in started:
        await process.until_logged(WAITING)
        process.terminate()
        assert await process.exit_code() == 0
