"""What SASL_SSL costs: records a second through one broker's secured listener, as a share of its plain one.

``python -m research.secured_kafka`` starts a broker with both listeners and an authorizer, and writes and reads the
same records over both in turn; the first round warms up. Broker and clients share the machine, so the ratio holds
encryption and decryption at both ends. The broker's JVM compiles as a server's does: without its optimising compiler,
which the local node leaves out to start sooner, it has no fast AES.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.broker import create
from tests.support.secured_broker import SecuredBroker, User
from ucci_stream.local import kafka_node
from ucci_stream.topics.access import Grant

RECORDS, BYTES, ROUNDS = 50_000, 1_000, 3
TOPIC = "throughput"
DEADLINE_S = 120.0
SERVER_JVM = ("-XX:+UseSerialGC", "-Djava.awt.headless=true")


def written_per_s(properties: dict[str, Any]) -> float:
    """Return how many records a second an idempotent producer has acknowledged."""
    producer = Producer(properties | {"enable.idempotence": True, "linger.ms": 5})
    # Text like a result's: noise would not show what a cipher costs, and zeros not what a socket does.
    value = (b'{"camera": "canon 5d", "lens": null}' * BYTES)[:BYTES]
    producer.list_topics(TOPIC, timeout=DEADLINE_S)
    began_s = time.perf_counter()
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(TOPIC, value, str(number))
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(DEADLINE_S)
    assert left == 0, f"{left} records were not acknowledged"
    return RECORDS / (time.perf_counter() - began_s)


def read_per_s(properties: dict[str, Any]) -> float:
    """Return how many records a second a consumer takes from the beginning."""
    consumer = Consumer(properties | {"group.id": "throughput", "enable.auto.commit": False})
    taken, began_s = 0, 0.0
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while taken < RECORDS:
            for message in consumer.consume(num_messages=5_000, timeout=1.0):
                error: KafkaError | None = message.error()
                assert error is None, error
                # The connection's own time is not what is measured.
                began_s = began_s or time.perf_counter()
                taken += 1
    finally:
        consumer.close()
    return taken / (time.perf_counter() - began_s)


def main() -> None:
    """Print both ratios, with the lowest and highest round."""
    user = User("client", "client-password")
    grants = [Grant("topic", TOPIC, False, "Write"), Grant("topic", TOPIC, False, "Read")]
    with tempfile.TemporaryDirectory() as folder:
        broker = SecuredBroker(Path(folder))
        with patch.object(kafka_node, "_JVM", SERVER_JVM):
            broker.start()
        try:
            broker.add_users([user])
            broker.allow(user, [*grants, Grant("group", "throughput", False, "Describe")])
            create(broker.bootstrap, {TOPIC: 1})
            plain, secured = {"bootstrap.servers": broker.bootstrap}, broker.properties(user)
            for name, measure in (("written", written_per_s), ("read", read_per_s)):
                ratios = [measure(secured) / measure(plain) for _ in range(ROUNDS + 1)][1:]
                print(f"{name}: SASL_SSL / plain {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
