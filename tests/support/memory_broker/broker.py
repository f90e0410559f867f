"""The broker in memory: every port over logs, transactions and groups that follow Kafka's rules, with faults as drawn.

For tests and trials: what is written here is gone with the process. A :class:`MemoryCluster` stands for the broker, a
:class:`MemoryBroker` for one process's connection to it. Calls never block: a poll that finds nothing hands its waiting
to ``idle``, where a test advances its clock. Where a :class:`Faults` says so, a transaction is aborted, or ends unseen,
or the process ends in the middle of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from threading import RLock
from zlib import crc32

from schemas.topics import TOPICS, Topic
from tests.support.memory_broker.groups import Group, GroupMetadata, Member, Step
from tests.support.memory_broker.logs import (
    MAX_METADATA_CHARS,
    OpenTransaction,
    PartitionLog,
    TopicConfig,
    TransactionEnd,
)
from ucci_runtime.broker.contact import Health
from ucci_runtime.broker.errors import BrokerUnreachable, Fenced, OffsetsBeyondLog, TopicsUnusable
from ucci_runtime.broker.ports import (
    MAX_POLLED,
    Aborted,
    Assignee,
    CheckedTopics,
    CommitEnd,
    Committed,
    Connect,
    GroupOffsets,
    Unknown,
    sources_of_owner,
)
from ucci_runtime.broker.records import Count, EndReached, Header, Input, Lag, OffsetCommit, OutputRecord, Record
from ucci_runtime.broker.transaction_states import END, INITIALISE, UnansweredRequests
from ucci_runtime.clock import Clock

#: When the coordinator aborts a transaction that nobody ends.
TRANSACTION_TIMEOUT_S = 10.0

CLUSTER_ID = "memory"
_METADATA_TOO_LONG = "the metadata of an offset is too large"
_MILLISECONDS = 1_000
_WAIT_S = 0.5
#: Waits after which an answer that never comes is a fault of the test.
_PATIENCE = 1_000


class ProcessCrashed(BaseException):
    """The process ends here, as by ``kill -9``; no service catches this."""


class Fate(Enum):
    """What becomes of one transaction."""

    COMMIT = "commit"
    ABORT = "abort"
    #: It is committed, and the call never returns: the producer is replaced.
    UNSEEN_COMMIT = "unseen_commit"

    #: It stays open until the producer is replaced, which ends it.
    UNSEEN_ABORT = "unseen_abort"

    CRASH_BEFORE = "crash_before"
    #: The process ends with the transaction open.
    CRASH_OPEN = "crash_open"

    CRASH_AFTER = "crash_after"
    #: It is committed by a second EndTxn; the first one arrives in the next transaction of its producer.
    LATE_COMMIT = "late_commit"

    LATE_ABORT = "late_abort"


FAULTS = tuple(fate for fate in Fate if fate is not Fate.COMMIT)


class Request(Enum):
    """What a producer sends between the beginning of a transaction and its end."""

    ADD_OFFSETS = "AddOffsetsToTxn"
    SEND_OFFSETS = "TxnOffsetCommit"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    PRODUCE = "Produce"


#: As the client sends them: records wait for their partitions, and the offsets overtake them.
REQUESTS = tuple(Request)


class _Refused(Exception):
    """The coordinator's transaction is not what this request takes it to be (INVALID_TXN_STATE)."""


@dataclass(slots=True)
class _Sent:
    """What one transaction is to hold, and what has become of it."""

    records: Sequence[OutputRecord]
    offsets: Mapping[Input, OffsetCommit]
    group: object
    written: Sequence[OutputRecord | None] = ()
    refusal: str | None = None


class Faults:
    """What is left to chance: the ends of transactions, and how deliveries of partitions mix; here nothing is."""

    def fate(self) -> Fate:
        return Fate.COMMIT

    def order(self) -> Sequence[Request]:
        """Return the requests of the next transaction, in the order in which they arrive."""
        return REQUESTS

    def moment(self) -> int:
        """Return before which of these what is late arrives, or the process ends; their number is after the last."""
        return len(REQUESTS)

    def mixed(self, sources: Sequence[Input]) -> Sequence[Input]:
        """Return the partitions that one poll delivers from, in order."""
        return sources

    def batch(self, most: int) -> int:
        """Return how many records one poll delivers of one partition, at least 1."""
        return most


