"""Router processes on a real broker, asking over real HTTP: fenced and drained; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.broker import documents, produce, unique_prefix
from tests.support.router_processes import HashedModels, RouterProcess, hashed_models, publish_calibration, write_config
from tests.support.routers import create_topics, query, result_ids
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Start = Callable[..., None]


@pytest.fixture
def prefix(broker: LocalBroker) -> str:
    """Topics with a version in force."""
    name = unique_prefix()
    create_topics(broker.bootstrap, name)
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


async def until_answered(router: RouterProcess, bootstrap: str, prefix: str, queries: int) -> list[str]:
    """Wait for so many results of a router that goes on running; return their queries."""

    def answered() -> list[str]:
        router.assert_runs()
        return result_ids(bootstrap, prefix)

    return await eventually(answered, lambda found: len(found) >= queries)


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
    assert result_ids(broker.bootstrap, prefix) == sorted(f"q{n}" for n in range(50))
    assert router.events()[-1]["left_to_others"] == 0


async def test_sigterm_during_a_hung_call_loses_nothing(
    broker: LocalBroker, prefix: str, asking: tuple[RouterProcess, HashedModels]
) -> None:
    """SIGTERM ends the router in time even while a model hangs, and the query is not lost."""
    router, models = asking
    produce(broker.bootstrap, f"{prefix}.queries", [query("slow", "slow"), query("quick", "quick")])
    await until_answered(router, broker.bootstrap, prefix, 1)
    router.terminate()
    assert await router.exit_code() == 0
    models.release.set()
    router.start()
    assert await until_answered(router, broker.bootstrap, prefix, 2) == ["quick", "slow"]


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
        found = await until_answered(newer, broker.bootstrap, prefix, 20)
    assert found == sorted(f"q{n}" for n in range(20))
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
