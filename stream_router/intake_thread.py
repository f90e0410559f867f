"""The intake's thread takes queries, one assignment after the other, never more than there are free slots.

The thread never stops polling, full or not: a member that is not polled never rejoins after a broker restart. Nothing
is taken before the ledger knows what the group has committed for the partition, and nothing is committed here.

Nothing half-valid gets through: each record is a query of a configured workload, or is refused with a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from threading import Event, Thread

from schemas.errors import DecodeError
from schemas.json_bytes import unframed
from schemas.routed import QueryEvent
from stream_router.commit.commit_thread import CommitThread
from stream_router.commit.done_offsets import committed_offsets
from stream_router.commit.ledger import RecordId
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.ports import MAX_POLLED, GroupOffsets, GroupReader
from ucci_runtime.broker.records import EndReached, Input, Lag, Record, next_offset

POLL_S = 0.1
#: How long a full router waits for slots before it pauses its partitions and polls on.
SLOT_WAIT_S = 0.25

#: How long queries in flight may keep partitions that another router is to have. Nobody takes their queries meanwhile,
#: and two such waits may follow each other; what has no answer by then is asked again by the next owner.
HANDOVER_S = 0.5

REVOKE_COMMIT_S = 6.0
_LAG_INTERVAL_S = 1.0
_NAMES_SHOWN = 10
_CHARS_SHOWN = 60


class IntakeThread(Thread):
    """The thread that owns the group's reader.

    ``deliver``: has records answered; ``give_up``: has no longer answered what is another instance's now. Neither may
    block.
    """

    def __init__(
        self,
        reader: GroupReader,
        ledger: SharedLedger,
        committer: CommitThread,
        *,
        deliver: Callable[[list[Record]], object],
        give_up: Callable[[Collection[RecordId]], object],
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name="intake", daemon=True)
        self.reader = reader
        self._ledger = ledger
        self._committer = committer
        self._deliver, self._give_up = deliver, give_up
        self._on_failure = on_failure
        self._metrics = metrics
        self._taking = True
        self._closing = Event()
        self._assignment: frozenset[Input] = frozenset()
        self._paused: frozenset[Input] = frozenset()
        self._lag_due_s = 0.0
        self.lag: Mapping[int, Lag] = {}
        self.not_taken = 0

    def stop_taking(self) -> None:
        """Take no further queries; keep the membership, so that what is in flight can still be committed."""
        self._taking = False

    def close(self) -> None:
        """Leave the loop and close the reader; :meth:`join` waits for it."""
        self._taking = False
        self._closing.set()

    def run(self) -> None:
        """Take queries until closed. An error that ends the thread is handed on."""
        try:
            self.reader.subscribe(self)
            while not self._closing.is_set():
                self.turn()
            self.reader.close()
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            self._on_failure(error)

    def turn(self) -> None:
        """Take what has come, as far as there are free slots; blocks for little."""
        free = self._ledger.await_slots(SLOT_WAIT_S) if self._taking else 0
        congested = self._ledger.congested
        self._pause(frozenset(s for s in self._assignment if not free or s.partition in congested))
        items = self.reader.poll(POLL_S, min(max(free, 1), MAX_POLLED))
        group = self.reader.group()
        records = [item for item in items if isinstance(item, Record)]
        if records:
            self._hand_on(records, group)
        ends = {item.source.partition: item.offset for item in items if isinstance(item, EndReached)}
        if self._assignment and (ends or not records):
            self._ledger.advance(ends, group)
        self._measure_lag()

    # --- called by the group reader, from within poll ---

    def assigned(self, committed: GroupOffsets) -> Mapping[Input, int]:
        """Take over these partitions, and give up queries in flight that are another instance's now."""
        found = committed_offsets(committed, self._committer.note_foreign)
        given_up = self._ledger.assigned(found, self.reader.group())
        if given_up:
            self._metrics.count("given_up", len(given_up))
            self._give_up(given_up)
        self._assignment, self._paused = frozenset(committed), frozenset()
        return {source: next_offset(commit) for source, commit in committed.items()}

    def revoked(self) -> None:
        """Commit what is finished while the group still takes it from us; one deadline for all of it."""
        if self._assignment:
            deadline = time.monotonic() + HANDOVER_S + REVOKE_COMMIT_S
            if self._taking:
                self._ledger.await_idle(HANDOVER_S)
            self._committer.flush(max(deadline - time.monotonic(), 0.0))
        self.lost()

    def lost(self) -> None:
        """Let go of all partitions."""
        self._ledger.released()
        self._assignment = self._paused = frozenset()
        self.lag, self.not_taken = {}, 0

    def _hand_on(self, records: list[Record], group: object) -> None:
        fresh = self._ledger.delivered(records, group)
        self._metrics.count("queries", len(fresh))
        if len(fresh) < len(records):
            self._metrics.count("skipped", len(records) - len(fresh))
        if fresh:
            self._deliver(fresh)

    def _pause(self, wanted: frozenset[Input]) -> None:
        if resumed := self._paused - wanted:
            self.reader.resume(resumed)
        if paused := wanted - self._paused:
            self.reader.pause(paused)
        self._paused = wanted

    def _measure_lag(self) -> None:
        """Measure how far the commits are behind, and the deliveries: a straggler holds back the commits alone."""
        now_s = time.monotonic()
        if now_s < self._lag_due_s:
            return
        self._lag_due_s = now_s + _LAG_INTERVAL_S
        found = {source: self._ledger.committable(source.partition) for source in self._assignment}
        behind = self.reader.lag({source: offset for source, offset in found.items() if offset is not None})
        self.lag = {source.partition: lag for source, lag in behind.items()}
        self.not_taken = sum(lag.records for lag in self.reader.lag().values())


