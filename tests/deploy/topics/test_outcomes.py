"""`send` and `label` wait for what became of their records, and `results` shows what is committed."""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas import RoutedEvent
from schemas.settings_text import load_settings
from schemas.topics import RESULTS
from tests.support.broker import DEADLINE_S, add_partitions, produce
from tests.support.checkout import command
from tests.support.commands import invoke, said
from tests.support.recalibrator_events import routed
from tests.support.recalibrator_processes import (
    RecalibratorProcess,
    create_all_topics,
    recalibrator_settings,
    write_recalibrator_config,
)
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import create_topics
from ucci_stream.topics.outcomes import follow

pytestmark = pytest.mark.broker


@pytest.fixture
async def config(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Path]:
    """The configuration of a running router, its topics made."""
    async with hashed_models() as (url, _models):
        path = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, url)
        create_topics(load_settings(path, {}))
        with RouterProcess(path, "router-0", tmp_path / "router.log", forked=True):
            yield path


async def test_send_waits_for_results_and_dead_letters(config: Path, tmp_path: Path) -> None:
    """A cold start answers by the large model; a query of an unknown workload is set aside with its reason."""
    names = [f"q-{number}" for number in range(20)]
    lines = [{"query_id": name, "text": "canon"} for name in names]
    lines.append({"query_id": "lost", "text": "x", "workload": "elsewhere"})
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = await invoke("send", tmp_path / "queries.jsonl", "--config", config, "--wait", "--json", "--timeout", "60")
    found = said(done)
    assert (found["acknowledged"], found["waiting"]) == (21, [])
    assert found["outcomes"] == {"large: cold_start": 20, "set aside: unknown_workload": 1}
    shown = await invoke("results", "--config", config, "--json", "--last", "100")
    assert {RoutedEvent.from_json(line).query_id for line in shown.stdout.splitlines()} == set(names)
    people = await invoke("results", "--config", config, "--last", "100")
    assert sum("large cold_start" in line for line in people.stdout.splitlines()) == 20


async def test_results_that_are_followed_died_of_sigterm(config: Path) -> None:
    argv = command("results", "--config", config, "--follow", "--json")
    following = await asyncio.create_subprocess_exec(*argv, stdout=PIPE)
    await invoke("ask", "canon 5d", "--config", config, "--timeout", "60")
    assert following.stdout is not None
    assert RoutedEvent.from_json((await following.stdout.readline()).strip()).text == "canon 5d"
    following.terminate()
    assert await following.wait() == 0


def test_a_follower_reads_partitions_that_are_added(broker: LocalBroker, topic_prefix: str) -> None:
    """`results --follow` and a long `send --wait` miss nothing that routers write there."""
    create_all_topics(broker.bootstrap, topic_prefix)
    with follow(recalibrator_settings(broker.bootstrap, topic_prefix), [RESULTS]) as follower:
        name = RESULTS.name(topic_prefix)
        add_partitions(broker.bootstrap, {name: 12})
        produce(broker.bootstrap, name, [(f"q-{number}", routed(number).to_json()) for number in range(40)])
        keys: set[bytes | None] = set()
        deadline_s = time.monotonic() + DEADLINE_S
        while len(keys) < 40:
            assert time.monotonic() < deadline_s, f"{len(keys)} of 40 results came"
            keys |= {record.key for record in follower.records(0.1)}


async def test_label_waits_until_joined(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    """A label whose result is not there stays without an outcome: it is named, and the exit code is 1."""
    create_all_topics(broker.bootstrap, topic_prefix)
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, tmp_path / "state")
    labels = [{"query_id": name, "entities": {"camera": "x", "colour": "red"}} for name in ("q-0", "early")]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, labels)), encoding="utf-8")
    result = routed(0, routed_at=datetime.now(UTC))
    produce(broker.bootstrap, f"{topic_prefix}.results", [(result.query_id, result.to_json())])
    with RecalibratorProcess(config, "join-0", tmp_path / "log", stages=("join",), forked=True) as join:
        await join.until_logged("assigned")
        done = await invoke("label", tmp_path / "gold.jsonl", "--config", config, "--wait", "--json", "--timeout", "9")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["outcomes"], found["waiting"]) == ({"joined": 1}, ["early"])
    assert "colour: is a field of no configured workload, ignored on 2 lines" in done.stderr
    assert "1 without an outcome in time, early among them" in done.stderr