#: Nothing fails, and everything there is gets delivered.
NoFaults = Faults


class DrawnFaults(Faults):
    """Faults drawn from a stream of numbers in [0, 1), as reproducible as these.

    A ``share`` of the transactions fails; after ``most`` faults nothing does any more.
    """

    def __init__(self, draw: Callable[[], float], share: float = 0.3, most: int = 8) -> None:
        self._draw = draw
        self._share = share
        self.left = most

    def fate(self) -> Fate:
        if not self.left or self._draw() >= self._share:
            return Fate.COMMIT
        self.left -= 1
        return FAULTS[int(self._draw() * len(FAULTS))]

    def order(self) -> Sequence[Request]:
        """Return one of the orders in which what was added comes before what is sent."""
        offsets, outputs, found = list(REQUESTS[:2]), list(REQUESTS[2:]), []
        while offsets or outputs:
            left = len(offsets) + len(outputs)
            found.append((offsets if self._draw() * left < len(offsets) else outputs).pop(0))
        return found

    def moment(self) -> int:
        return int(self._draw() * (len(REQUESTS) + 1))

    def mixed(self, sources: Sequence[Input]) -> Sequence[Input]:
        left = list(sources)
        count = 1 + int(self._draw() * len(left)) if left else 0
        return [left.pop(int(self._draw() * len(left))) for _ in range(count)]

    def batch(self, most: int) -> int:
        return min(1 + int(self._draw() * 6), most)


