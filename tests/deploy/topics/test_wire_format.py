"""Queries, labels and results in Confluent's wire format pass through router, join and the command's readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from confluent_kafka import Message

from schemas import FeedbackEvent, LabelledExample, QueryEvent, RoutedEvent
from schemas.json_bytes import framed, unframed
from schemas.settings_text import load_settings
from schemas.topics import DEAD_LETTERS, FEEDBACK, OBSERVATIONS, QUERIES, RESULTS
from tests.support.broker import coming, key_of, produce, read_all
from tests.support.commands import invoke, said
from tests.support.recalibrator_processes import RecalibratorProcess
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tests.support.routers import value_of
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import create_topics

pytestmark = pytest.mark.broker

SCHEMA_ID = 258
FRAME = b"\0\0\0\1\2"


@pytest.fixture
async def config(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Path]:
    """The configuration of a running router and a running join."""
    async with hashed_models() as (url, _models):
        own = ["[recalibrator]", f'state_dir = "{tmp_path}/state"', "http_port = 0"]
        path = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, url, own)
        path.write_text(path.read_text().replace("[topics]", f"[topics]\nresults_schema_id = {SCHEMA_ID}"))
        create_topics(load_settings(path, {}))
        router = RouterProcess(path, "router-0", tmp_path / "router.log", forked=True)
        with router, RecalibratorProcess(path, "join-0", tmp_path / "join.log", stages=("join",), forked=True):
            yield path


def first(bootstrap: str, topic: str, is_wanted: Callable[[Message], bool]) -> bytes:
    """Return the first record that is wanted, waiting for it."""
    return next(value_of(message) for message in coming(bootstrap, topic) if is_wanted(message))


async def test_framed_records_pass_through_the_whole_service(
    config: Path, broker: LocalBroker, topic_prefix: str
) -> None:
    """A framed query is answered, its framed result joined with a framed label, and nothing becomes a dead letter."""
    bootstrap = broker.bootstrap
    query, plain = QueryEvent(query_id="framed", text="canon"), QueryEvent(query_id="plain", text="nikon")
    sent = [("framed", framed(9, query.to_json())), ("plain", plain.to_json())]
    await asyncio.to_thread(produce, bootstrap, QUERIES.name(topic_prefix), sent)
    results, observations = RESULTS.name(topic_prefix), OBSERVATIONS.name(topic_prefix)
    result = await asyncio.to_thread(first, bootstrap, results, lambda message: key_of(message) == "framed")
    assert result.startswith(FRAME + b"{")
    served = RoutedEvent.from_json(unframed(result))
    label = FeedbackEvent(query_id="framed", entities=dict(served.entities))
    await asyncio.to_thread(produce, bootstrap, FEEDBACK.name(topic_prefix), [("framed", framed(10, label.to_json()))])
    joined = await asyncio.to_thread(first, bootstrap, observations, lambda m: b'"kind":"labelled"' in value_of(m))
    assert LabelledExample.from_json(joined).query_id == "framed"
    assert not await asyncio.to_thread(read_all, bootstrap, DEAD_LETTERS.name(topic_prefix))


async def test_commands_read_framed_results(config: Path) -> None:
    answered = said(await invoke("ask", "canon 5d", "--config", config, "--json", "--timeout", "60"))
    shown = await invoke("results", "--config", config, "--json", "--last", "10")
    assert [RoutedEvent.from_json(line).query_id for line in shown.stdout.splitlines()] == [answered["query_id"]]
    explained = await invoke("explain", answered["query_id"], "--config", config, "--json")
    assert explained.exit_code == 0, explained.exception
    assert answered["query_id"] in explained.stdout
