"""A router with a state directory on a real broker, whose calibration topic does not come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_router import process
from tests.support.broker import produce, unique_prefix
from tests.support.router_processes import publish_calibration
from tests.support.routers import RunningRouter, create_topics, query, result_ids, router_settings, running
from ucci_runtime.broker.kafka_topic_readers import KafkaTopicReader
from ucci_runtime.broker.records import Record
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker


def nothing(_: KafkaTopicReader, timeout_s: float) -> Iterator[Record]:
    """Wait for records that do not come."""
    time.sleep(timeout_s)
    return iter(())


def version_of(router: RunningRouter) -> tuple[int | None, str | None]:
    found = router.service.status().versions["photo"]
    return found.version, found.source


async def test_a_calibration_topic_that_does_not_come_stops_the_start(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a version from disk for every workload it waits for a while only, and then answers queries."""
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix)
    publish_calibration(broker.bootstrap, prefix)
    settings = router_settings(broker.bootstrap, prefix, state_dir=str(tmp_path / "state"))
    async with running(settings) as router:
        await router.until_ready()
        assert version_of(router) == (1, "topic")
    monkeypatch.setattr(process, "TOPIC_PATIENCE_S", 0.1)
    monkeypatch.setattr(KafkaTopicReader, "has_reached_ends", property(lambda _: False))
    monkeypatch.setattr(KafkaTopicReader, "poll", nothing)
    async with running(settings) as router:
        await router.until_ready()
        assert version_of(router) == (1, "disk")
        produce(broker.bootstrap, f"{prefix}.queries", [query("q-1")])
        await router.until_committed(1)
    assert result_ids(broker.bootstrap, prefix) == ["q-1"]