class MemoryCluster:
    """Topics, groups and transactional ids; ``idle`` is called with the seconds that a poll would wait.

    The clock dates records, and ends transactions and sessions that nobody keeps alive.
    """

    def __init__(self, clock: Clock, idle: Callable[[float], None] | None = None, prefix: str = "ucci") -> None:
        self.clock = clock
        self.prefix = prefix
        self.max_metadata_chars = MAX_METADATA_CHARS
        self.idle = idle or (lambda _seconds: None)
        self.lock = RLock()
        self.configs: dict[str, TopicConfig] = {}
        self.logs: dict[Input, PartitionLog] = {}
        self.groups: dict[str, Group] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, OpenTransaction] = {}
        self.ended: dict[str, TransactionEnd] = {}
        """How the latest transaction of each id ended."""
        self.late: dict[str, tuple[int, TransactionEnd]] = {}
        """Ends that are still on the network, with the epochs that they were sent under."""

    # --- topics ---

    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic as many partitions as this, empty ones beside those that it has."""
        with self.lock:
            made = self.configs[topic]
            for partition in range(made.partitions, count):
                self.logs[Input(topic, partition)] = PartitionLog(Input(topic, partition))
            self.configs[topic] = replace(made, partitions=count)

    def create(self, topic: str, config: TopicConfig | None = None) -> None:
        """Create a topic; one that exists is made anew, empty, its offsets beginning again."""
        with self.lock:
            made = config or TopicConfig()
            self.configs[topic] = made
            for partition in range(made.partitions):
                self.logs[Input(topic, partition)] = PartitionLog(Input(topic, partition))

    def sources(self, topics: Collection[str]) -> list[Input]:
        """Return the partitions of topics, sorted. Raises TopicsUnusable."""
        with self.lock:
            if missing := sorted(set(topics) - self.configs.keys()):
                raise TopicsUnusable(tuple(f"{one}: does not exist; create it in the MemoryCluster" for one in missing))
            return sorted(source for source in self.logs if source.topic in topics)

    def place(self, topic: str, key: bytes | None, partition: int | None = None) -> Input:
        """Return where a record goes: to the partition named, else where its key leads, without one to the first."""
        (first, *_), count = self.sources((topic,)), self.configs[topic].partitions
        if partition is not None:
            return Input(topic, partition)
        return first if key is None else Input(topic, crc32(key) % count)

    def append(
        self,
        source: Input,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: tuple[Header, ...] = (),
        headers_fault: str | None = None,
        writer: OpenTransaction | None = None,
    ) -> int:
        """Append one record, by default as a producer outside transactions; return its offset."""
        with self.lock:
            log, config = self.logs[source], self.configs[source.topic]
            if config.compact and key is None:
                raise ValueError(f"{source.topic}: is compacted and takes no record without key")
            now_ms = int(self.clock.now().timestamp() * _MILLISECONDS)
            log.append(Record(source, log.end, key, value, now_ms, headers, config.by_broker, headers_fault), writer)
            return log.end - 1

    def records(self, topic: str) -> list[Record]:
        """Return the committed records of a topic, partition by partition."""
        with self.lock:
            self.expire()
            found = (self.logs[source].committed_from(0, -1)[0] for source in self.sources((topic,)))
            return list(chain.from_iterable(found))

    def compact(self, topic: str) -> None:
        with self.lock:
            for source in self.sources((topic,)):
                self.logs[source].compact()

    # --- transactions ---

    def take_over(self, transactional_id: str) -> int:
        """Fence any earlier producer of this id, end what it left open, and return the new epoch."""
        with self.lock:
            self.end(transactional_id, TransactionEnd.ABORTED)
            self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
            return self.epochs[transactional_id]

    def begin(self, transactional_id: str) -> OpenTransaction:
        transaction = OpenTransaction(transactional_id, self.clock.monotonic())
        self.open[transactional_id] = transaction
        return transaction

    def end(self, transactional_id: str, end: TransactionEnd) -> None:
        """End the open transaction of an id, if there is one."""
        transaction = self.open.pop(transactional_id, None)
        if transaction is not None:
            self.ended[transactional_id] = transaction.end = end
            for log in transaction.logs.values():
                log.mark(transaction)
            if end is TransactionEnd.COMMITTED and transaction.offsets:
                self.group(transaction.group).offsets.update(transaction.offsets)

    def expire(self) -> None:
        """Abort transactions that nobody has ended in time, and fence who began them."""
        with self.lock:
            now_s = self.clock.monotonic()
            for transactional_id, transaction in list(self.open.items()):
                if now_s - transaction.opened_at_s >= TRANSACTION_TIMEOUT_S:
                    self.take_over(transactional_id)

    # --- groups ---

    def group(self, name: str) -> Group:
        """Return a group, which exists from the first time that it is asked for."""
        return self.groups.setdefault(name, Group(name))

    def committed(self, group: str, sources: Iterable[Input]) -> GroupOffsets | None:
        """Return what a group has committed; None while an open transaction is about to change that."""
        with self.lock:
            self.expire()
            found = {source: self.group(group).offsets.get(source) for source in sources}
            pending = (open_one.offsets for open_one in self.open.values() if open_one.group == group)
            return None if any(found.keys() & offsets.keys() for offsets in pending) else found


def create_topics(cluster: MemoryCluster, partitions: int) -> None:
    for topic in TOPICS:
        config = TopicConfig(topic.partitions or partitions, "compact" in topic.policies, topic.by_broker)
        cluster.create(topic.name(cluster.prefix), config)


def _await_committed(cluster: MemoryCluster, group: str, sources: Collection[Input]) -> GroupOffsets:
    """Return what a group has committed, once no open transaction can change it any more."""
    for _ in range(_PATIENCE):
        found = cluster.committed(group, sources)
        if found is not None:
            return found
        cluster.idle(_WAIT_S)
    raise BrokerUnreachable(f"{group}: a transaction over its offsets stays open; let the idle callback advance time")


class MemoryBroker:
    """One process's connection."""

    def __init__(self, cluster: MemoryCluster, instance_id: str, count: Count, faults: Faults | None = None) -> None:
        self.cluster = cluster
        self.instance_id = instance_id
        self._count = count
        self._faults = faults or Faults()
        self._max_record_bytes = 1_000_000

    def check(
        self, touched: Sequence[Topic], written: Iterable[Topic], optional: Sequence[Topic] = ()
    ) -> CheckedTopics:
        """Find missing topics, and the largest record that all that are written take."""
        configs, prefix = self.cluster.configs, self.cluster.prefix
        self.cluster.sources([topic.name(prefix) for topic in touched])
        missing = frozenset(topic for topic in optional if topic.name(prefix) not in configs)
        limits = [configs[topic.name(prefix)].max_record_bytes for topic in written if topic not in missing]
        self._max_record_bytes = min(limits)
        return CheckedTopics(CLUSTER_ID, self._max_record_bytes, missing)

    def create_repartition(self) -> tuple[str, ...]:
        return ()

    def group_reader(self, name: str, topics: Sequence[str]) -> MemoryGroupReader:
        return MemoryGroupReader(self.cluster, name, topics, self.instance_id, self._faults, self._count)

    def session(self, name: str) -> MemoryTransactionSession:
        return MemoryTransactionSession(self.cluster, name, self.instance_id, self._faults, self._max_record_bytes)

    def topic_reader(self, name: str, topics: Sequence[str], *, tail: int | None = None) -> MemoryTopicReader:
        return MemoryTopicReader(self.cluster, topics, tail)

    def publisher(self, name: str) -> MemoryPublisher:
        return MemoryPublisher(self.cluster)

    def health(self) -> Health:
        return Health()


