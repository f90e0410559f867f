"""A roll-back over real processes: whatever later labels say, it holds at the router until a person releases it."""

from __future__ import annotations

import asyncio
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import documents, produce, read_all
from tests.support.checkout import run_command
from tests.support.probes import document
from tests.support.recalibrator_events import feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, write_recalibrator_config
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]

#: At each step.
LABELS = 600
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
        results = [(f"q-{n}", routed(n, drifted=drifted).to_json()) for n in numbers]
        produce(self.broker, f"{self.prefix}.results", results)
        produce(self.broker, f"{self.prefix}.feedback", [(f"q-{n}", feedback(n).to_json()) for n in numbers])
        self.sent += labels

    def status(self) -> dict[str, Any]:
        return document(f"{self.url}/v1/status/photo")

    def router_version(self) -> int:
        return next((one["version"] or 0 for one in self.status()["routers"]), 0)

    def versions(self) -> int:
        return len(read_all(self.broker, f"{self.prefix}.calibration-history"))

    def roll_back(self, version: int) -> None:
        """Send the page's form, as a browser without scripts does."""
        form = {"workload": "photo", "action": "activate", "reason": "worse since noon", "version": version}
        urllib.request.urlopen(f"{self.url}/confirm", urllib.parse.urlencode(form).encode()).close()

    def release(self) -> None:
        done = run_command("unpin", "--url", self.url, "--workload", "photo")
        assert done.returncode == 0, done.stderr


@pytest.fixture
async def cluster(
    broker: LocalBroker, prefix: str, start: Callable[..., None], tmp_path: Path
) -> AsyncIterator[Cluster]:
    port = pick_port()
    config = write_recalibrator_config(
        tmp_path / "recalibrator.toml", broker.bootstrap, prefix, tmp_path / "state", http_port=port
    )
    log, stages = tmp_path / "recalibrator.log", ("join", "fit", "api")
    start(RecalibratorProcess(config, "recalibrator", log, stages=stages, forked=True))
    async with hashed_models() as (models, _):
        router_config = write_config(tmp_path / "router.toml", broker.bootstrap, prefix, models)
        start(RouterProcess(router_config, "router-0", tmp_path / "router.log", forked=True))
        found = Cluster(broker.bootstrap, prefix, f"http://127.0.0.1:{port}")
        await until(found.status)
        yield found


async def until(holds: Callable[[], object]) -> None:
    await eventually(holds, within_s=DEADLINE_S)


async def test_a_roll_back_holds_until_it_is_released(cluster: Cluster) -> None:
    """Hundreds of labels that would move the threshold change nothing; once released, the next fit decides.

    The page rolls back, and the command line releases.
    """
    await asyncio.to_thread(cluster.send, LABELS, drifted=False)
    await until(lambda: cluster.versions() > 0)
    first = cluster.versions()
    await asyncio.to_thread(cluster.send, LABELS, drifted=True)
    await until(lambda: cluster.versions() > first)
    await until(lambda: cluster.status()["labels"]["received"] == cluster.sent)

    await asyncio.to_thread(cluster.roll_back, 1)
    await until(lambda: cluster.status()["state"] == "pinned")
    held = cluster.status()["calibration_version"]
    await until(lambda: cluster.router_version() == held)
    published = cluster.versions()
    assert held == published

    await asyncio.to_thread(cluster.send, LABELS, drifted=True)
    await until(lambda: cluster.status()["labels"]["received"] == cluster.sent)
    now = cluster.status()
    assert (now["state"], now["calibration_version"], cluster.router_version()) == ("pinned", held, held)
    assert cluster.versions() == published

    await asyncio.to_thread(cluster.release)
    await asyncio.to_thread(cluster.send, LABELS, drifted=True)
    await until(lambda: cluster.router_version() > held)
    current = documents(cluster.broker, f"{cluster.prefix}.calibration")[-1]
    assert current["evidence"]["trigger"] != "activate"
