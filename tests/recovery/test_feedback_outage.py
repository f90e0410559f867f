"""The broker hangs, then dies, under feedback over HTTP: 503 until it is back, and nothing acknowledged is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker import documents
from tests.support.outages import ENOUGH, Callers, Question
from tests.support.probes import asked
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PREFIX = "outage"
SINGLE_SENDERS, LINES = 4, 50


def one(name: str) -> str:
    return json.dumps({"query_id": name, "entities": None})


def ids(name: str) -> list[str]:
    return [f"{name}-{line}" for line in range(LINES)]


def batch(name: str) -> str:
    return "\n".join(json.dumps({"query_id": each, "entities": None, "feedback_id": each}) for each in ids(name))


def of_one(_name: str, answer: bytes) -> list[str]:
    return [json.loads(answer)["feedback_id"]]


def of_batch(name: str, answer: bytes) -> list[str]:
    told = [json.loads(line)["status"] for line in answer.splitlines()]
    return [each for each, status in zip(ids(name), told, strict=True) if status == 202]


FEEDBACK = [Question("/v1/feedback", one, of_one)] * SINGLE_SENDERS
FEEDBACK += [Question("/v1/feedback:batch", batch, of_batch, "application/jsonl")]


def test_acknowledged_feedback_survives_outages(
    own_broker: LocalBroker, start: Callable[..., None], tmp_path: Path
) -> None:
    """While the broker hangs or is dead, feedback gets 503 until it is back; nothing acknowledged is lost."""
    create_all_topics(own_broker.bootstrap, PREFIX)
    port = pick_port()
    config = write_recalibrator_config(
        tmp_path / "ucci.toml", own_broker.bootstrap, PREFIX, tmp_path / "state", http_port=port
    )
    process = RecalibratorProcess(config, "api", tmp_path / "api.log", stages=("api",), forked=True)
    start(process)
    while asked(f"http://127.0.0.1:{port}/readyz")[0] != 200:
        process.assert_runs()
    senders = Callers(port, FEEDBACK, "broker_away")
    senders.see_through(own_broker)

    assert senders.unexpected == []
    process.assert_runs()  # it recovers by itself
    found = {event["feedback_id"] for event in documents(own_broker.bootstrap, f"{PREFIX}.feedback")}
    assert senders.acknowledged - found == set()
    assert len(senders.acknowledged) >= 3 * ENOUGH
