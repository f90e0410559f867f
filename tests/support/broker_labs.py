"""The same broker twice, in memory and as Kafka, for tests that hold both to the same rules."""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from threading import Event
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.settings import Settings
from schemas.topics import Topic
from tests.support.broker import create
from tests.support.clocks import ManualClock
from tests.support.memory_broker import groups as memory_groups
from tests.support.memory_broker.broker import Fate, Faults, MemoryBroker, MemoryCluster
from tests.support.memory_broker.logs import OpenTransaction, TopicConfig, TransactionEnd
from tests.support.raw_records import RawRecord, produce_raw
from ucci_runtime.broker.errors import BrokerError, RecreateProducer
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.broker.kafka_producer import TransactionalProducer
from ucci_runtime.broker.ports import Broker, GroupOffsets, GroupReader
from ucci_runtime.broker.records import Count, EndReached, Input, Record, next_offset

INPUT = Topic("input", "key", "bytes", "delete", partitions=2)
OUTPUT = Topic("output", "key", "bytes", "delete", partitions=1)
STATE = Topic("state", "key", "bytes", "compact", partitions=1)
TABLE = (INPUT, OUTPUT, STATE)
MAX_BYTES = 20_000
DEADLINE_S = 40.0


class Totals(Counter[str]):
    def __call__(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self[name] += int(amount)


class MemoryLab(Faults):
    """A broker in memory with the topics of :data:`TABLE`, and what a test does to it from outside; its faults, too."""

    def __init__(self, monkeypatch: Any) -> None:
        self._monkeypatch = monkeypatch
        self.counts = Totals()
        self.prefix = "lab"
        self.clock = ManualClock()
        self.cluster = MemoryCluster(self.clock, self.clock.advance, self.prefix)
        self._fates: list[Fate] = []
        for topic in TABLE:
            config = TopicConfig(topic.partitions or 1, "compact" in topic.policies, max_record_bytes=MAX_BYTES)
            self.cluster.create(topic.name(self.prefix), config)

    def process(self, instance_id: str = "a") -> Broker:
        made = MemoryBroker(self.cluster, instance_id, self.counts, self)
        made.check(TABLE, (OUTPUT,))
        return made

    def append(self, source: Input, *values: bytes | None, key: bytes = b"key") -> None:
        for value in values:
            self.cluster.append(source, key, value)

    def append_with_bad_headers(self, source: Input, count: int) -> None:
        """Write records of whose headers one has a key that is not UTF-8, each followed by a good one."""
        for number in range(count):
            self.cluster.append(source, b"bad", b"%d" % number, headers_fault="a header's key is not UTF-8")
            self.cluster.append(source, b"good", b"%d" % number, headers=(("good", b"1"),))

    def open_transaction(self, source: Input, value: bytes) -> Callable[[bool], None]:
        """Write a record in a transaction that stays open; return what commits or aborts it."""
        transaction: OpenTransaction = self.cluster.begin("foreign")
        self.cluster.append(source, b"key", value, writer=transaction)

        def end(is_committed: bool) -> None:
            self.cluster.end("foreign", TransactionEnd.COMMITTED if is_committed else TransactionEnd.ABORTED)

        return end

    def unseen(self, *, is_committed: bool) -> None:
        self._fates.append(Fate.UNSEEN_COMMIT if is_committed else Fate.UNSEEN_ABORT)

    def compact(self, topic: Topic) -> None:
        self.cluster.compact(topic.name(self.prefix))

    def cut(self, source: Input, before: int) -> None:
        self.cluster.logs[source].cut(before)

    def make_sessions_endless(self) -> None:
        self._monkeypatch.setattr(memory_groups, "SESSION_S", math.inf)

    def members(self, group: str) -> list[str]:
        return sorted(self.cluster.group(group).members)

    # --- the faults of its processes ---

    def fate(self) -> Fate:
        return self._fates.pop() if self._fates else Fate.COMMIT


class KafkaLab:
    """The same on Kafka."""

    def __init__(self, bootstrap: str, monkeypatch: Any) -> None:
        self.prefix = f"t{uuid.uuid4().hex[:10]}"
        self._bootstrap = bootstrap
        self._client: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._monkeypatch = monkeypatch
        self.counts = Totals()
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        limit = {"max.message.bytes": str(MAX_BYTES)}
        quick = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000"}
        create(bootstrap, {INPUT.name(self.prefix): 2, OUTPUT.name(self.prefix): 1}, limit)
        create(bootstrap, {STATE.name(self.prefix): 1}, {"cleanup.policy": "compact"} | quick)

    def process(self, instance_id: str = "a") -> Broker:
        made = connected(self._client, self.prefix, instance_id, self.counts)
        made.check(TABLE, (OUTPUT,))
        return made

    def append(self, source: Input, *values: bytes | None, key: bytes = b"key") -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
        for value in values:
            producer.produce(source.topic, value, key, source.partition)
        assert producer.flush(DEADLINE_S) == 0

    def append_with_bad_headers(self, source: Input, count: int) -> None:
        pairs: list[RawRecord] = []
        for number in range(count):
            bad = [(b"fine", b"1"), (b"\xff\xfe", b"2"), (b"last", b"3")]
            pairs += RawRecord(b"bad", b"%d" % number, bad), RawRecord(b"good", b"%d" % number, [(b"good", b"1")])
        for first in range(0, len(pairs), 200):
            produce_raw(self._bootstrap, source.topic, pairs[first : first + 200], source.partition)

    def open_transaction(self, source: Input, value: bytes) -> Callable[[bool], None]:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": f"{self.prefix}-foreign"})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(source.topic, value, b"key", source.partition)
        producer.flush(DEADLINE_S)

        def end(is_committed: bool) -> None:
            (producer.commit_transaction if is_committed else producer.abort_transaction)(DEADLINE_S)

        return end

    def unseen(self, *, is_committed: bool) -> None:
        real, patch = TransactionalProducer.commit, self._monkeypatch

        def unseen(producer: TransactionalProducer, *arguments: Any) -> None:
            patch.setattr(TransactionalProducer, "commit", real)
            if is_committed:
                real(producer, *arguments)
            raise RecreateProducer("unseen, says the test")

        patch.setattr(TransactionalProducer, "commit", unseen)

    def compact(self, topic: Topic) -> None:
        source = Input(topic.name(self.prefix), 0)
        # A segment is closed by a write after its time, and only closed ones are compacted.
        deadline = time.monotonic() + DEADLINE_S
        before = len(self._keys(source))
        while len(self._keys(source)) >= before:
            assert time.monotonic() < deadline, "was not compacted"
            self.append(source, b"filler", key=b"filler")
            before += 1
            time.sleep(0.6)

    def cut(self, source: Input, before: int) -> None:
        for future in self._admin.delete_records([TopicPartition(*source, before)]).values():
            future.result(DEADLINE_S)

    def make_sessions_endless(self) -> None:
        self._client |= {"session.timeout.ms": 600_000, "max.poll.interval.ms": 900_000}

    def members(self, group: str) -> list[str]:
        name = f"{self.prefix}-{group}"
        described = self._admin.describe_consumer_groups([name], request_timeout=DEADLINE_S)[name].result(DEADLINE_S)
        return sorted(member.group_instance_id for member in described.members)

    def _keys(self, source: Input) -> list[bytes | None]:
        with closing(self.process("compaction").topic_reader("compaction", [source.topic])) as reader:
            return [record.key for record in reader.up_to_end()]


Lab = MemoryLab | KafkaLab


def connected(
    kafka: Mapping[str, Any],
    prefix: str,
    instance_id: str,
    count: Count,
    on_final: Callable[[BrokerError], None] = lambda _error: None,
) -> Broker:
    """Return a process's connection to Kafka; by default what is final is raised by the call alone."""
    settings = Settings.model_validate({"kafka": dict(kafka), "topics": {"prefix": prefix}})
    return kafka_connect(settings, "recalibrator")(instance_id, count=count, on_final=on_final, closing=Event())


class Notes:
    """An assignee that reads on from what the group has committed, and records its assignments."""

    def __init__(self) -> None:
        self.committed: dict[Input, Any] = {}
        self.events: list[str] = []

    def assigned(self, committed: GroupOffsets) -> Mapping[Input, int]:
        self.events.append("assigned")
        self.committed = dict(committed)
        return {source: next_offset(found) for source, found in committed.items()}

    def revoked(self) -> None:
        self.events.append("revoked")
        self.committed = {}

    def lost(self) -> None:
        self.events.append("lost")
        self.committed = {}


def drive(readers: Sequence[GroupReader], until: Callable[[], bool]) -> list[Record | EndReached]:
    """Poll all readers in turn until something holds; return what came."""
    found: list[Record | EndReached] = []
    deadline = time.monotonic() + DEADLINE_S
    while not until():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s; came: {found[-5:]}"
        for reader in readers:
            found += reader.poll(0.05)
    return found


def collect(reader: GroupReader, count: int) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        found += [item for item in reader.poll(0.05) if isinstance(item, Record)]
    return found
