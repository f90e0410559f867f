"""A roll-back over real processes: whatever later labels say, it holds at the router until a person releases it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import produce, read_all, unique_prefix
from tests.support.live_recalibrator import free_port
from tests.support.recalibrator_events import feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tests.support.routers import value_of
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

#: Labels before the roll-back, and after its release.
BEFORE, AFTER = 600, 600

DEADLINE_S = 120.0


@dataclass
class Cluster:
    """A recalibrator and a router, each a process, and what they say."""

    broker: str
    prefix: str
    url: str
    sent: int = 0

    def send(self, labels: int, *, drifted: bool) -> None:
        numbers = range(self.sent, self.sent + labels)
        produce(
            self.broker, f"{self.prefix}.results", [(f"q-{n}", routed(n, drifted=drifted).to_json()) for n in numbers]
        )
        produce(self.broker, f"{self.prefix}.feedback", [(f"q-{n}", feedback(n).to_json()) for n in numbers])
        self.sent += labels

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/v1/status/photo") as answer:
            return dict(json.load(answer))

    def router_version(self) -> int | None:
        found: int | None = next((one["version"] for one in self.status()["routers"]), None)
        return found

    def versions(self) -> int:
        return len(read_all(self.broker, f"{self.prefix}.calibration-history"))

    def from_page(self, action: str, **fields: str) -> None:
        """Send the page's form, as a browser without scripts does."""
        form = {"workload": "photo", "action": action, "reason": "worse since noon", **fields}
        urllib.request.urlopen(f"{self.url}/confirm", urllib.parse.urlencode(form).encode()).close()

    def from_command_line(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ucci_stream", *arguments, "--url", self.url, "--workload", "photo"]
        subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)


async def until(holds: Callable[[], Any], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            if await asyncio.to_thread(holds):
                return
        except (OSError, ValueError):
            # The API has not started yet.
            pass
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S:g} s: {what}"
        await asyncio.sleep(0.1)


@pytest.fixture
async def cluster(broker: LocalBroker, tmp_path: Path) -> AsyncIterator[Cluster]:
    prefix, port = unique_prefix(), free_port()
    create_all_topics(broker.bootstrap, prefix)
    config = write_recalibrator_config(
        tmp_path / "recalibrator.toml", broker.bootstrap, prefix, tmp_path / "state", http_port=port
    )
    stages = ("join", "fit", "api")
    recalibrator = RecalibratorProcess(
        config, "recalibrator", tmp_path / "recalibrator.log", stages=stages, forked=True
    )
    async with hashed_models() as (models, _):
        with ExitStack() as running:
            running.callback(recalibrator.close)
            recalibrator.start()
            router_config = write_config(tmp_path / "router.toml", broker.bootstrap, prefix, models)
            router = RouterProcess(router_config, "router-0", tmp_path / "router.log", forked=True)
            running.callback(router.close)
            router.start()
            found = Cluster(broker.bootstrap, prefix, f"http://127.0.0.1:{port}")
            await until(found.status, "the API answers")
            yield found


@pytest.mark.parametrize("meanwhile", [600, pytest.param(5_000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("way", ["page", "command line"])
async def test_a_roll_back_holds_until_it_is_released(cluster: Cluster, way: str, meanwhile: int) -> None:
    """Hundreds of labels that would move the threshold change nothing; once released, the next fit decides."""
    await asyncio.to_thread(cluster.send, BEFORE, drifted=False)
    await until(lambda: cluster.versions() > 0, "a first version is fitted")
    first = cluster.versions()
    await asyncio.to_thread(cluster.send, BEFORE, drifted=True)
    await until(lambda: cluster.versions() > first, "another is fitted")
    await until(lambda: cluster.status()["labels"]["received"] == cluster.sent, "labels count")

    if way == "page":
        await asyncio.to_thread(cluster.from_page, "activate", version="1")
    else:
        await asyncio.to_thread(cluster.from_command_line, "rollback", "1")
    await until(lambda: cluster.status()["state"] == "pinned", "it is rolled back")
    held = cluster.status()["calibration_version"]
    await until(lambda: cluster.router_version() == held, "the router decides by it")
    published = cluster.versions()
    assert held == published

    await asyncio.to_thread(cluster.send, meanwhile, drifted=True)
    await until(lambda: cluster.status()["labels"]["received"] == cluster.sent, "later labels count")
    now = cluster.status()
    assert (now["state"], now["calibration_version"], cluster.router_version()) == ("pinned", held, held)
    assert cluster.versions() == published

    if way == "page":
        await asyncio.to_thread(cluster.from_page, "unpin")
    else:
        await asyncio.to_thread(cluster.from_command_line, "unpin")
    await asyncio.to_thread(cluster.send, AFTER, drifted=True)
    await until(lambda: (cluster.router_version() or 0) > held, "the next fit decides")
    current = json.loads(value_of(read_all(cluster.broker, f"{cluster.prefix}.calibration")[-1]))
    assert current["evidence"]["trigger"] != "activate"