def memory_connect(cluster: MemoryCluster, faults: Faults | None = None) -> Connect:
    """Return what makes a process's connection to a cluster."""
    return lambda instance_id, *, count, **_: MemoryBroker(cluster, instance_id, count, faults)


class MemoryGroupReader:
    """A member of a group; see :class:`~ucci_runtime.broker.ports.GroupReader`."""

    def __init__(
        self, cluster: MemoryCluster, name: str, topics: Sequence[str], instance_id: str, faults: Faults, count: Count
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._count = count
        self._taken: dict[Input, int] = {}
        self._topics = tuple(topics)
        self._instance_id = instance_id
        self._faults = faults
        self._assignee: Assignee | None = None
        self._member: Member | None = None
        self._positions: dict[Input, int] = {}
        self._paused: set[Input] = set()
        self._ends_seen: set[Input] = set()
        self._counts: dict[str, int] = {}
        """Of every topic, its partitions at the latest assignment."""

    @property
    def partition_count(self) -> int:
        return self._counts.get(self._topics[0], 0)

    def subscribe(self, assignee: Assignee) -> None:
        self._assignee = assignee
        self._join()

    def poll(self, timeout_s: float, most: int = MAX_POLLED) -> Sequence[Record | EndReached]:
        """Return what has come; first of all, follow the group."""
        assert self._member is not None
        cluster, member = self._cluster, self._member
        with cluster.lock:
            now_s = cluster.clock.monotonic()
            group = cluster.group(self._name)
            member.heard_at_s = now_s
            group.expire(now_s)
            step = group.next_step(member)
        if step is Step.NOTHING:
            if self._positions and self._partition_counts() != self._counts:
                self.rewind()
                return []
            items = self._deliver(max(most, 1))
            if not items:
                cluster.idle(timeout_s)
            return items
        self._follow(step, group, member, timeout_s)
        return []

    def group(self) -> object:
        assert self._member is not None
        return GroupMetadata(self._name, self._instance_id, self._member.member_id, self._member.generation)

    def rewind(self) -> None:
        if self._member is not None and self._member.holds:
            self._assign(_await_committed(self._cluster, self._name, self._sources(self._member.holds)))

    def pause(self, sources: Collection[Input]) -> None:
        self._paused.update(sources)

    def resume(self, sources: Collection[Input]) -> None:
        self._paused.difference_update(sources)

    def read_from(self, starts: Mapping[Input, int]) -> None:
        self._positions = dict(starts)
        self._paused, self._ends_seen = set(), set()

    def lag(self, reached: Mapping[Input, int] | None = None) -> Mapping[Input, Lag]:
        logs, places = self._cluster.logs, self._positions | dict(reached or {})
        left = {each: max(logs[each].end - max(places[each], logs[each].start), 0) for each in self._positions}
        return {source: Lag(records, None if records else 0.0) for source, records in left.items()}

    def has_successors(self) -> bool:
        with self._cluster.lock:
            return bool(self._cluster.group(self._name).members.keys() - {self._instance_id})

    def close(self) -> None:
        """Give up the partitions; leave the group too, unless this member is alone."""
        if self._positions and self._assignee is not None:
            self._positions = {}
            self._assignee.revoked()
        if self._member is not None:
            with self._cluster.lock:
                self._cluster.group(self._name).leave(self._member)

    def _join(self) -> None:
        with self._cluster.lock:
            group = self._cluster.group(self._name)
            group.sources = self._cluster.sources(self._topics[:1])
            self._member = group.join(self._instance_id, self._cluster.clock.monotonic())

    def _follow(self, step: Step, group: Group, member: Member, timeout_s: float) -> None:
        assert self._assignee is not None
        if step is Step.FENCED:
            raise Fenced("another process joined the group under this instance id")
        if step is Step.WAIT:
            self._cluster.idle(timeout_s)
        elif step is Step.LOSE:
            self._positions = {}
            self._assignee.lost()
            self._join()
        elif step is Step.REVOKE:
            if member.holds or member.generation >= 0:
                self._positions = {}
                self._assignee.revoked()
            with self._cluster.lock:
                group.rejoin(member)
        # Partitions of the present generation are taken over once their former owner's transactions have ended.
        elif (committed := self._cluster.committed(self._name, self._shared(group))) is not None:
            with self._cluster.lock:
                group.take_share(member)
            self._assign(committed)
        else:
            self._cluster.idle(max(timeout_s, _WAIT_S))

    def _shared(self, group: Group) -> list[Input]:
        return self._sources(group.shares.get(self._instance_id, ()))

    def _sources(self, owned: Sequence[Input]) -> list[Input]:
        """Return what goes with these partitions of the first topic, itself included."""
        self._counts = self._partition_counts()
        return sources_of_owner(owned, self._counts)

    def _partition_counts(self) -> dict[str, int]:
        return {topic: self._cluster.configs[topic].partitions for topic in self._topics}

    def _assign(self, committed: GroupOffsets) -> None:
        assert self._assignee is not None
        self._taken = {source: found.offset for source, found in committed.items() if found is not None}
        self.read_from(self._assignee.assigned(committed))

    def _deliver(self, most: int) -> list[Record | EndReached]:
        items: list[Record | EndReached] = []
        with self._cluster.lock:
            self._cluster.expire()
            present = [source for source in self._positions if source not in self._paused]
            for source in self._faults.mixed(present):
                room = most - len(items)
                if room > 0:
                    items += self._next_of(source, self._faults.batch(room))
        return items

    def _next_of(self, source: Input, most: int) -> list[Record | EndReached]:
        log = self._cluster.logs[source]
        place = self._positions[source]
        position = place if log.start <= place <= log.end else self._beginning(log)
        found, position = log.committed_from(position, most)
        self._positions[source] = position
        if found:
            self._taken[source] = max(found[-1].offset + 1, self._taken.get(source, 0))
            self._ends_seen.discard(source)
            return [*found]
        if source in self._ends_seen and position == place:
            return []
        self._ends_seen.add(source)
        return [EndReached(source, position)]

    def _beginning(self, log: PartitionLog) -> int:
        """Return where to begin a log that was made anew, or cut, and no longer has the place that was asked for."""
        taken = self._taken.get(log.source, log.start)
        if taken > log.end:
            raise OffsetsBeyondLog(self._name, *log.source, taken, log.end)
        if taken < log.start:
            self._count("records_lost", log.start - taken)
        return log.start


class MemoryTransactionSession:
    """The transactions of one transactional id; see :class:`~ucci_runtime.broker.ports.TransactionSession`."""

    hangs = False

    def __init__(
        self, cluster: MemoryCluster, name: str, instance_id: str, faults: Faults, max_record_bytes: int
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._id = f"{name}-{instance_id}"
        self._faults = faults
        self._max_record_bytes = max_record_bytes
        self._epoch = 0
        self._requests = UnansweredRequests()

    @property
    def is_started(self) -> bool:
        return self._epoch > 0

    def start(self) -> None:
        self._epoch = self._cluster.take_over(self._id)
        self._requests = UnansweredRequests()
        self._exchange(INITIALISE)

    def commit(
        self, records: Sequence[OutputRecord], offsets: Mapping[Input, OffsetCommit], group: object
    ) -> CommitEnd:
        """Write the records and commit them with the offsets, or let a fault happen to them."""
        if not self.is_started:
            self.start()
        with self._cluster.lock:
            self._cluster.expire()
            if self._cluster.epochs[self._id] != self._epoch:
                raise Fenced("another process runs under this instance id")
            fate, moment = self._faults.fate(), self._faults.moment()
            if fate is Fate.CRASH_BEFORE:
                raise ProcessCrashed
            sent = _Sent(records, offsets, group)
            aborts = fate in (Fate.ABORT, Fate.LATE_ABORT)
            try:
                self._send(sent, fate, moment)
                if None in sent.written:
                    return self._replaced("a record is too large", offsets)
                if (records or offsets) and (fate is not Fate.UNSEEN_ABORT or sent.refusal is not None):
                    self._end(fate, commits=sent.refusal is None and not aborts)
            except _Refused:
                return self._replaced("another request has ended it", offsets)
            if sent.refusal is not None or aborts:
                return Aborted(sent.refusal or "aborted as drawn", sent.refusal == _METADATA_TOO_LONG)
        if fate is Fate.CRASH_AFTER:
            raise ProcessCrashed
        if fate in (Fate.UNSEEN_COMMIT, Fate.UNSEEN_ABORT):
            return self._replaced("unseen as drawn", offsets)
        return Committed(tuple(record for record in sent.written if record is not None))

    def serve(self) -> None:
        """Nothing is reported on the side."""

    def close(self) -> None:
        """Nothing is open between commits."""

    def _send(self, sent: _Sent, fate: Fate, moment: int) -> None:
        """Send one request after the other; what is late arrives, and what ends the process does, where drawn."""
        for number, request in enumerate([*self._faults.order(), None]):
            if number == moment:
                self._deliver_late()
                if fate is Fate.CRASH_OPEN:
                    raise ProcessCrashed
                if fate is Fate.UNSEEN_ABORT:
                    return
            if request in (Request.ADD_OFFSETS, Request.SEND_OFFSETS):
                if sent.offsets and sent.refusal is None:
                    self._send_offsets(sent, request)
            elif request is not None and sent.records:
                self._send_records(sent, request)

    def _deliver_late(self) -> None:
        """Let an end that was on the network arrive: it ends what is open, unless the epoch was raised meanwhile."""
        epoch, end = self._cluster.late.pop(self._id, (0, TransactionEnd.ABORTED))
        if epoch == self._cluster.epochs[self._id]:
            self._cluster.end(self._id, end)

    def _open(self) -> OpenTransaction:
        return self._cluster.open.get(self._id) or self._cluster.begin(self._id)

    def _send_offsets(self, sent: _Sent, request: Request) -> None:
        """Add the offsets to the transaction, or note why the group refuses them."""
        if request is Request.ADD_OFFSETS:
            self._open().group = self._name
            return
        transaction = self._cluster.open.get(self._id)
        if transaction is None or not transaction.group:
            raise _Refused
        if not self._cluster.group(self._name).accepts(sent.group):
            sent.refusal = "the group has moved on"
        elif any(len(found.metadata) > self._cluster.max_metadata_chars for found in sent.offsets.values()):
            sent.refusal = _METADATA_TOO_LONG
        else:
            transaction.offsets.update(sent.offsets)

    def _send_records(self, sent: _Sent, request: Request) -> None:
        """Add the records' partitions to the transaction, then the records."""
        if request is Request.ADD_PARTITIONS:
            fitting = [self._fitting(record) for record in sent.records]
            sent.written = fitting
            self._open().partitions |= {self._place(one) for one in fitting if one is not None}
            return
        transaction = self._cluster.open.get(self._id)
        for record in sent.written:
            if record is not None:
                place = self._place(record)
                if transaction is None or place not in transaction.partitions:
                    raise _Refused
                self._cluster.append(place, record.key, record.value, headers=record.headers, writer=transaction)

    def _place(self, record: OutputRecord) -> Input:
        return self._cluster.place(record.topic, record.key, record.partition)

    def _fitting(self, record: OutputRecord) -> OutputRecord | None:
        """Return the record, or what it names to be written instead where it is too large."""
        written: OutputRecord | None = record
        while written is not None and written.size_bytes > self._max_record_bytes:
            written = None if written.instead is None else written.instead(self._max_record_bytes)
        return written

    def _end(self, fate: Fate, *, commits: bool) -> None:
        """End the transaction; where the first EndTxn is late, by a second one."""
        end = TransactionEnd.COMMITTED if commits else TransactionEnd.ABORTED
        if fate in (Fate.LATE_COMMIT, Fate.LATE_ABORT):
            self._requests.sent(END, self._id, 0)
            self._cluster.late[self._id] = (self._epoch, end)
        if self._id not in self._cluster.open and self._cluster.ended.get(self._id, end) is not end:
            raise _Refused
        self._cluster.end(self._id, end)
        self._exchange(END)
        if self._requests.may_arrive:
            self.start()

    def _exchange(self, kind: str) -> None:
        self._requests.sent(kind, self._id, 1)
        self._requests.answered(kind, self._id, 1)

    def _replaced(self, reason: str, offsets: Iterable[Input]) -> Unknown:
        self.start()
        return Unknown(reason, _await_committed(self._cluster, self._name, list(offsets)))


class MemoryTopicReader:
    """Whole topics, or their ends; see :class:`~ucci_runtime.broker.ports.TopicReader`."""

    def __init__(self, cluster: MemoryCluster, topics: Sequence[str], tail: int | None) -> None:
        self._cluster = cluster
        self._positions = {source: cluster.logs[source].start for source in cluster.sources(topics)}
        self._reached: set[Input] = set()
        if tail is not None:
            each, logs = max(tail // max(len(self._positions), 1), 1), cluster.logs
            self._positions = {one: max(low, logs[one].stable_end - each) for one, low in self._positions.items()}

    @property
    def has_reached_ends(self) -> bool:
        return len(self._reached) == len(self._positions)

    def poll(self, timeout_s: float) -> Iterator[Record]:
        """Yield what has come."""
        found = self._take()
        if not found:
            self._cluster.idle(timeout_s)
        yield from found

    def up_to_end(self) -> Iterator[Record]:
        yield from self._take()

    def close(self) -> None:
        """Nothing is open."""

    def _take(self) -> list[Record]:
        taken: list[Record] = []
        with self._cluster.lock:
            self._cluster.expire()
            for source, position in self._positions.items():
                log = self._cluster.logs[source]
                start = position if log.start <= position <= log.end else log.start
                found, self._positions[source] = log.committed_from(start, -1)
                taken += found
                self._reached.add(source)
        return taken


class MemoryPublisher:
    """Records outside transactions; see :class:`~ucci_runtime.broker.ports.Publisher`."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def queue(
        self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[None]:
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cluster.append(self._cluster.place(topic, key), key, value, headers=tuple((headers or {}).items()))
        acknowledged.set_result(None)
        return acknowledged

    def post(self, topic: str, key: bytes, value: bytes) -> bool:
        self._cluster.append(self._cluster.place(topic, key), key, value)
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Nothing is queued."""
