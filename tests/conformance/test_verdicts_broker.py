"""A verdict's whole way over a real broker: gateway or topic, feedback, join, joined example, or a dead letter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Message

from tests.support.broker import coming, produce, unique_prefix
from tests.support.gateways import gateway, gateway_settings
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.routers import value_of
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def prefix(broker: LocalBroker, tmp_path: Path) -> Iterator[str]:
    """Topics of one test, and a recalibrator that joins and fits them."""
    prefix = unique_prefix()
    create_all_topics(broker.bootstrap, prefix)
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, tmp_path / "state")
    with RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log", forked=True):
        yield prefix


def first(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Wait for the first records of a topic that are no traffic."""
    return list(islice((one for one in coming(bootstrap, topic) if b'"kind":"traffic"' not in value_of(one)), count))


async def test_verdicts_of_gateway_and_topic_are_joined(broker: LocalBroker, prefix: str) -> None:
    """The label that follows one supersedes it, and carries it along."""
    bootstrap = broker.bootstrap
    settings = gateway_settings(bootstrap, prefix)
    async with gateway(settings, kafka_connect(settings, "router")) as running:
        for query_id in ("by-gateway", "by-topic"):
            assert (await running.complete(query_id=query_id)).status == 200
        taken = await running.post("/v1/feedback", {"verdict": "wrong"}, X_Query_Id="by-gateway")
    assert taken.status == 202
    feedback, entities = f"{prefix}.feedback", {"camera": "canon"}
    said = {"query_id": "by-topic", "labeler": "ann", "labelled_at": None, "verdict": "right"}
    both = ({**said, "entities": entities}, said)
    produce(bootstrap, feedback, [("by-topic", json.dumps(one).encode()) for one in both])
    observations = f"{prefix}.observations"
    joined = [json.loads(one.value() or b"") for one in await asyncio.to_thread(first, bootstrap, observations, 2)]
    assert {one["query_id"]: (one["verdict"], one["labeler"], one["small"]) for one in joined} == {
        "by-gateway": ("wrong", "gateway", None),
        "by-topic": ("right", "ann", None),
    }
    label = {"query_id": "by-gateway", "entities": entities, "labeler": "ann"}
    produce(bootstrap, feedback, [("by-gateway", json.dumps(label).encode())])
    last = json.loads((await asyncio.to_thread(first, bootstrap, observations, 3))[-1].value() or b"")
    assert (last["labeler"], last["verdict"], last["gold_count"]) == ("ann", "wrong", 1)
    (letter,) = await asyncio.to_thread(first, bootstrap, f"{prefix}.dead-letters", 1)
    headers = dict(letter.headers() or ())
    assert headers["dlq.reason"] == b"invalid_field"
    assert headers["dlq.error"] == b"verdict: 'right' is given beside entities: send one of the two"
