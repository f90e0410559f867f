"""A member whose thread waited through an outage longer than its session is no stranger to its group."""

from __future__ import annotations

import time
from threading import Event

import pytest

from schemas.settings import Settings
from schemas.topics import Topic
from tests.support.broker import create, produce, unique_prefix
from tests.support.broker_labs import Notes, collect
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.broker.ports import Broker
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

INPUT = Topic("input", "key", "bytes", "delete", partitions=1)
SESSION_S = 8.0


def process(bootstrap: str, prefix: str, finals: list[BrokerError]) -> Broker:
    """Return one process's connection; every process of these tests has the same instance id."""
    settings = Settings.model_validate(
        {
            "kafka": {
                "bootstrap.servers": bootstrap,
                "session.timeout.ms": int(SESSION_S * 1_000),
                "heartbeat.interval.ms": 500,
            },
            "topics": {"prefix": prefix},
        }
    )
    connect = kafka_connect(settings, "recalibrator")
    return connect("same", count=lambda *_, **__: None, on_final=finals.append, closing=Event())


def test_a_member_that_waited_out_an_outage_reads_on(own_broker: LocalBroker) -> None:
    """A stage that commits does not poll; after an outage longer than its session it joins anew, and does not end."""
    prefix = unique_prefix()
    create(own_broker.bootstrap, {f"{prefix}.input": 1})
    finals: list[BrokerError] = []
    reader = process(own_broker.bootstrap, prefix, finals).group_reader("fit", [f"{prefix}.input"])
    reader.subscribe(Notes())
    produce(own_broker.bootstrap, f"{prefix}.input", [("k", b"first")])
    assert [record.value for record in collect(reader, 1)] == [b"first"]

    own_broker.stop()
    time.sleep(SESSION_S + 1.0)  # the thread is elsewhere for this long: that is the fault
    own_broker.start()
    # Back within the session that the broker gives the member it remembers; still nobody polls.
    time.sleep(SESSION_S / 2)
    produce(own_broker.bootstrap, f"{prefix}.input", [("k", b"second")])
    # Joining anew, it may read the first again.
    while b"second" not in [record.value for record in collect(reader, 1)]:
        pass
    reader.close()
    assert finals == []
