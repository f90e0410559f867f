"""A broker that commits half a transaction costs nothing: neither a record twice, nor one that is missing.

A coordinator that was killed and is back before the controller noticed commits what only its own log says: its markers
reach some partitions, and another coordinator aborts the transaction in the others. The markers are sent here by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.broker import read_all
from tests.support.broker_labs import INPUT, OUTPUT, STATE, KafkaLab
from tests.support.kafka_proxy import Hold
from tests.support.kafka_wire import END_TXN, Request
from tests.support.proxied_broker import Proxied, proxied_broker
from tests.support.raw_records import write_commit_markers
from ucci_runtime.broker import kafka_producer
from ucci_runtime.broker.ports import Committed, Unknown
from ucci_runtime.broker.records import Input, OffsetCommit, OutputRecord

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TAKEN_S = 30.0
_ALL = 1_000


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A broker behind a proxy."""
    with proxied_broker(tmp_path_factory.mktemp("kafka")) as made:
        yield made


@pytest.mark.parametrize(
    "marked", [("result",), ("offsets",), ("other", "offsets"), ("result", "other", "offsets"), ()]
)
def test_half_a_transaction_doubles_and_loses_nothing(
    proxied: Proxied, monkeypatch: pytest.MonkeyPatch, marked: tuple[str, ...]
) -> None:
    """Whatever partitions the commit reached, each record is there once, and the offsets with them."""
    monkeypatch.setattr(kafka_producer, "REPEAT_BUDGET_S", 0.5)
    lab = KafkaLab(proxied.address, monkeypatch)
    broker = lab.process()
    session, source = broker.session("work"), Input(INPUT.name(lab.prefix), 0)
    group = broker.group_reader("work", [source.topic]).group()
    assert isinstance(session.commit([], {source: OffsetCommit(1)}, group), Committed)
    places = {"result": (OUTPUT.name(lab.prefix), 0), "other": (STATE.name(lab.prefix), 0)}
    places["offsets"] = offsets_of(proxied.broker.bootstrap, f"{lab.prefix}-work")
    records = [OutputRecord(places[name][0], b"k", name.encode()) for name in ("result", "other")]
    first: list[Request] = []
    end_txn = proxied.proxy.lay(Hold(END_TXN, lab.prefix, where=partial(is_of_the_first, first), most=_ALL))
    with ThreadPoolExecutor(1) as thread:
        committing = thread.submit(session.commit, records, {source: OffsetCommit(7, "note")}, group)
        assert end_txn.taken.wait(TAKEN_S)
        if marked:
            assert first[0].producer is not None
            write_commit_markers(proxied.broker.bootstrap, first[0].producer, [places[name] for name in marked])
        end = committing.result(TAKEN_S)
        end_txn.drop()
    proxied.proxy.lift()
    if 0 < len(marked) < len(places):
        assert end == Committed(tuple(records))
    else:
        assert isinstance(end, Unknown)
        assert end.offsets == {source: OffsetCommit(7, "note") if marked else OffsetCommit(1)}
    shown = [value for record in records for value in committed_values(proxied, record.topic)]
    assert shown == ([record.value for record in records] if marked else [])


def is_of_the_first(seen: list[Request], request: Request) -> bool:
    """Whether a request is of the producer, and the epoch, of the first one that was seen."""
    seen.append(request)
    return request.producer == seen[0].producer


def committed_values(proxied: Proxied, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_all(proxied.broker.bootstrap, topic)]


def offsets_of(bootstrap: str, group: str) -> tuple[str, int]:
    """Return the partition that holds a group's offsets: by Java's hash of its name."""
    number = 0
    for character in group:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    topic = "__consumer_offsets"
    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TAKEN_S).topics[topic].partitions
    return topic, min(number, (1 << 32) - number) % len(partitions)
