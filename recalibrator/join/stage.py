"""Results and feedback in, observations and label requests out: the join's loop.

Each tick commits, first in Kafka the outputs with the input offsets, then in the store the rows with the same offsets.
A crash in between leaves the store behind the group: what lies between is read again with its outputs held back, so
that each output comes once. The same mends a failed transaction, a lost store and a partition that moved here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from recalibrator.dead_letter import dead_letter
from recalibrator.decoding import decode_feedback, decode_result
from recalibrator.errors import Rewind
from recalibrator.join.broker_time import BEHIND_MS, broker_time_ms, dated_feedback, dated_result, from_ms, is_behind
from recalibrator.join.co_partition import Pair
from recalibrator.join.label_requests import closing_records, request_change
from recalibrator.join.labeler_agreement import add, judge
from recalibrator.join.pending import Pending, Summarizer
from recalibrator.join.ports import JoinStore, LabelerKey
from recalibrator.join.query_state import NOTHING_KNOWN, JoinState, Rules, take_feedback, take_result
from recalibrator.stage import Stage
from schemas.errors import DecodeError
from schemas.feedback import FeedbackEvent
from schemas.routed import RoutedEvent
from schemas.status import LabelerStatus
from ucci_runtime.broker.ports import EventLog, Transactions
from ucci_runtime.broker.records import Count, EndReached, Input, Lag, OutputRecord, Record
from ucci_runtime.clock import Clock

STAGE = "join"
TRAFFIC_INTERVAL_S = 1.0
"""How long unlabelled traffic, and offsets alone, may wait for a commit."""

EXPIRY_INTERVAL_S = 20.0
MIN_EXPIRED = 5_000
"""Rows that a commit may delete at least, besides two for each that it stores: the bounds hold at any rate of results,
and a store that begins above them comes down in small steps."""

MAX_PENDING = 20_000
"""Records taken since the last commit that make the next one due at once."""

_POLL_S = 0.1
_MILLISECONDS = 1_000


@dataclass(frozen=True, slots=True)
class JoinTopics:
    """The topics of the join, by full name; without one for label requests nobody is asked."""

    results: str
    feedback: str
    observations: str
    dead_letters: str
    label_requests: str | None


@dataclass(frozen=True, slots=True)
class JoinLimits:
    """The join's bounds.

    Parameters
    ----------
    commit_interval_s : float
        How long an example may wait for a commit.
    retention_s : float
        How long a row that nothing touches is kept.
    request_retention_s : float
        How long people are asked for a query's label.
    requests_max : int
        Most open label requests of a workload.
    max_record_bytes : int
        Largest record that every output topic takes.
    """

    commit_interval_s: float = 0.25
    retention_s: float = 14 * 24 * 3600.0
    request_retention_s: float = 7 * 24 * 3600.0
    requests_max: int = 10_000
    max_record_bytes: int = 1_000_000


class JoinStage(Stage):
    """The join; driven by one thread through :meth:`turn`.

    Parameters
    ----------
    rules : mapping of workload to its rules
    topics : JoinTopics
    limits : JoinLimits
    log, transactions, store : the ports
    summarizer : callable
        Makes a :class:`Summarizer` for a workload.
    clock : Clock
    count : callable
    """

    def __init__(
        self,
        rules: Rules,
        topics: JoinTopics,
        limits: JoinLimits,
        *,
        log: EventLog,
        transactions: Transactions,
        store: JoinStore,
        summarizer: Callable[[str], Summarizer],
        clock: Clock,
        count: Count,
    ) -> None:
        self._rules = rules
        self._topics = topics
        self._limits = limits
        self._log = log
        self._transactions = transactions
        self._store = store
        self._new_summarizer = summarizer
        self._clock = clock
        self._count = count
        self._pairs: dict[int, Pair] = {}
        self._pending = Pending()
        self._is_assigned = False
        self._expiry_due_s = clock.monotonic() + EXPIRY_INTERVAL_S

    @property
    def is_ready(self) -> bool:
        """Whether partitions are assigned and all have caught up with the group."""
        return self._is_assigned and all(pair.is_live for pair in self._pairs.values())

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far behind each input is."""
        return self._log.lag()

    def labelers(self) -> Mapping[str, tuple[LabelerStatus, ...]]:
        """Return what the labelers of the partitions assigned here have said, by workload."""
        return self._store.labelers(self._pairs)

    def gauges(self) -> Mapping[str, float]:
        """Return the number and size of the rows stored, and the number of label requests open."""
        return {
            "rows": float(self._store.rows),
            "row_bytes": float(self._store.row_bytes),
            "label_requests_open": float(sum(self._store.open_requests.values())),
        }

    def start(self) -> None:
        """Join the group."""
        self._log.subscribe(self)

    def turn(self) -> None:
        """Take what has come and commit what is due; blocks up to 0.1 s, or for a transaction."""
        self._take(self._log.poll(min(self._due_in_s(), _POLL_S)))
        self._release()
        if self._due_in_s() <= 0.0:
            self.commit()
        if self._clock.monotonic() >= self._expiry_due_s:
            self._expire()

    def commit(self) -> None:
        """Commit outputs and offsets in Kafka, then rows and offsets in the store."""
        try:
            self._commit()
        except Rewind:
            self._pending = Pending()
            self._log.rewind()

    def close(self) -> None:
        """Commit the rest and leave."""
        self.commit()
        self._log.close()
        self._transactions.close()
        self._store.close()

    # --- told by the event log, from within poll ---

    def assigned(self, committed: Mapping[Input, int | None]) -> Mapping[Input, int]:
        """Take over these partitions: read from what is stored, hold outputs back up to what is committed."""
        self._pending = Pending()
        stored = self._store.offsets()
        self._pairs = {}
        for partition in sorted({source.partition for source in committed}):
            sources = [source for source in committed if source.partition == partition]
            positions = {source: stored.get(source, 0) for source in sources}
            # A group whose offsets were lost or set back is behind the store, whose outputs are committed all the same.
            limits = {source: max(committed[source] or 0, positions[source]) for source in sources}
            self._pairs[partition] = Pair(positions, limits, self._note)
        self._is_assigned = True
        return {source: offset for pair in self._pairs.values() for source, offset in pair.positions.items()}

    def revoked(self) -> None:
        """Commit what is pending while the group still takes it from us."""
        try:
            self._commit()
        except Rewind:
            # Whoever owns the partitions next reads them again.
            self._note("revoked_uncommitted")
        self.lost()

    def lost(self) -> None:
        """Forget what is not stored."""
        self._pending = Pending()
        self._pairs = {}
        self._is_assigned = False

    # --- taking ---

    def _take(self, items: Sequence[Record | EndReached]) -> None:
        decoded = [(item, self._decode(item)) for item in items if isinstance(item, EndReached) or self._is_due(item)]
        self._load(decoded)
        for item, event in decoded:
            pair = self._pairs[item.source.partition]
            if isinstance(item, EndReached):
                if pair.reach_end(item):
                    self._pending.since_s = min(self._pending.since_s, self._clock.monotonic())
            elif pair.admits(item):
                self._pending.since_s = min(self._pending.since_s, self._clock.monotonic())
                self._pending.records += 1
                self._apply(pair, item, event)
            else:
                self._log.hold(item.source)

    def _is_due(self, record: Record) -> bool:
        return record.source.partition in self._pairs

    def _decode(self, item: Record | EndReached) -> RoutedEvent | FeedbackEvent | DecodeError | None:
        if isinstance(item, EndReached):
            return None
        try:
            if item.source.topic == self._topics.feedback:
                return decode_feedback(item.value)
            return decode_result(item.value, self._rules)
        except DecodeError as error:
            return error

    def _load(self, decoded: Iterable[tuple[Record | EndReached, object]]) -> None:
        wanted: dict[int, set[str]] = defaultdict(set)
        for item, event in decoded:
            if isinstance(event, RoutedEvent | FeedbackEvent):
                key = (item.source.partition, event.query_id)
                if key not in self._pending.states and key not in self._pending.absent:
                    wanted[item.source.partition].add(event.query_id)
        for partition, query_ids in wanted.items():
            found = self._store.load(partition, sorted(query_ids))
            self._pending.states.update({(partition, query_id): state for query_id, state in found.items()})
            self._pending.absent.update((partition, query_id) for query_id in query_ids - found.keys())

    def _apply(self, pair: Pair, record: Record, event: RoutedEvent | FeedbackEvent | DecodeError | None) -> None:
        if event is None or isinstance(event, DecodeError):
            if event is not None:
                self._bury(pair, record, event)
            return
        arrived_ms = self._broker_time_ms(record)
        event, remarks = _dated(event, arrived_ms, by_broker=record.by_broker)
        key = (record.source.partition, event.query_id)
        state = self._pending.states.get(key, NOTHING_KNOWN)
        touched_ms = self._touched_ms(pair, record)
        if isinstance(event, RoutedEvent):
            joined = take_result(state, event, self._rules, from_ms(touched_ms))
        else:
            joined = take_feedback(state, event, from_ms(arrived_ms), self._rules)
        if joined.state is not state:
            self._pending.states[key] = joined.state
            self._pending.touched[key] = max(touched_ms, self._pending.touched.get(key, 0))
            self._judge(record.source.partition, state, joined.state)
        if not pair.is_live:
            return
        for note in (*remarks, *joined.notes):
            self._note(note)
        self._tell_labelers(state, joined.state)
        if isinstance(event, RoutedEvent):
            self._summarizer(event.workload).add(event)
            self._count("results", workload=event.workload)
        if joined.example is not None:
            example = joined.example
            self._pending.outputs.append(
                OutputRecord(self._topics.observations, example.workload.encode(), example.to_json())
            )
            self._count("examples", workload=example.workload, retracted=str(example.retracted).lower())

    def _judge(self, partition: int, before: JoinState, after: JoinState) -> None:
        for labeler, counts in judge(before, after, self._rules):
            assert after.routed is not None
            key = LabelerKey(partition, after.routed.workload, labeler)
            self._pending.judged[key] = add(self._pending.judged.get(key), counts)

    def _tell_labelers(self, before: JoinState, after: JoinState) -> None:
        topic = self._topics.label_requests
        if topic is None:
            return
        change = request_change(topic, before, after, self._limits.max_record_bytes)
        if change is None:
            return
        self._count("label_requests", workload=change.workload, outcome=change.outcome)
        if change.record is not None:
            self._pending.outputs.append(change.record)

    def _broker_time_ms(self, record: Record) -> int:
        return broker_time_ms(record.timestamp_ms, self._now_ms(), by_broker=record.by_broker)

    def _touched_ms(self, pair: Pair, record: Record) -> int:
        """Return as of when rows and label requests that this record changes are fresh; the store never goes back.

        A producer may stamp its record with any time, and a stamp of the past must not make a row old at once: beyond
        an hour back, what comes live counts as of now. A pair that catches up reads again what it took long ago, and
        only the stamp says when that was.
        """
        now_ms, arrived_ms = self._now_ms(), self._broker_time_ms(record)
        if pair.is_live and not record.by_broker and arrived_ms < now_ms - BEHIND_MS:
            return now_ms
        return min(arrived_ms, now_ms)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * _MILLISECONDS)

    def _bury(self, pair: Pair, record: Record, error: DecodeError) -> None:
        if not pair.is_live:
            return
        self._count("dead_letters", stage=STAGE, reason=error.reason)
        self._pending.outputs.append(
            dead_letter(
                self._topics.dead_letters,
                record,
                stage=STAGE,
                reason=error.reason,
                error=str(error),
                max_record_bytes=self._limits.max_record_bytes,
            )
        )

    def _summarizer(self, workload: str) -> Summarizer:
        if workload not in self._pending.summarizers:
            self._pending.summarizers[workload] = self._new_summarizer(workload)
        return self._pending.summarizers[workload]

    def _note(self, word: str) -> None:
        self._count("join_notes", note=word)

    # --- committing ---

    def _release(self) -> None:
        """Let pairs that have caught up go on, from exactly where the group stands."""
        ready = [pair for pair in self._pairs.values() if not pair.is_live and pair.has_caught_up]
        if not ready:
            return
        for pair in ready:
            pair.go_live()
        held_back = {s: o for pair in self._pairs.values() for s, o in pair.positions.items()}
        self._log.read_from(held_back)

    def _due_in_s(self) -> float:
        """Seconds until a commit is due: examples soon, traffic and bare offsets later."""
        if self._pending.records >= MAX_PENDING:
            return 0.0
        wait_s = self._limits.commit_interval_s if self._pending.outputs else TRAFFIC_INTERVAL_S
        return max(self._pending.since_s + min(wait_s, TRAFFIC_INTERVAL_S) - self._clock.monotonic(), 0.0)

    def _commit(self) -> None:
        live = [pair for pair in self._pairs.values() if pair.is_live]
        offsets = {
            source: offset
            for pair in live
            for source, offset in pair.positions.items()
            if offset != pair.committed.get(source)
        }
        # Traffic goes first: a label weighs by the traffic that its query was part of.
        records = [*self._summaries(), *self._pending.outputs]
        if offsets or records:
            self._transactions.commit(records, offsets, self._log.group())
        if not (offsets or self._pending.records):
            return
        reached = {source: offset for pair in self._pairs.values() for source, offset in pair.positions.items()}
        self._store.commit(self._pending.rows(), reached, self._pending.judged)
        for pair in live:
            pair.committed = dict(pair.positions)
        changed = len(self._pending.touched)
        self._pending = Pending()
        self._expire_rows(MIN_EXPIRED + 2 * changed)

    def _summaries(self) -> list[OutputRecord]:
        taken = [(workload, summarizer.take()) for workload, summarizer in sorted(self._pending.summarizers.items())]
        return [
            OutputRecord(self._topics.observations, workload.encode(), summary.to_json())
            for workload, summary in taken
            if summary is not None
        ]

    def _expire(self) -> None:
        # What is pending holds rows as they were loaded; none of them may go meanwhile.
        self.commit()
        self._pending = Pending()
        now_ms = self._now_ms()
        self._expire_rows(MIN_EXPIRED)
        self._store.expire_labelers(now_ms - int(self._limits.retention_s * _MILLISECONDS))
        try:
            self._expire_requests(now_ms - int(self._limits.request_retention_s * _MILLISECONDS))
        except Rewind:
            self._log.rewind()
        self._expiry_due_s = self._clock.monotonic() + EXPIRY_INTERVAL_S

    def _expire_rows(self, most: int) -> None:
        """Delete what is too old or too much; nothing may be pending, which holds rows as they were loaded."""
        before_ms = self._now_ms() - int(self._limits.retention_s * _MILLISECONDS)
        for kind, rows in self._store.expire(before_ms, most).items():
            if rows:
                self._count("rows_expired", rows, kind=kind)

    def _expire_requests(self, before_ms: int) -> None:
        """Ask nobody any more what is too old or too much; told first, forgotten then: telling it twice is no harm."""
        live = [partition for partition, pair in self._pairs.items() if pair.is_live]
        topic, most = self._topics.label_requests, self._limits.requests_max
        if topic is None:
            return
        while overdue := self._store.overdue_requests(live, before_ms, most):
            self._transactions.commit(closing_records(topic, overdue), {}, self._log.group())
            self._store.close_requests(overdue)
            for workload, expired in Counter(key.workload for key in overdue).items():
                self._count("label_requests", expired, workload=workload, outcome="expired")


def _dated(
    event: RoutedEvent | FeedbackEvent, arrived_ms: int, *, by_broker: bool
) -> tuple[RoutedEvent | FeedbackEvent, tuple[str, ...]]:
    """Return the event, dated no later than it arrived, and what is worth counting about its sender's clock."""
    if isinstance(event, FeedbackEvent):
        feedback = dated_feedback(event, arrived_ms)
        return feedback, () if feedback is event else ("clock_ahead",)
    routed = dated_result(event, arrived_ms)
    if routed is not event:
        return routed, ("clock_ahead",)
    # A producer's own stamp is as wrong as its date; only the broker's can tell.
    return routed, ("clock_behind",) if by_broker and is_behind(routed, arrived_ms) else ()
