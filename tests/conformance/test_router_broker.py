"""What the router promises, held against a real broker."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from schemas.routed import QueryEvent
from schemas.settings import Settings
from stream_router import service
from stream_router.commit.done_offsets import OffsetRange, decode
from tests.support.answerers import forever
from tests.support.broker import produce, read_all, unique_prefix
from tests.support.routers import (
    DEADLINE_S,
    WORKLOAD,
    create_topics,
    query,
    result_ids,
    router_settings,
    running,
    value_of,
)
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Topics:
    """Fresh topics on a broker."""

    bootstrap: str
    prefix: str

    @classmethod
    def fresh(cls, broker: LocalBroker, **results: str) -> Topics:
        topics = cls(broker.bootstrap, unique_prefix())
        create_topics(topics.bootstrap, topics.prefix, 4, **results)
        return topics

    def settings(self, **router: Any) -> Settings:
        return router_settings(self.bootstrap, self.prefix, **router)

    def read(self, topic: str) -> list[Message]:
        return read_all(self.bootstrap, f"{self.prefix}.{topic}")

    def result_ids(self) -> list[str]:
        return result_ids(self.bootstrap, self.prefix)

    def send(self, *records: tuple[str | None, bytes | None]) -> None:
        produce(self.bootstrap, f"{self.prefix}.queries", records)

    def committed(self) -> dict[int, tuple[int, tuple[OffsetRange, ...]]]:
        asked = ConsumerGroupTopicPartitions(f"{self.prefix}-router", self._queries())
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (answered,) = admin.list_consumer_group_offsets([asked], request_timeout=20).values()
        found = answered.result(DEADLINE_S).topic_partitions
        return {tp.partition: (tp.offset, decode(tp.offset, tp.metadata) or ()) for tp in found if tp.offset >= 0}

    def ends(self) -> dict[int, int]:
        """Up to which offset each partition is filled."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        answered = admin.list_offsets(dict.fromkeys(self._queries(), _LATEST), request_timeout=20)
        return {tp.partition: future.result(DEADLINE_S).offset for tp, future in answered.items()}

    def _queries(self) -> list[TopicPartition]:
        return [TopicPartition(f"{self.prefix}.queries", partition) for partition in range(4)]


@pytest.fixture
def topics(broker: LocalBroker) -> Topics:
    return Topics.fresh(broker)


