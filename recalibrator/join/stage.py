"""The join's loop: it polls results and feedback, commits what follows from them, and expires what is old.

Each tick commits, first in Kafka the outputs with the input offsets, then in the store the rows with the same offsets.
A crash in between leaves the store behind the group: what lies between is read again with its outputs held back, so
that each output comes once. A failed transaction, a lost store and a partition that moved here are handled alike.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from recalibrator.errors import DiskFull, HomesChanged
from recalibrator.join.home_inputs import HomeInputs, QueryKey, Uncommitted
from recalibrator.join.joining import Arrived, Joining, add
from recalibrator.join.placement import home_of, noted_homes, placement_note
from recalibrator.join.ports import JoinStore, LabelerKey, WaitingLabels
from recalibrator.join.query_state import NOTHING_KNOWN
from recalibrator.join.recent_labels import RecentLabels
from recalibrator.stage import TURN_S, LabelFacts, NotCommitted, Stage, commit
from schemas.errors import DecodeError
from schemas.feedback import FeedbackEvent
from schemas.label_requested import REQUEST_RETENTION_S
from schemas.settings import Settings
from schemas.status import RESULT_DUE_S, LabelsWithoutResult
from ucci_runtime.broker.ports import GroupOffsets, GroupReader, TransactionSession
from ucci_runtime.broker.records import Count, EndReached, Input, Lag, OutputRecord, Record, next_offset
from ucci_runtime.clock import Clock

#: How long unlabelled traffic, and offsets alone, may wait for a commit.
TRAFFIC_INTERVAL_S = 1.0

EXPIRY_INTERVAL_S = 20.0

#: How often labels without a result are counted.
WAITING_INTERVAL_S = 5.0

#: Rows that a commit may delete at least, besides two for each that it stores: the bounds hold at any rate of results,
#: and a store that begins above them comes down in small steps.
MIN_EXPIRED = 5_000

#: Records taken since the last commit that make the next one due at once.
MAX_UNCOMMITTED = 20_000

_POLL_S = 0.1
_MILLISECONDS = 1_000


@dataclass(frozen=True, slots=True)
class JoinLimits:
    """The join's bounds."""

    #: How long an example may wait for a commit.
    commit_interval_s: float = 0.25
    #: How long a row that nothing touches is kept.
    retention_s: float = 14 * 24 * 3600.0
    #: How long people are asked for a query's label.
    request_retention_s: float = REQUEST_RETENTION_S
    #: Most open label requests of a workload.
    requests_max: int = 10_000


class _Read(NamedTuple):
    """What was read."""

    item: Record | EndReached
    #: The home for which it was read.
    reader: int
    #: None at an end.
    arrived: Arrived | None = None
    #: Of its query; None where it names none that can be read.
    home: int | None = None