def decode_query(
    value: bytes | None, workloads: Collection[str], default_workload: str | None = None
) -> tuple[QueryEvent, str]:
    """Read one record.

    ``default_workload``: one of them, for queries that name none; the only one needs no default. Returns the query and
    its workload. Raises DecodeError: reason ``tombstone``, ``empty``, ``too_large``, ``not_utf8``, ``not_json``,
    ``not_an_object``, ``missing_field``, ``invalid_field``, ``duplicate_key``, ``missing_workload`` or
    ``unknown_workload``.
    """
    if value is None:
        raise DecodeError("tombstone", "the record has no value: send a QueryEvent as JSON")
    if not value:
        raise DecodeError("empty", "the value is empty: send a QueryEvent as JSON")
    document = unframed(value)
    try:
        query = QueryEvent.from_json(document)
    except DecodeError as error:
        raise _named(document, error) from None
    return query, _workload(query.workload or default_workload, workloads)


def _named(value: bytes, error: DecodeError) -> DecodeError:
    """Distinguish the faults that the parser reports under one reason."""
    if error.reason == "not_json":
        try:
            value.decode()
        except UnicodeDecodeError as undecodable:
            return DecodeError("not_utf8", f"not UTF-8: {undecodable.reason} at byte {undecodable.start}")
    if error.reason == "invalid_field" and error.field is None:
        return DecodeError("not_an_object", str(error))
    return error


def _workload(name: str | None, workloads: Collection[str]) -> str:
    if name is not None and name in workloads:
        return name
    if name is None and len(workloads) == 1:
        return next(iter(workloads))
    known = ", ".join(sorted(workloads)[:_NAMES_SHOWN])
    if name is None:
        problem = f"workload: is missing and several are configured: {known}; name one, or set default_workload"
        raise DecodeError("missing_workload", problem, "workload")
    problem = f"workload: {name[:_CHARS_SHOWN]!r} is not configured; known: {known}"
    raise DecodeError("unknown_workload", problem, "workload")
