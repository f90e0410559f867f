"""A member whose thread waited through an outage longer than its session is no stranger to its group."""

from __future__ import annotations

import time

import pytest

from tests.support.broker import create, produce, unique_prefix
from tests.support.broker_labs import Notes, Totals, collect, connected
from ucci_runtime.broker.errors import BrokerError
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SESSION_S = 8.0


def test_a_member_that_waited_out_an_outage_reads_on(own_broker: LocalBroker) -> None:
    """A stage that commits does not poll; after an outage longer than its session it joins anew, and does not end."""
    prefix = unique_prefix()
    create(own_broker.bootstrap, {f"{prefix}.input": 1})
    finals: list[BrokerError] = []
    times = {"session.timeout.ms": int(SESSION_S * 1_000), "heartbeat.interval.ms": 500}
    process = connected({"bootstrap.servers": own_broker.bootstrap} | times, prefix, "same", Totals(), finals.append)
    reader = process.group_reader("fit", [f"{prefix}.input"])
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
