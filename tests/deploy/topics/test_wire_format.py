"""Queries, labels and results in Confluent's wire format pass through router, join and the command's readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Message

from schemas import FeedbackEvent, LabelledExample, QueryEvent, RoutedEvent
from schemas.json_bytes import framed, unframed
from schemas.settings_text import load_settings
from schemas.topics import DEAD_LETTERS, FEEDBACK, OBSERVATIONS, QUERIES, RESULTS, TOPICS
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


def first(bootstrap: str, topic: str, is_wanted: Callable[[Message], bool]) -> bytes:
    """Return the first record that is wanted, waiting for it."""
    return next(value_of(message) for message in coming(bootstrap, topic) if is_wanted(message))


async def test_framed_records_pass_through_the_whole_service(
    broker: LocalBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """A framed query is answered, its framed result joined with a framed label, and nothing becomes a dead letter.

    Commands read framed results, too.
    """
    bootstrap, topic = broker.bootstrap, {one: one.name(topic_prefix) for one in TOPICS}
    async with hashed_models() as (url, _models):
        own = ["[recalibrator]", f'state_dir = "{tmp_path}/state"', "http_port = 0"]
        config = write_config(tmp_path / "ucci.toml", bootstrap, topic_prefix, url, own)
        config.write_text(config.read_text().replace("[topics]", f"[topics]\nresults_schema_id = {SCHEMA_ID}"))
        create_topics(load_settings(config, {}))
        router = RouterProcess(config, "router-0", tmp_path / "router.log", forked=True)
        with router, RecalibratorProcess(config, "join-0", tmp_path / "join.log", stages=("join",), forked=True):
            query = QueryEvent(query_id="framed", text="canon")
            await asyncio.to_thread(produce, bootstrap, topic[QUERIES], [("framed", framed(9, query.to_json()))])
            result = await asyncio.to_thread(first, bootstrap, topic[RESULTS], lambda m: key_of(m) == "framed")
            assert result.startswith(FRAME + b"{")
            label = FeedbackEvent(query_id="framed", entities=dict(RoutedEvent.from_json(unframed(result)).entities))
            await asyncio.to_thread(produce, bootstrap, topic[FEEDBACK], [("framed", framed(10, label.to_json()))])
            labelled = partial(first, is_wanted=lambda m: b'"kind":"labelled"' in value_of(m))
            joined = await asyncio.to_thread(labelled, bootstrap, topic[OBSERVATIONS])
            assert LabelledExample.from_json(joined).query_id == "framed"
            asked = said(await invoke("ask", "canon 5d", "--config", config, "--json", "--timeout", "60"))
    shown = await invoke("results", "--config", config, "--json", "--last", "10")
    assert {RoutedEvent.from_json(line).query_id for line in shown.stdout.splitlines()} == {"framed", asked["query_id"]}
    explained = await invoke("explain", asked["query_id"], "--config", config, "--json")
    assert explained.exit_code == 0, explained.exception
    assert asked["query_id"] in explained.stdout
    assert not await asyncio.to_thread(read_all, bootstrap, topic[DEAD_LETTERS])