async def test_queries_that_name_no_workload_are_the_defaults(
    topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two configured workloads; what is dead-lettered all the same is counted in the log by reason."""
    tables = topics.settings().model_dump() | {"workloads": dict.fromkeys(("photo", "reviews"), WORKLOAD)}
    settings = Settings.model_validate(tables | {"default_workload": "reviews"})
    topics.send(query("none"), query("named", workload="photo"), query("wrong", workload="audio"))
    async with running(settings) as router:
        await router.until_committed(2, 1)
        await router.until(lambda: "{'unknown_workload': 1}" in capsys.readouterr().out, "a line about the dead letter")
    found = [json.loads(value_of(message)) for message in topics.read("results")]
    assert {result["query_id"]: result["workload"] for result in found} == {"none": "reviews", "named": "photo"}


async def test_lag_ends_at_zero_behind_a_producers_own_transactions(topics: Topics) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topics.prefix})
    producer.init_transactions(DEADLINE_S)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(f"{topics.prefix}.queries", query(f"{end.__name__}-{n}")[1], partition=n % 4)
        end(DEADLINE_S)
    async with running(topics.settings()) as router:
        await router.until_committed(40)
        ends = topics.ends()
        await router.until(lambda: {p: offset for p, (offset, _) in topics.committed().items()} == ends, "lag 0")
    assert len(topics.result_ids()) == 40
    assert not any("abort" in found for found in topics.result_ids())


async def test_bad_input_becomes_dead_letters(topics: Topics) -> None:
    bad: dict[str, bytes | None] = {
        "tombstone": None,
        "empty": b"",
        "not_utf8": b'{"query_id": "\xff"}',
        "not_json": b"{",
        "not_an_object": b"[1]",
        "missing_field": b'{"query_id": "x"}',
        "invalid_field": b'{"query_id": "", "text": "t"}',
        "unknown_workload": b'{"query_id": "x", "text": "t", "workload": "nowhere"}',
        "models_failed": b'{"query_id": "x", "text": "fail"}',
        "internal_error": b'{"query_id": "x", "text": "break"}',
    }
    topics.send(*((reason, value) for reason, value in bad.items()), query("good"))
    async with running(topics.settings()) as router:
        await router.until_committed(1, len(bad))
    letters = {m.key(): m for m in topics.read("dead-letters")}
    for reason, value in bad.items():
        letter = letters[reason.encode()]
        headers = dict(letter.headers() or ())
        assert letter.value() == value
        told = (headers["dlq.reason"], headers["dlq.topic"], headers["dlq.stage"])
        assert told == (reason.encode(), f"{topics.prefix}.queries".encode(), b"route")
        assert headers["dlq.error"]
    assert topics.result_ids() == ["good"]


async def test_straggler_delays_no_other_query(topics: Topics) -> None:
    """Nor is it shown as a backlog of all behind it, which the lag, counted from the committed offset, is."""
    release = asyncio.Event()

    async def hold(event: QueryEvent) -> None:
        if event.query_id == "slow":
            await release.wait()

    topics.send(query("slow"), *(query(f"q{n}") for n in range(400)))
    settings = topics.settings()
    async with running(settings, hold) as router:
        await router.until_committed(400)
        assert router.service.status().in_flight == 1
        beyond = [len(ranges) for _, ranges in topics.committed().values() if ranges]
        assert beyond == [1], "the done offsets beyond the slow query are in the metadata"
        value = router.service.metrics.registry.get_sample_value

        def straggles() -> bool:
            return sum(router.service.status().lag.values()) > 1 and value("ucci_router_backlog") == 1.0

        await router.until(straggles, "a lag of many, and a backlog of one query")
        release.set()
        await router.until_committed(401)
    assert len(topics.result_ids()) == 401


async def test_rebalance_between_routers_is_exactly_once(topics: Topics) -> None:
    """Partitions move between routers, and no result is lost or duplicated."""
    topics.send(*(query(f"a{n}") for n in range(300)))
    first, second = (topics.settings(instance_id=name) for name in ("first", "second"))

    async def hold(event: QueryEvent) -> None:
        await asyncio.sleep(0.001 * (crc32(event.query_id.encode()) % 20))

    async with running(first, hold) as one:
        await one.until_committed(50)
        async with running(second, hold) as two:
            await two.until_ready()
            topics.send(*(query(f"b{n}") for n in range(300)))
            await two.until(lambda: one.count("results") + two.count("results") >= 600, "600 results")
            assert two.count("results") > 0
    assert topics.result_ids() == sorted(f"{x}{n}" for x in "ab" for n in range(300))


async def test_a_slow_call_kept_partitions_from_the_next_router(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SIGTERM a router waited for its calls though others could have taken its queries over."""
    monkeypatch.setattr(service, "MAX_DRAIN_S", 90.0)
    first, second = (topics.settings(instance_id=name) for name in ("first", "second"))
    async with running(first, forever) as one:
        await one.until_ready()
        async with running(second) as two:
            await two.until_ready()
            await one.until(lambda: len(one.service.status().lag) == 2, "half of the partitions")
            topics.send(*(query(f"q{n}") for n in range(40)))
            await one.until(lambda: one.service.status().in_flight > 0, "queries in flight")
            await asyncio.wait_for(one.end(), 60)
            await two.until_committed(40)
    assert topics.result_ids() == sorted(f"q{n}" for n in range(40))


async def test_a_full_router_takes_no_more_and_loses_nothing(topics: Topics) -> None:
    release = asyncio.Event()
    topics.send(*(query(f"q{n}") for n in range(300)))
    async with running(topics.settings(max_in_flight=10), lambda _: release.wait()) as router:
        await router.until(lambda: router.service.status().in_flight >= 10, "full")
        await asyncio.sleep(1.0)
        assert router.service.status().in_flight <= 11, "one may slip in before the pause takes effect"
        release.set()
        await router.until_committed(300)
    assert len(set(topics.result_ids())) == 300


async def test_oversized_result_becomes_a_dead_letter(broker: LocalBroker) -> None:
    topics = Topics.fresh(broker, **{"max.message.bytes": "10000"})
    topics.send(*(query(f"q{n}") for n in range(50)), query("large", "x" * 5_000), query("larger", "y" * 30_000))
    async with running(topics.settings()) as router:
        await router.until_committed(50, 2)
    letters = {m.key(): m for m in topics.read("dead-letters")}
    assert {dict(m.headers() or ())["dlq.reason"] for m in letters.values()} == {b"too_large"}
    assert json.loads(value_of(letters[b"large"]))["text"] == "x" * 5_000
    truncated = dict(letters[b"larger"].headers() or ())["dlq.truncated"]
    assert isinstance(truncated, bytes)
    assert b"value of 30" in truncated
    assert len(value_of(letters[b"larger"])) > 7_000
    assert len(topics.result_ids()) == 50


async def test_a_limit_lowered_under_way_spoils_no_other_query(topics: Topics) -> None:
    async with running(topics.settings()) as router:
        topics.send(query("before"))
        await router.until_committed(1)
        lower = ConfigEntry("max.message.bytes", "9000", incremental_operation=AlterConfigOpType.SET)
        results = ConfigResource(ResourceType.TOPIC, f"{topics.prefix}.results", incremental_configs=[lower])
        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        for future in admin.incremental_alter_configs([results]).values():
            future.result(20)
        topics.send(query("large", "x" * 20_000), *(query(f"q{n}") for n in range(20)))
        await router.until_committed(21, 1)
    assert sorted(set(topics.result_ids())) == sorted(["before", *(f"q{n}" for n in range(20))])
