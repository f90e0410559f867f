"""Router processes on a real broker, asking over real HTTP: killed, fenced, drained; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import follow, produce, read_all, unique_prefix
from tests.support.router_processes import RouterProcess, hashed_models, publish_calibration, write_config
from tests.support.routers import create_topics, query, value_of
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

QUERIES = 6_000
KILLS = 20
SEED = 20260131
PARTITIONS = 6


class Progress:
    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._consumer = follow(bootstrap, f"{prefix}.results")
        self.seen: Counter[str] = Counter()

    async def until(self, results: int, routers: list[RouterProcess], timeout_s: float = 100.0) -> None:
        async with asyncio.timeout(timeout_s):
            while self.seen.total() < results:
                for router in routers:
                    assert router.process is not None
                    assert router.process.poll() is None, f"{router.instance_id} ended: {router.lines()[-5:]}"
                for message in await asyncio.to_thread(self._consumer.consume, 1_000, 0.05):
                    if message.error() is None:
                        self.seen[(message.key() or b"").decode()] += 1

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def prefix(broker: LocalBroker) -> str:
    name = unique_prefix()
    create_topics(broker.bootstrap, name, PARTITIONS)
    publish_calibration(broker.bootstrap, name)
    return name


@pytest.fixture
def start(
    broker: LocalBroker, prefix: str, started: list[RouterProcess], tmp_path: Path
) -> Callable[[str], RouterProcess]:
    def begun(url: str) -> RouterProcess:
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, url)
        started.append(RouterProcess(config, "router-0", tmp_path / "router.log"))
        started[-1].start()
        return started[-1]

    return begun


def comparable(value: bytes) -> dict[str, Any]:
    """A result without what depends on when and where it was made."""
    found: dict[str, Any] = json.loads(value)
    del found["routed_at"], found["routed_by"]
    for side in ("small", "large"):
        if found[side] is not None:
            del found[side]["latency_s"]
    return found


def results(bootstrap: str, prefix: str) -> dict[str, dict[str, Any]]:
    """Every committed result by query_id; fails when one is there twice."""
    found = [comparable(value_of(message)) for message in read_all(bootstrap, f"{prefix}.results")]
    counts = Counter(each["query_id"] for each in found)
    assert not [name for name, count in counts.items() if count > 1], "results are doubled"
    return {each["query_id"]: each for each in found}


async def test_twenty_kills_change_no_result(
    broker: LocalBroker, prefix: str, started: list[RouterProcess], tmp_path: Path
) -> None:
    draw = random.Random(SEED)
    quiet = unique_prefix()
    create_topics(broker.bootstrap, quiet, PARTITIONS)
    publish_calibration(broker.bootstrap, quiet)
    queries = [query(f"q{n}", f"photo {n}") for n in range(QUERIES)]
    async with hashed_models() as (models, _):
        reference_config = write_config(tmp_path / "quiet.toml", broker.bootstrap, quiet, models)
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, models, max_in_flight=64)
        reference = RouterProcess(reference_config, "quiet", tmp_path / "quiet.log", forked=True)
        routers = [RouterProcess(config, f"router-{n}", tmp_path / f"router-{n}.log", forked=True) for n in range(2)]
        started.extend([reference, *routers])
        await asyncio.to_thread(produce, broker.bootstrap, f"{quiet}.queries", queries)
        await asyncio.to_thread(produce, broker.bootstrap, f"{prefix}.queries", queries)
        progress = Progress(broker.bootstrap, quiet)
        reference.start()
        await progress.until(QUERIES, [reference])
        reference.kill()
        progress.close()

        progress = Progress(broker.bootstrap, prefix)
        for router in routers:
            router.start()
        moments = sorted(draw.uniform(0.01, 0.95) * QUERIES for _ in range(KILLS))
        for moment in moments:
            await progress.until(int(moment), routers)
            await asyncio.sleep(draw.uniform(0.0, 0.3))
            victim = draw.choice(routers)
            victim.kill()
            victim.start()
        await progress.until(QUERIES, routers)
        progress.close()
    assert results(broker.bootstrap, prefix) == results(broker.bootstrap, quiet), f"seed {SEED}"
    assert read_all(broker.bootstrap, f"{prefix}.dead-letters") == []


def in_flight(bootstrap: str, prefix: str) -> int:
    statuses = [json.loads(message.value() or b"{}") for message in read_all(bootstrap, f"{prefix}.routers")]
    return int(statuses[-1].get("in_flight", 0)) if statuses else 0


async def test_sigterm_drains_what_is_in_flight_and_exits_0(
    broker: LocalBroker, prefix: str, start: Callable[[str], RouterProcess]
) -> None:
    async with hashed_models() as (url, models):
        router = start(url)
        await router.until_logged("assigned")
        await asyncio.to_thread(
            produce, broker.bootstrap, f"{prefix}.queries", [query(f"q{n}", "slow") for n in range(50)]
        )
        # A server that was never seen to answer is asked one query at a time; the others wait for their turn.
        await models.until_called("small", 1)
        async with asyncio.timeout(30.0):
            while await asyncio.to_thread(in_flight, broker.bootstrap, prefix) < 50:
                pass
        router.terminate()
        await router.until_logged("draining; a second signal ends at once")
        models.release.set()
        assert await router.exit_code() == 0
    assert len(results(broker.bootstrap, prefix)) == 50
    assert router.events()[-1]["left_to_others"] == 0


async def test_sigterm_during_a_hung_call_loses_nothing(
    broker: LocalBroker, prefix: str, start: Callable[[str], RouterProcess]
) -> None:
    """SIGTERM ends the router in time even while a model hangs, and the query is not lost."""
    async with hashed_models() as (url, models):
        router = start(url)
        produce(broker.bootstrap, f"{prefix}.queries", [query("slow", "slow"), query("quick", "quick")])
        progress = Progress(broker.bootstrap, prefix)
        await progress.until(1, [router])
        router.terminate()
        assert await router.exit_code() == 0
        models.release.set()
        router.start()
        await progress.until(2, [router])
        progress.close()
    assert set(results(broker.bootstrap, prefix)) == {"slow", "quick"}


async def test_a_second_sigterm_ends_at_once(
    broker: LocalBroker, prefix: str, start: Callable[[str], RouterProcess]
) -> None:
    async with hashed_models() as (url, models):
        router = start(url)
        produce(broker.bootstrap, f"{prefix}.queries", [query("slow", "slow")])
        await router.until_logged("assigned")
        await models.until_called("small", 1)
        router.terminate()
        await router.until_logged("draining; a second signal ends at once")
        router.terminate()
        assert await router.exit_code() == 143


async def test_duplicate_instance_id_ends_the_older_router(
    broker: LocalBroker, prefix: str, started: list[RouterProcess], tmp_path: Path
) -> None:
    async with hashed_models() as (url, _):
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, url)
        older = RouterProcess(config, "same", tmp_path / "older.log")
        newer = RouterProcess(config, "same", tmp_path / "newer.log")
        started.extend([older, newer])
        older.start()
        await older.until_logged("assigned")
        newer.start()
        assert await older.exit_code() == 1
        produce(broker.bootstrap, f"{prefix}.queries", [query(f"q{n}") for n in range(20)])
        progress = Progress(broker.bootstrap, prefix)
        await progress.until(20, [newer])
        progress.close()
    said = [line for line in older.lines() if not line.startswith("{")]
    assert len(said) == 1
    assert "another process" in said[0]
    assert "instance id" in said[0]


async def test_startup_errors_have_lines_and_exit_codes(
    broker: LocalBroker, started: list[RouterProcess], tmp_path: Path
) -> None:
    """A wrong configuration and missing topics each end with clear lines and their own exit code."""
    config = write_config(tmp_path / "ucci.toml", broker.bootstrap, "nowhere", "http://127.0.0.1:9/v1")
    missing = RouterProcess(config, "router-0", tmp_path / "missing.log")
    wrong = RouterProcess(
        write_config(tmp_path / "wrong.toml", broker.bootstrap, "nowhere", "ftp://x", max_in_fligt=3),
        "router-0",
        tmp_path / "wrong.log",
    )
    started.extend([missing, wrong])
    missing.start()
    wrong.start()
    assert await missing.exit_code() == 1
    assert await wrong.exit_code() == 2
    assert any("nowhere.queries: does not exist" in line for line in missing.lines())
    assert any("max_in_flight" in line for line in wrong.lines())
    assert not any("Traceback" in line for line in [*missing.lines(), *wrong.lines()])
