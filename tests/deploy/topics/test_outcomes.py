"""`send` and `label` wait for what became of their records, and `results` shows what is committed."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from schemas import RoutedEvent
from schemas.settings_text import load_settings
from schemas.topics import DEAD_LETTERS, FEEDBACK, OBSERVATIONS
from tests.support.broker import create, key_of, produce
from tests.support.cascade_stream import START, example, typo_world
from tests.support.checkout import command
from tests.support.commands import invoke, said
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import create_topics

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


async def test_label_waits_until_joined(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    """A label whose result is not there stays without an outcome: it is named, and the exit code is 1."""
    names = [topic.name(topic_prefix) for topic in (FEEDBACK, OBSERVATIONS, DEAD_LETTERS)]
    create(broker.bootstrap, dict.fromkeys(names, 1))
    config = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, "http://127.0.0.1:1/v1")
    labels = [{"query_id": name, "entities": {"camera": "x", "colour": "red"}} for name in ("joined", "early")]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, labels)), encoding="utf-8")
    joining = asyncio.create_task(asyncio.to_thread(_join_the_first, broker.bootstrap, topic_prefix))
    done = await invoke("label", tmp_path / "gold.jsonl", "--config", config, "--wait", "--json", "--timeout", "5")
    await joining
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["outcomes"], found["waiting"]) == ({"joined": 1}, ["early"])
    assert "colour: is a field of no configured workload, ignored on 2 lines" in done.stderr
    assert "1 without an outcome in time, early among them" in done.stderr


def _join_the_first(bootstrap: str, prefix: str) -> None:
    """Act as the join: an example for the first label that comes."""
    # Without a group to join first: the command waits for five seconds only, since one label never gets an outcome.
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{prefix}-joining", "enable.auto.commit": False})
    consumer.assign([TopicPartition(FEEDBACK.name(prefix), 0, OFFSET_BEGINNING)])
    try:
        while (message := consumer.poll(1.0)) is None or message.error() is not None:
            pass
        assert key_of(message) == "joined"
        joined = example(typo_world(1, 1).draw(0), "joined", "photo", START)[1]
        joined = joined.model_copy(update={"label_requested": True})
        produce(bootstrap, OBSERVATIONS.name(prefix), [("photo", joined.to_json())])
    finally:
        consumer.close()
