"""Router processes on a real broker, asking over real HTTP: killed, fenced, drained; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import documents, produce, read_all, unique_prefix
from tests.support.progress import following
from tests.support.router_processes import HashedModels, RouterProcess, hashed_models, publish_calibration, write_config
from tests.support.routers import create_topics, query
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

QUERIES = 6_000
KILLS = 20
SEED = 20260131
PARTITIONS = 6

Start = Callable[..., None]


@pytest.fixture
def prefix(broker: LocalBroker) -> str:
    return new_prefix(broker)


def new_prefix(broker: LocalBroker) -> str:
    """Make topics with a version in force; return their prefix."""
    name = unique_prefix()
    create_topics(broker.bootstrap, name, PARTITIONS)
    publish_calibration(broker.bootstrap, name)
    return name


@pytest.fixture
async def asking(
    broker: LocalBroker, prefix: str, start: Start, tmp_path: Path
) -> AsyncIterator[tuple[RouterProcess, HashedModels]]:
    """A router that has started, and the models that it asks."""
    async with hashed_models() as (url, models):
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, url)
        router = RouterProcess(config, "router-0", tmp_path / "router.log")
        start(router)
        yield router, models


def results(bootstrap: str, prefix: str) -> dict[str, dict[str, Any]]:
    """Every committed result by query_id, without when and where it was made; fails when one is there twice."""
    found = documents(bootstrap, f"{prefix}.results")
    for each in found:
        del each["routed_at"], each["routed_by"]
        for side in ("small", "large"):
            (each[side] or {}).pop("latency_s", None)
    assert [name for name, count in Counter(each["query_id"] for each in found).items() if count > 1] == []
    return {each["query_id"]: each for each in found}


async def test_twenty_kills_change_no_result(broker: LocalBroker, prefix: str, start: Start, tmp_path: Path) -> None:
    draw, quiet = random.Random(SEED), new_prefix(broker)
    queries = [query(f"q{n}", f"photo {n}") for n in range(QUERIES)]
    for each in (quiet, prefix):
        await asyncio.to_thread(produce, broker.bootstrap, f"{each}.queries", queries)
    async with hashed_models() as (models, _):
        reference_config = write_config(tmp_path / "quiet.toml", broker.bootstrap, quiet, models)
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, models, max_in_flight=64)
        reference = RouterProcess(reference_config, "quiet", tmp_path / "quiet.log", forked=True)
        routers = [RouterProcess(config, f"router-{n}", tmp_path / f"router-{n}.log", forked=True) for n in range(2)]
        start(reference)
        with following(broker.bootstrap, f"{quiet}.results") as progress:
            await progress.until([reference], results=QUERIES)
        reference.kill()

        start(*routers)
        moments = sorted(draw.uniform(0.01, 0.95) * QUERIES for _ in range(KILLS))
        with following(broker.bootstrap, f"{prefix}.results") as progress:
            for moment in moments:
                await progress.until(routers, results=int(moment))
                await asyncio.sleep(draw.uniform(0.0, 0.3))
                victim = draw.choice(routers)
                victim.kill()
                victim.start()
            await progress.until(routers, results=QUERIES)
    assert results(broker.bootstrap, prefix) == results(broker.bootstrap, quiet), f"seed {SEED}"
    assert read_all(broker.bootstrap, f"{prefix}.dead-letters") == []


async def test_sigterm_drains_what_is_in_flight_and_exits_0(
    broker: LocalBroker, prefix: str, asking: tuple[RouterProcess, HashedModels]
) -> None:
    router, models = asking
    await router.until_logged("assigned")
    queries = [query(f"q{n}", "slow") for n in range(50)]
    await asyncio.to_thread(produce, broker.bootstrap, f"{prefix}.queries", queries)
    # A server that was never seen to answer is asked one query at a time; the others wait for their turn.
    await models.until_called("small", 1)
    await eventually(
        lambda: documents(broker.bootstrap, f"{prefix}.routers")[-1:],
        lambda said: said and (said[0] or {}).get("in_flight", 0) >= 50,
    )
    router.terminate()
    await router.until_logged("draining; a second signal ends at once")
    models.release.set()
    assert await router.exit_code() == 0
    assert len(results(broker.bootstrap, prefix)) == 50
    assert router.events()[-1]["left_to_others"] == 0


async def test_sigterm_during_a_hung_call_loses_nothing(
    broker: LocalBroker, prefix: str, asking: tuple[RouterProcess, HashedModels]
) -> None:
    """SIGTERM ends the router in time even while a model hangs, and the query is not lost."""
    router, models = asking
    produce(broker.bootstrap, f"{prefix}.queries", [query("slow", "slow"), query("quick", "quick")])
    with following(broker.bootstrap, f"{prefix}.results") as progress:
        await progress.until([router], results=1)
        router.terminate()
        assert await router.exit_code() == 0
        models.release.set()
        router.start()
        await progress.until([router], results=2)
    assert set(results(broker.bootstrap, prefix)) == {"slow", "quick"}


async def test_a_second_sigterm_ends_at_once(
    broker: LocalBroker, prefix: str, asking: tuple[RouterProcess, HashedModels]
) -> None:
    router, models = asking
    produce(broker.bootstrap, f"{prefix}.queries", [query("slow", "slow")])
    await router.until_logged("assigned")
    await models.until_called("small", 1)
    router.terminate()
    await router.until_logged("draining; a second signal ends at once")
    router.terminate()
    assert await router.exit_code() == 143


async def test_duplicate_instance_id_ends_the_older_router(
    broker: LocalBroker, prefix: str, start: Start, tmp_path: Path
) -> None:
    async with hashed_models() as (url, _):
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, url)
        older, newer = (RouterProcess(config, "same", tmp_path / f"{age}.log") for age in ("older", "newer"))
        start(older)
        await older.until_logged("assigned")
        start(newer)
        assert await older.exit_code() == 1
        produce(broker.bootstrap, f"{prefix}.queries", [query(f"q{n}") for n in range(20)])
        with following(broker.bootstrap, f"{prefix}.results") as progress:
            await progress.until([newer], results=20)
    assert len(results(broker.bootstrap, prefix)) == 20
    (said,) = (line for line in older.lines() if not line.startswith("{"))
    assert "another process" in said
    assert "instance id" in said


async def test_startup_errors_have_lines_and_exit_codes(broker: LocalBroker, start: Start, tmp_path: Path) -> None:
    """A wrong configuration and missing topics each end with clear lines and their own exit code."""
    right = write_config(tmp_path / "ucci.toml", broker.bootstrap, "nowhere", "http://127.0.0.1:9/v1")
    wrong = write_config(tmp_path / "wrong.toml", broker.bootstrap, "nowhere", "ftp://x", max_in_fligt=3)
    expected = (
        (right, 1, "nowhere.queries: does not exist; run `ucci-stream topics create`"),
        (wrong, 2, "max_in_flight"),
    )
    processes = [RouterProcess(config, "router-0", tmp_path / f"{code}.log") for config, code, _ in expected]
    start(*processes)
    for process, (_, code, said) in zip(processes, expected, strict=True):
        assert await process.exit_code() == code
        assert any(said in line for line in process.lines())
        assert not any("Traceback" in line for line in process.lines())