class JoinStage(Stage):
    """The join; driven by one thread through :meth:`turn`."""

    def __init__(
        self,
        joining: Joining,
        limits: JoinLimits,
        *,
        log: GroupReader,
        transactions: TransactionSession,
        store: JoinStore,
        clock: Clock,
        count: Count,
    ) -> None:
        self._joining = joining
        self._limits = limits
        self._log = log
        self._transactions = transactions
        self._store = store
        self._clock = clock
        self._count = count
        self._homes = 0
        """Number of partitions of the repartition topic."""
        self._owned: dict[int, HomeInputs] = {}
        """What is read for each home that is owned."""
        self._uncommitted = Uncommitted()
        self._is_assigned = False
        self._recent_labels = RecentLabels()
        self._waiting: LabelsWithoutResult | None = None
        """Labels without a result, as last counted at the present homes."""
        self._waiting_due_s = -math.inf
        self._forwarded = Counter[str]()
        """Records sent on to their home by this process, by topic."""
        self._expiry_due_s = clock.monotonic() + EXPIRY_INTERVAL_S

    @property
    def is_ready(self) -> bool:
        """Whether partitions are assigned and all have caught up with the group."""
        return self._is_assigned and all(inputs.is_live for inputs in self._owned.values())

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far behind each input is."""
        return self._log.lag()

    def labels(self) -> LabelFacts:
        """Return what the labelers of the homes owned here have said, and what waits for its result."""
        return LabelFacts(self._store.labelers(self._owned), self._labels_without_result(), dict(self._forwarded))

    def gauges(self) -> Mapping[str, float]:
        """Return the number and size of the rows stored, of label requests open and of labels without a result."""
        size = self._store.size
        waiting = self._labels_without_result()
        waits_s = 0.0
        if waiting.oldest_at is not None:
            waits_s = max((self._clock.now() - waiting.oldest_at).total_seconds(), 0.0)
        return {
            "rows": float(size.rows),
            "row_bytes": float(size.bytes),
            "label_requests_open": float(sum(self._store.open_requests.values())),
            "labels_without_result": float(waiting.queries),
            "labels_without_result_seconds": waits_s,
        }

    def _labels_without_result(self) -> LabelsWithoutResult:
        """Return what waits for its result, as counted within the last seconds: millions of rows may wait."""
        now_s = self._clock.monotonic()
        if self._waiting is None or now_s >= self._waiting_due_s:
            self._waiting = self._count_labels_without_result()
            self._waiting_due_s = now_s + WAITING_INTERVAL_S
        return self._waiting

    def _count_labels_without_result(self) -> LabelsWithoutResult:
        now_ms = self._now_ms()
        since_ms = self._recent_labels.since_ms(now_ms)
        due_ms = now_ms - int(RESULT_DUE_S * _MILLISECONDS)
        waiting = self._store.labels_without_result(self._owned, since_ms, due_ms)
        return waiting.model_copy(update={"labels_last_hour": self._recent_labels.count(now_ms)})

    def start(self) -> None:
        """End what an earlier process left open, then join the group."""
        self._transactions.start()
        self._log.subscribe(self)

    def turn(self) -> None:
        """Take what has come and commit what is due; blocks up to 0.1 s, or for a transaction."""
        try:
            self._take(self._log.poll(min(self._due_in_s(), _POLL_S)))
            self._release()
            if self._due_in_s() <= 0.0:
                self.commit()
            if self._clock.monotonic() >= self._expiry_due_s:
                self._expire()
        except DiskFull:
            # The outputs are in the topics already: committed again, as at the close, they would be there twice.
            self.lost()
            raise

    def use(self, settings: Settings) -> None:
        """Join what comes from now on under these settings: labels by who is trusted now."""
        self._joining = replace(self._joining, workloads=settings.workloads)

    def commit(self) -> None:
        """Commit outputs and offsets in Kafka, then rows and offsets in the store."""
        with suppress(NotCommitted):
            self._commit()
            return
        # In no handler: see ucci_runtime.broker.errors.without_frames.
        self._uncommitted = Uncommitted()
        self._log.rewind()

    def close(self) -> None:
        """Commit the rest and leave."""
        self.commit()
        self._log.close()
        self._transactions.close()
        self._store.close()

    # --- called by the group reader, from within poll ---

    def assigned(self, committed: GroupOffsets) -> Mapping[Input, int]:
        """Take over these partitions: read from what is stored, hold outputs back up to what is committed."""
        self._uncommitted = Uncommitted()
        self._owned = {}
        # Labels of homes that have come or gone were counted elsewhere.
        self._recent_labels = RecentLabels()
        self._waiting = None
        if committed:
            self._homes = self._log.partition_count
            self._require_same_homes(committed)
        stored = self._store.offsets()
        for home in sorted({source.partition % self._homes for source in committed}):
            sources = [source for source in committed if source.partition % self._homes == home]
            positions = {source: stored.get(source, 0) for source in sources}
            # A group whose offsets were lost or set back is behind the store, whose outputs are committed all the same.
            limits = {source: max(next_offset(committed[source]), positions[source]) for source in sources}
            unforwarded = frozenset(
                source
                for source in sources
                if (former := committed[source]) is not None and noted_homes(former.metadata) is None
            )
            self._owned[home] = HomeInputs(positions, limits, self._note, unforwarded=unforwarded)
        self._is_assigned = True
        return self._positions()

    def _require_same_homes(self, committed: GroupOffsets) -> None:
        """Raise HomesChanged where the group has placed queries over another number of homes."""
        for commit_of_source in committed.values():
            noted = None if commit_of_source is None else noted_homes(commit_of_source.metadata)
            if noted not in (None, self._homes):
                raise HomesChanged(self._joining.topics.repartition, noted, self._homes)

    def revoked(self) -> None:
        """Commit what was taken while the group still accepts it from this member."""
        try:
            self._commit()
        except NotCommitted:
            # The next owner of the partitions reads them again.
            self._note("revoked_uncommitted")
        self.lost()

    def lost(self) -> None:
        """Forget what is not stored."""
        self._uncommitted = Uncommitted()
        self._owned = {}
        self._waiting = None
        self._is_assigned = False

    # --- taking ---

    def _take(self, items: Sequence[Record | EndReached]) -> None:
        if not self._owned:
            return
        read = [self._read(item) for item in items if item.source.partition % self._homes in self._owned]
        self._load(read)
        until_s = self._clock.monotonic() + TURN_S
        for number, one_read in enumerate(read):
            if number and self._clock.monotonic() >= until_s:
                self._log.read_from(self._positions())
                return
            item = one_read.item
            inputs = self._owned[one_read.reader]
            if isinstance(item, EndReached):
                if inputs.reach_end(item):
                    self._begin_tick()
            elif not inputs.admits(item):
                self._log.pause((item.source,))
            elif one_read.arrived is not None:
                self._take_record(inputs, one_read, one_read.arrived)

    def _take_record(self, inputs: HomeInputs, read: _Read, arrived: Arrived) -> None:
        """Join a record that is at home, forward another one, and set aside what cannot be read."""
        self._begin_tick()
        self._uncommitted.records += 1
        if read.home is None or isinstance(arrived.event, DecodeError):
            self._dead_letter(inputs, arrived)
        elif read.home == read.reader:
            self._join(inputs, (read.home, arrived.event.query_id), arrived)
        elif inputs.forwards(read.item.source):
            record, (name, labels) = self._joining.forward(arrived, read.home, is_counted=not inputs.is_live)
            self._uncommitted.outputs.append(record)
            self._count(name, 1.0, **labels)
            self._forwarded[arrived.placed.record.source.topic] += 1

    def _read(self, item: Record | EndReached) -> _Read:
        reader = item.source.partition % self._homes
        if isinstance(item, EndReached):
            return _Read(item, reader)
        arrived = self._joining.read(item)
        event = arrived.event
        home = None if isinstance(event, DecodeError) else home_of(event.query_id, self._homes)
        return _Read(item, reader, arrived, home)

    def _begin_tick(self) -> None:
        self._uncommitted.since_s = min(self._uncommitted.since_s, self._clock.monotonic())

    def _load(self, read: Iterable[_Read]) -> None:
        """Load the states of the queries that are at home."""
        wanted: dict[int, set[str]] = defaultdict(set)
        for _, reader, arrived, home in read:
            if home != reader or arrived is None or isinstance(arrived.event, DecodeError):
                continue
            query_id = arrived.event.query_id
            if (home, query_id) not in self._uncommitted.states:
                wanted[home].add(query_id)
        for home, query_ids in wanted.items():
            found = self._store.load(home, sorted(query_ids))
            self._uncommitted.states |= {(home, one): found.get(one, NOTHING_KNOWN) for one in query_ids}

    def _join(self, inputs: HomeInputs, key: QueryKey, arrived: Arrived) -> None:
        uncommitted = self._uncommitted
        before = uncommitted.states[key]
        found = self._joining.join(before, arrived, self._now_ms(), is_live=inputs.is_live)
        if found.state is not before:
            uncommitted.change(key, found.state, found.touched_ms)
            if inputs.is_live and isinstance(arrived.event, FeedbackEvent):
                self._recent_labels.add(found.touched_ms)
        for labeler, counts in found.agreement:
            assert found.state.routed is not None
            whose = LabelerKey(key[0], found.state.routed.workload, labeler)
            uncommitted.agreement[whose] = add(uncommitted.agreement.get(whose), counts)
        uncommitted.outputs += found.outputs
        if found.traffic is not None:
            uncommitted.count_traffic(found.traffic, self._joining.workloads[found.traffic.workload])
        for name, labels in found.counts:
            self._count(name, 1.0, **labels)

    def _dead_letter(self, inputs: HomeInputs, arrived: Arrived) -> None:
        if not inputs.is_live:
            return
        assert isinstance(arrived.event, DecodeError)
        error = arrived.event
        letter, (name, labels) = self._joining.dead_letter(arrived.placed.record, error.reason, str(error))
        self._uncommitted.outputs.append(letter)
        self._count(name, 1.0, **labels)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * _MILLISECONDS)

    def _note(self, word: str) -> None:
        self._count("join_notes", note=word)

    # --- committing ---

    def _release(self) -> None:
        """Let homes that have caught up go on, from exactly where the group stands."""
        ready = [one for one in self._owned.values() if not one.is_live and one.has_caught_up]
        for inputs in ready:
            inputs.go_live()
            if inputs.unforwarded:
                # Our note is committed at once, so that nothing of them is forwarded again.
                self._begin_tick()
        if ready:
            self._log.read_from(self._positions())

    def _positions(self) -> dict[Input, int]:
        return {source: at for one in self._owned.values() for source, at in one.positions.items()}

    def _due_in_s(self) -> float:
        """Return seconds until a commit is due: examples soon, traffic and bare offsets later."""
        if self._uncommitted.records >= MAX_UNCOMMITTED:
            return 0.0
        wait_s = self._limits.commit_interval_s if self._uncommitted.outputs else TRAFFIC_INTERVAL_S
        return max(self._uncommitted.since_s + min(wait_s, TRAFFIC_INTERVAL_S) - self._clock.monotonic(), 0.0)

    def _commit(self) -> None:
        live = [inputs for inputs in self._owned.values() if inputs.is_live]
        offsets = {
            source: offset
            for inputs in live
            for source, offset in inputs.positions.items()
            if offset != inputs.committed.get(source)
        }
        # Traffic goes first: a label weighs by the traffic that its query was part of.
        records = [*self._joining.summary_records(self._uncommitted.summaries()), *self._uncommitted.outputs]
        if offsets or records:
            commit(self._transactions, records, offsets, self._log.group(), placement_note(self._homes))
        if not (offsets or self._uncommitted.records):
            return
        self._store.commit(self._uncommitted.rows(), self._positions(), self._uncommitted.agreement)
        for inputs in live:
            inputs.committed = dict(inputs.positions)
        changed = len(self._uncommitted.touched)
        self._uncommitted = Uncommitted()
        self._expire_rows(MIN_EXPIRED + 2 * changed)

    # --- expiring ---

    def _expire(self) -> None:
        # What is uncommitted holds rows as they were loaded; none of them may go meanwhile.
        self.commit()
        self._uncommitted = Uncommitted()
        now_ms = self._now_ms()
        self._store.expire_labelers(now_ms - int(self._limits.retention_s * _MILLISECONDS))
        self._expiry_due_s = self._clock.monotonic() + EXPIRY_INTERVAL_S
        with suppress(NotCommitted):
            self._expire_rows(MIN_EXPIRED)
            self._expire_requests(now_ms - int(self._limits.request_retention_s * _MILLISECONDS))
            return
        self._log.rewind()

    def _expire_rows(self, most: int) -> None:
        """Delete what is too old or too much; nothing may be uncommitted, which holds rows as they were loaded.

        Labels without a result become dead letters first. A crash in between writes such a letter twice, which is the
        lesser harm: nothing counts letters, and a label that vanishes is found by nobody. Raises NotCommitted.
        """
        before_ms = self._now_ms() - int(self._limits.retention_s * _MILLISECONDS)
        catching_up = [home for home, inputs in self._owned.items() if not inputs.is_live]
        expired = self._store.expire(before_ms, most, spared=catching_up, set_aside=self._set_labels_aside)
        for kind, rows in expired.items():
            if rows:
                self._count("rows_expired", rows, kind=kind)

    def _set_labels_aside(self, labels: Sequence[WaitingLabels]) -> None:
        """Write the dead letters of labels without a result; those of homes that moved away are their owners'."""
        letters = [
            letter
            for label in labels
            if label.home in self._owned
            for letter in self._joining.labels_without_result(label.state, label.query_id)
        ]
        if letters:
            commit(self._transactions, [record for record, _ in letters], {}, self._log.group())
        for _, (name, counted) in letters:
            self._count(name, 1.0, **counted)

    def _expire_requests(self, before_ms: int) -> None:
        """End label requests that are too old or too many: first in the topic, then here; ending one twice is safe."""
        live = [home for home, inputs in self._owned.items() if inputs.is_live]
        topic, most = self._joining.topics.label_requests, self._limits.requests_max
        if topic is None:
            return
        while overdue := self._store.overdue_requests(live, before_ms, most):
            ended = [OutputRecord(topic, key.query_id.encode(), None) for key in overdue]
            commit(self._transactions, ended, {}, self._log.group())
            self._store.close_requests(overdue)
            for workload, expired in Counter(key.workload for key in overdue).items():
                self._count("label_requests", expired, workload=workload, outcome="expired")
