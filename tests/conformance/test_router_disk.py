"""A router with a state directory on a real broker, whose calibration topic is lost or does not come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from schemas.settings import Settings
from stream_router import process
from tests.support.broker import create, produce, unique_prefix
from tests.support.router_processes import publish_calibration
from tests.support.routers import RunningRouter, create_topics, query, result_ids, router_settings, running
from tests.support.waiting import wait_until
from ucci_runtime.broker.kafka_topic_readers import KafkaTopicReader
from ucci_runtime.broker.records import Record
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

DEADLINE_S = 60.0


def empty_calibration(bootstrap: str, prefix: str) -> None:
    """Make the topic anew, as after a loss."""
    admin, name = AdminClient({"bootstrap.servers": bootstrap}), f"{prefix}.calibration"
    for future in admin.delete_topics([name], request_timeout=DEADLINE_S).values():
        future.result()
    wait_until(lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics, f"{name} goes")
    create(bootstrap, {name: 1}, {"cleanup.policy": "compact"})


def nothing(_: KafkaTopicReader, timeout_s: float) -> Iterator[Record]:
    """Wait for records that do not come."""
    time.sleep(timeout_s)
    return iter(())


def version_of(router: RunningRouter) -> tuple[int | None, str | None]:
    found = router.service.status().versions["photo"]
    return found.version, found.source


@pytest.fixture
async def settings(broker: LocalBroker, tmp_path: Path) -> Settings:
    """Return those of a router that has kept a version from fresh topics."""
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix)
    publish_calibration(broker.bootstrap, prefix)
    found = router_settings(broker.bootstrap, prefix, state_dir=str(tmp_path / "state"))
    async with running(found) as router:
        await router.until_ready()
        assert version_of(router) == (1, "topic")
    return found


async def test_a_lost_calibration_topic_starts_a_router_cold(broker: LocalBroker, settings: Settings) -> None:
    """With a state directory it decides by the version that it had, until the topic brings one again."""
    prefix = settings.topics.prefix
    empty_calibration(broker.bootstrap, prefix)
    async with running(settings) as router:
        await router.until_ready()
        assert version_of(router) == (1, "disk")
        produce(broker.bootstrap, f"{prefix}.queries", [query("q-1")])
        await router.until_committed(1)
        publish_calibration(broker.bootstrap, prefix)
        await router.until(lambda: version_of(router) == (1, "topic"), "the topic's own version")
    assert result_ids(broker.bootstrap, prefix) == ["q-1"]


async def test_a_calibration_topic_that_does_not_come_stops_the_start(
    broker: LocalBroker, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a version from disk for every workload it waits for a while only, and then answers queries."""
    prefix = settings.topics.prefix
    monkeypatch.setattr(process, "TOPIC_PATIENCE_S", 0.1)
    monkeypatch.setattr(KafkaTopicReader, "has_reached_ends", property(lambda _: False))
    monkeypatch.setattr(KafkaTopicReader, "poll", nothing)
    async with running(settings) as router:
        await router.until_ready()
        assert version_of(router) == (1, "disk")
        produce(broker.bootstrap, f"{prefix}.queries", [query("q-1")])
        await router.until_committed(1)
    assert result_ids(broker.bootstrap, prefix) == ["q-1"]
