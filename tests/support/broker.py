"""A real broker for tests, and what tests ask of it."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.waiting import wait_until
from ucci_stream.local.kafka_install import BrokerNotInstalled, properties_text
from ucci_stream.local.kafka_node import LocalBroker

DEADLINE_S = 30.0
Node = TypeVar("Node", bound=LocalBroker)


@contextmanager
def running_broker(local: Node) -> Iterator[Node]:
    """Run a broker; without one a test is skipped at a desk, and fails in continuous integration."""
    try:
        local.start()
    except BrokerNotInstalled as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        yield local
    finally:
        local.stop()


def add_properties(node: LocalBroker, more: Mapping[str, str]) -> None:
    """Give a node whose ports are chosen further properties; of one that it has already, the last one counts."""
    with (node.directory / "server.properties").open("a", encoding="ascii") as file:
        file.write(properties_text(more))


def unique_prefix() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def create(bootstrap: str, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Create topics by name and partition count, and wait until clients see them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    requests = [NewTopic(name, num_partitions=n, config=dict(config or {})) for name, n in topics.items()]
    for future in admin.create_topics(requests, request_timeout=DEADLINE_S).values():
        future.result()
    wait_until(lambda: set(topics) <= set(admin.list_topics(timeout=DEADLINE_S).topics), f"{set(topics)} appear")


def add_partitions(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Raise topics, by name, to these numbers of partitions, and wait until the broker shows them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(*each) for each in topics.items()]).values():
        future.result(DEADLINE_S)

    def have_come() -> bool:
        known = admin.list_topics(timeout=DEADLINE_S).topics
        return all(len(known[name].partitions) == count for name, count in topics.items())

    wait_until(have_come, f"partitions of {topics}")


def produce(bootstrap: str, topic: str, records: Iterable[tuple[str | None, bytes | None]]) -> None:
    """Produce records of key and value, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    failed: list[str] = []

    def report(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error.str())

    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert not failed, failed[0]


def committed_reader(bootstrap: str, more: Mapping[str, Any] | None = None) -> Consumer:
    """Return a consumer of what is committed, in a group of its own; ``more`` are further properties."""
    fixed = {
        "bootstrap.servers": bootstrap,
        "group.id": f"read-{uuid.uuid4().hex}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 20,
    }
    return Consumer(fixed | dict(more or {}))


def follow(bootstrap: str, topic: str) -> Consumer:
    """Return a consumer of what is committed to a topic, from its beginning and then on."""
    consumer = committed_reader(bootstrap)
    consumer.subscribe([topic])
    return consumer


def coming(bootstrap: str, topic: str, within_s: float = 3 * DEADLINE_S) -> Generator[Message]:
    """Yield what is committed to a topic, from its beginning and then on; fails once nothing comes for so long."""
    with closing(follow(bootstrap, topic)) as consumer:
        while True:
            message = consumer.poll(within_s)
            assert message is not None, f"nothing more came on {topic} within {within_s:g} s"
            if message.error() is None:
                yield message


def key_of(message: Message) -> str:
    key = message.key()
    assert key is not None
    return key.decode()


def read_all(bootstrap: str, topic: str) -> list[Message]:
    """Read a topic from its beginning to its present end, on every partition.

    The end of committed records is that before the oldest open transaction; aborted records are left out.
    """
    consumer = committed_reader(bootstrap, {"enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
        assert partitions, f"{topic} does not exist"
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        left, messages = set(partitions), []
        deadline = time.monotonic() + DEADLINE_S
        while left:
            assert time.monotonic() < deadline, f"no end of {topic} on partitions {left}"
            for message in consumer.consume(num_messages=1_000, timeout=0.2):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        return messages
    finally:
        consumer.close()


def documents(bootstrap: str, topic: str) -> list[Any]:
    """Return the JSON documents of :func:`read_all`; null for a record without a value."""
    return [json.loads(message.value() or b"null") for message in read_all(bootstrap, topic)]
