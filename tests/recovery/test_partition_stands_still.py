"""A partition of which the client delivers nothing any more is read on, without a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.support.broker import create, produce, unique_prefix
from tests.support.broker_labs import Notes, collect, connected
from tests.support.recalibrator_memory import Counts
from ucci_runtime.broker.contact import Standstill
from ucci_runtime.broker.kafka_group_reader import KafkaGroupReader
from ucci_runtime.broker.records import Input, Record
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

DEADLINE_S = 30.0
STILL_S = 0.5
BACKLOG = 20_000
#: Records that a partition may wait for behind those of another one: a fraction of the backlog.
TURN = 4_000


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def topic(broker: LocalBroker) -> str:
    name = f"{unique_prefix()}.input"
    create(broker.bootstrap, {name: 2})
    return name


@pytest.fixture
def reader(broker: LocalBroker, topic: str, counts: Counts) -> Iterator[KafkaGroupReader]:
    """A member that asks about a partition after half a second of silence."""
    kafka, prefix = {"bootstrap.servers": broker.bootstrap}, topic.removesuffix(".input")
    process = connected(kafka, prefix, "one", counts, lambda error: pytest.fail(str(error)))
    made = process.group_reader("join", [topic])
    assert isinstance(made, KafkaGroupReader)
    made._standstill = Standstill(STILL_S)
    made.subscribe(Notes())
    yield made
    made.close()


def read(reader: KafkaGroupReader, wanted: int) -> list[tuple[int, int]]:
    """Return partition and offset of so many records, in order of arrival."""
    return [(one.source.partition, one.offset) for one in collect(reader, wanted)]


def stood_still(counts: Counts) -> float:
    return sum(amount for name, amount in counts.totals.items() if "STOOD_STILL" in name)


def test_a_partition_that_the_client_forgot_stood_still(
    broker: LocalBroker, topic: str, reader: KafkaGroupReader, counts: Counts
) -> None:
    """Every record comes once and in order, although the client was told to fetch nothing of either partition."""
    produce(broker.bootstrap, topic, [(f"k{n}", b"before") for n in range(20)])
    before = read(reader, 20)
    # What the reader does not know of, as after a resume that got lost in the client.
    reader._consumer.pause([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    produce(broker.bootstrap, topic, [(f"k{n}", b"after") for n in range(20)])
    found = [*before, *read(reader, 20)]
    for partition in (0, 1):
        offsets = [offset for number, offset in found if number == partition]
        assert offsets == list(range(len(offsets)))
    assert stood_still(counts) >= 1


def test_what_is_idle_or_paused_on_purpose_is_left_alone(
    broker: LocalBroker, topic: str, reader: KafkaGroupReader, counts: Counts
) -> None:
    """An idle partition is no fault, and one that its user has paused stays so."""
    produce(broker.bootstrap, topic, [(f"k{n}", b"before") for n in range(20)])
    flowing = sum(number == 1 for number, _ in read(reader, 20))
    reader.pause([Input(topic, 0)])
    # Patient until all has come: on a slow machine that takes longer than a partition may stand still here.
    reader._standstill = Standstill()
    produce(broker.bootstrap, topic, [(f"k{n}", b"after") for n in range(20)])
    seen = {number for number, _ in read(reader, flowing)}
    reader._standstill = Standstill(STILL_S)
    reader._standstill.assigned([Input(topic, 0), Input(topic, 1)], time.monotonic())
    until_s = time.monotonic() + 4 * STILL_S
    while time.monotonic() < until_s:
        seen |= {one.source.partition for one in reader.poll(0.05) if isinstance(one, Record)}
    assert seen == {1}
    assert stood_still(counts) == 0


def test_a_long_backlog_kept_the_other_waiting(
    broker: LocalBroker, topic: str, reader: KafkaGroupReader, counts: Counts
) -> None:
    """Records of both partitions come in turns, and one that waits behind the other's backlog is not read anew.

    A router that answers some hundred queries a second heard nothing of a partition for minutes.
    """
    seen = {number for number, _ in read(reader, 0)}
    _append(broker, topic, 0, BACKLOG)
    _append(broker, topic, 1, 10)
    behind, deadline_s = 0, time.monotonic() + DEADLINE_S
    while 1 not in seen:
        assert time.monotonic() < deadline_s, f"nothing of partition 1 after {behind} records of partition 0"
        found = [one.source.partition for one in reader.poll(0.05, most=50) if isinstance(one, Record)]
        behind += found.count(0)
        seen |= set(found)
        # What a busy user does meanwhile; the partition is silent for longer than the watch allows.
        Event().wait(STILL_S / 10)
    assert behind <= TURN
    assert stood_still(counts) == 0


def _append(broker: LocalBroker, topic: str, partition: int, records: int) -> None:
    """Send records as a producer does that sends at once: in small batches."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 50})
    for _ in range(records):
        producer.produce(topic, b"x" * 100, partition=partition)
    assert producer.flush(DEADLINE_S) == 0
