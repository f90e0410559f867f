"""Replicas of the API on a real broker: each answers from the topics alone, whenever it started."""

from __future__ import annotations

import json
import urllib.request
from contextlib import closing
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer

from recalibrator.api.http_context import Shared
from recalibrator.api.http_stage import ApiStage
from recalibrator.prometheus_metrics import Metrics
from schemas.settings import Settings
from schemas.status import LabelerStatus, RecalibratorStatus, StageStatus
from tests.support.api import plain_router, plain_status
from tests.support.broker import produce
from tests.support.recalibrator_processes import create_all_topics, recalibrator_settings
from tests.support.versions import sealed_version
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.process import SystemClock
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

PHOTO = "photo"
NOW = SystemClock().now()


class Replica:
    """One API, whose turns the test takes."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._closing = Event()
        metrics = Metrics()
        connect = kafka_connect(settings, "recalibrator")
        broker = connect(name, count=metrics.count, on_final=_raise, closing=self._closing)
        self._stage = ApiStage(settings, broker, Shared(metrics, SystemClock(), list))
        self._stage.start()
        while not self._stage.is_ready:
            self._stage.turn()

    def close(self) -> None:
        self._closing.set()
        self._stage.close()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._stage.http_port}{path}") as answer:
            return json.load(answer)

    def until_dead_letters(self, count: int) -> None:
        """Turn until so many dead letters are known: they are the last to arrive."""
        for _ in range(300):
            self._stage.turn()
            if self.get("/v1/status")["dead_letters"]["total"] == count:
                return
        raise AssertionError("the dead letters did not come")


def _raise(error: BaseException) -> None:
    raise error


@pytest.fixture
def settings(broker: LocalBroker, topic_prefix: str) -> Settings:
    create_all_topics(broker.bootstrap, topic_prefix)
    plain = recalibrator_settings(broker.bootstrap, topic_prefix)
    return plain.model_copy(update={"recalibrator": plain.recalibrator.model_copy(update={"http_port": 0})})


def write_topics(settings: Settings) -> None:
    """Write what fit, routers and joins would."""
    bootstrap, prefix = str(settings.kafka["bootstrap.servers"]), settings.topics.prefix
    history = []
    for number in (1, 2, 3):
        parts = {"version": number, "uncertainty_threshold": 0.1 * number, "parent_version": number - 1 or None}
        history.append((f"{PHOTO}:{number}", sealed_version(workload=PHOTO, created_at=NOW, **parts).to_json()))
    produce(bootstrap, f"{prefix}.calibration-history", history)
    now = SystemClock().now()
    status = plain_status(workload=PHOTO, calibration_version=3, updated_at=now + timedelta(seconds=1))
    produce(bootstrap, f"{prefix}.status", [(PHOTO, status.to_json())])
    router = plain_router("r", started_at=NOW, updated_at=now, versions={})
    produce(bootstrap, f"{prefix}.routers", [("r", router.to_json())])
    stages, said = {"join": StageStatus(ready=True)}, {PHOTO: (LabelerStatus(labeler="ann", labels=4),)}
    join = RecalibratorStatus(instance_id="j/join", started_at=NOW, updated_at=now, stages=stages, labelers=said)
    produce(bootstrap, f"{prefix}.recalibrators", [("j/join", join.to_json())])
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in (0, 1):
        headers = {"dlq.stage": b"route", "dlq.reason": b"not_json", "dlq.error": b"not valid JSON"}
        producer.produce(f"{prefix}.dead-letters", b"{", partition=partition, headers=list(headers.items()))
    assert producer.flush(30.0) == 0


def test_a_later_replica_answers_as_the_first_one(settings: Settings) -> None:
    with closing(Replica(settings, "early")) as early:
        write_topics(settings)
        early.until_dead_letters(2)
        with closing(Replica(settings, "late")) as late:
            late.until_dead_letters(2)
            for path in (f"/v1/status/{PHOTO}", f"/v1/status/{PHOTO}/history", f"/v1/calibrations/{PHOTO}"):
                # The day that dead letters are counted for ends now: a minute may pass between the two questions.
                assert late.get(path) | {"dead_letters": None} == early.get(path) | {"dead_letters": None}
            status, points = late.get(f"/v1/status/{PHOTO}"), late.get(f"/v1/status/{PHOTO}/history")["points"]

    assert status["version"]["changed"]["uncertainty_threshold"] == [0.2, pytest.approx(0.3)]
    assert status["labels"]["by_labeler"][0]["labeler"] == "ann"
    assert status["dead_letters"]["by_reason"][0]["count"] == 2
    assert [point["source"] for point in points] == ["version", "version", "version", "status"]
