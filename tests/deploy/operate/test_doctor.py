"""`ucci-stream doctor` against a real broker and model servers: what works is seen, what does not is named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from tests.support.broker import produce
from tests.support.model_desk import model_desk
from tests.support.recalibrator_processes import create_all_topics
from tests.support.router_processes import hashed_models, publish_calibration, write_config
from tests.support.scripted_model_server import Fault
from ucci_stream.cli import app
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.operate import findings

NOWHERE = "127.0.0.1:1"


def run_doctor(config: Path) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Run the command; returns its exit code and the findings by area."""
    done = CliRunner().invoke(app, ["doctor", "--config", str(config), "--json"])
    areas: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        areas.setdefault(finding["area"], []).append(finding)
    return done.exit_code, areas


def test_a_broker_away_is_a_fault_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and disk are looked at all the same; nothing else is asked of the broker."""
    monkeypatch.setattr("ucci_runtime.broker.kafka_topics.REQUEST_TIMEOUT_S", 0.2)
    config = write_config(tmp_path / "ucci.toml", NOWHERE, "u", f"http://{NOWHERE}/v1")
    code, areas = run_doctor(config)
    assert code == 1
    (broker,) = areas["broker"]
    assert f"no broker answers at {NOWHERE}" in broker["message"]
    assert [model["severity"] for model in areas["models"]] == ["fault", "fault"]
    assert {"groups", "versions"}.isdisjoint(areas)
    assert areas["disk"]


async def test_a_models_answer_is_described_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured of a good one; keys that are no fields, and the fields that are meant."""
    monkeypatch.setattr("ucci_runtime.broker.kafka_topics.REQUEST_TIMEOUT_S", 0.2)
    async with model_desk(tmp_path, "target = { micro_f1 = 0.9 }") as desk:
        desk.small.play(Fault("text", said='{"Camera": "z1", "ISO": "100"}'))
        desk.large.play(Fault("reason", said="eos_token"))
        _, areas = await asyncio.to_thread(run_doctor, desk.config)
        small, large = areas["models"]
    assert (small["severity"], '"ISO" (iso is meant?)' in small["message"]) == ("warning", True)
    assert large["severity"] == "ok"
    assert "log-probabilities of 12 of 12 tokens in" in large["message"]
    assert large["message"].endswith("finish_reason eos_token")


@pytest.mark.broker
async def test_a_cluster_without_services_and_with(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Idle and complete, it has warnings only; a query that nobody takes is a fault."""
    create_all_topics(broker.bootstrap, topic_prefix)
    publish_calibration(broker.bootstrap, topic_prefix)
    async with hashed_models() as (models, _):
        config = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, models)
        code, areas = await asyncio.to_thread(run_doctor, config)
        assert not [one for area in areas.values() for one in area if one["severity"] == "fault"]
        assert code == 0
        assert [model["severity"] for model in areas["models"]] == ["ok", "ok"]
        assert "version 1" in areas["versions"][0]["message"]
        assert [group["severity"] for group in areas["groups"]] == ["warning"] * 3
        produce(broker.bootstrap, f"{topic_prefix}.queries", [("q", b'{"query_id": "q", "text": "canon"}')])
        code, areas = await asyncio.to_thread(run_doctor, config)
    assert code == 1
    (waiting,) = [group for group in areas["groups"] if group["severity"] == "fault"]
    assert f"{topic_prefix}-router: 0 members, 1 records behind" in waiting["message"]
    assert waiting["remedy"] == "start a stream-router: `stream-router run`"


@pytest.mark.broker
def test_missing_topics_are_named_each(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, f"http://{NOWHERE}/v1")
    code, areas = run_doctor(config)
    assert code == 1
    assert f"{topic_prefix}.queries: does not exist" in {finding["message"] for finding in areas["topics"]}
    assert areas["topics"][0]["remedy"] == "run `ucci-stream topics create`"


@pytest.mark.broker
def test_a_transaction_left_open_is_found(
    broker: LocalBroker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hides results from the join without any error, for as long as its time-out says."""
    monkeypatch.setattr(findings, "OPEN_TRANSACTION_S", -1.0)
    create_all_topics(broker.bootstrap, topic_prefix)
    properties = {"transactional.id": f"{topic_prefix}-holder", "transaction.timeout.ms": 600_000}
    holder = Producer({"bootstrap.servers": broker.bootstrap, **properties})
    holder.init_transactions(30)
    holder.begin_transaction()
    holder.produce(f"{topic_prefix}.results", b"{}", b"q")
    holder.flush(30)
    config = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, f"http://{NOWHERE}/v1")
    code, areas = run_doctor(config)
    holder.abort_transaction(30)
    assert code == 1
    (found,) = areas["transactions"]
    assert f"{topic_prefix}.results, partition" in found["message"]
    assert "hides 1 records" in found["message"]
