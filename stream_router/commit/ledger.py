"""The whole assignment's bookkeeping: which queries are asked, answered, in a transaction, committed.

From assignments, deliveries, answers and the ends of transactions, the ledger derives the batches to commit and the
queries to give up. Every delivered offset is in exactly one batch that is committed, and in none before its answer is
there.

An entry's life::

    delivered ─► IN_FLIGHT ─finished─► FINISHED ─take─► TAKEN ─committed─► gone
                                          ▲───────aborted──┘

Entries outlive their partition's assignment until the next one: an instance that gets the partition back asks no model
twice, and one that does not drops them. A partition that is not assigned is in no batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from stream_router.commit.done_offsets import MAX_METADATA_CHARS, CommittedOffsets, CompletionTracker, encode
from stream_router.commit.outcome import Outcome
from ucci_runtime.broker.records import OffsetCommit


class RecordId(NamedTuple):
    """Where an input record stands."""

    partition: int
    offset: int


class Load(NamedTuple):
    """How much the router holds now."""

    #: Queries being answered.
    in_flight: int
    #: Queries answered and not committed.
    uncommitted: int

    @property
    def held(self) -> int:
        """Queries that are taken and not committed."""
        return self.in_flight + self.uncommitted


class EntryState(Enum):
    """Where an entry is in its life."""

    IN_FLIGHT = "in_flight"
    FINISHED = "finished"
    TAKEN = "taken"


@dataclass(slots=True)
class _Entry:
    state: EntryState = EntryState.IN_FLIGHT
    outcome: Outcome | None = None
    size_bytes: int = 0


class CommitBatch(NamedTuple):
    """What one transaction commits."""

    #: The input records whose results it holds.
    ids: tuple[RecordId, ...]
    #: Parallel to ``ids``.
    outcomes: tuple[Outcome, ...]

    offsets: Mapping[int, OffsetCommit]


class Ledger:
    """Bookkeeping of all partitions of one topic that this instance owns, or has just lost; see :class:`Load`."""

    def __init__(self) -> None:
        self._trackers: dict[int, CompletionTracker] = {}
        self._entries: dict[int, dict[int, _Entry]] = {}
        self._finished: dict[int, dict[int, _Entry]] = {}
        self._last_commit: dict[int, OffsetCommit] = {}
        #: Partitions whose done offsets no longer fit the commit metadata: to be consumed no further until they do.
        self.congested: frozenset[int] = frozenset()
        self.in_flight = 0
        self.uncommitted = 0
        #: Bytes held by the answers that are not committed.
        self.uncommitted_bytes = 0

    def load(self) -> Load:
        """Return how much is held now."""
        return Load(self.in_flight, self.uncommitted)

    def committable(self, partition: int) -> int | None:
        """Return the next offset that the partition's last commit asks for, None before any."""
        last = self._last_commit.get(partition)
        return None if last is None else last.offset

    def assigned(self, assignment: Mapping[int, CommittedOffsets]) -> tuple[RecordId, ...]:
        """Replace the assignment.

        ``assignment``: all partitions owned from now on, with what the group has committed for each. Returns queries in
        flight that are no longer ours, or that another instance has finished: give them up.
        """
        elsewhere = [
            RecordId(partition, offset)
            for partition, entries in self._entries.items()
            for offset in entries
            if partition not in assignment or assignment[partition].covers(offset)
        ]
        given_up = [record_id for record_id in elsewhere if self._drop(*record_id).state is EntryState.IN_FLIGHT]
        self._trackers = {partition: CompletionTracker(*committed) for partition, committed in assignment.items()}
        self._last_commit = {
            partition: OffsetCommit(committed.offset, encode(committed.offset, committed.done))
            for partition, committed in assignment.items()
            if committed.offset is not None
        }
        self.congested = frozenset()
        return tuple(given_up)

    def released(self) -> None:
        """Note that no partition is ours until the next assignment; entries stay, in case it comes back."""
        self._trackers = {}
        self._last_commit = {}
        self.congested = frozenset()

    def delivered(self, partition: int, offset: int) -> bool:
        """Note a delivery.

        Returns whether to ask the models; False when it is committed already, or known from before a rebalance. Raises
        OffsetsWentBack; see :meth:`CompletionTracker.deliver`. Raises KeyError when the partition is not assigned.
        """
        if not self._trackers[partition].deliver(offset):
            return False
        entries = self._entries.setdefault(partition, {})
        if offset in entries:
            return False
        entries[offset] = _Entry()
        self.in_flight += 1
        return True

    def advance(self, positions: Mapping[int, int]) -> None:
        """Note the consumer's positions: everything below has been delivered."""
        for partition, position in positions.items():
            if partition in self._trackers:
                self._trackers[partition].advance(position)

    def finished(self, outcome: Outcome) -> bool:
        """Note a query's outcome. False when it was given up meanwhile: the outcome is dropped."""
        partition, offset = outcome.source.source.partition, outcome.source.offset
        entry = self._entries.get(partition, {}).get(offset)
        if entry is None or entry.state is not EntryState.IN_FLIGHT:
            return False
        entry.state, entry.outcome, entry.size_bytes = EntryState.FINISHED, outcome, outcome.size_bytes
        self._finished.setdefault(partition, {})[offset] = entry
        self.in_flight -= 1
        self.uncommitted += 1
        self.uncommitted_bytes += entry.size_bytes
        return True

    def take(self, metadata_chars: int = MAX_METADATA_CHARS) -> CommitBatch | None:
        """Take everything that one transaction can commit now; None when there is nothing.

        A result whose offset cannot be expressed in the commit metadata stays behind, and its partition is congested.
        The caller answers for the batch with :meth:`committed` or :meth:`settled`. ``metadata_chars``: longest commit
        metadata that the broker takes; the less it is, the sooner a slow query holds up others.
        """
        ids: list[RecordId] = []
        outcomes: list[Outcome] = []
        offsets: dict[int, OffsetCommit] = {}
        congested = set()
        for partition, frontier in self._trackers.items():
            ready = self._ready(partition, frontier)
            done, commit = _expressible(frontier, ready, metadata_chars)
            if len(done) < len(ready):
                congested.add(partition)
            if commit is None or (not done and self._last_commit.get(partition, commit) == commit):
                continue
            offsets[partition] = commit
            for offset in done:
                entry = self._finished[partition].pop(offset)
                entry.state = EntryState.TAKEN
                ids.append(RecordId(partition, offset))
                assert entry.outcome is not None
                outcomes.append(entry.outcome)
        self.congested = frozenset(congested)
        return CommitBatch(tuple(ids), tuple(outcomes), offsets) if offsets else None

    def committed(self, batch: CommitBatch) -> None:
        """Note that the batch's transaction is committed."""
        for record_id in batch.ids:
            self._end(record_id, is_committed=True)
        for partition, commit in batch.offsets.items():
            if partition in self._trackers:
                self._last_commit[partition] = commit

    def settled(self, batch: CommitBatch, group: Mapping[int, CommittedOffsets]) -> None:
        """Find out from the group's committed offsets how a batch ended whose transaction's end was not seen.

        What is not committed goes into the next batch. ``group``: read after the transaction came to its end;
        partitions that are missing count as not committed, so that after an abort it is empty.
        """
        nothing = CommittedOffsets(None)
        for record_id in batch.ids:
            self._end(record_id, is_committed=group.get(record_id.partition, nothing).covers(record_id.offset))

    def _ready(self, partition: int, frontier: CompletionTracker) -> list[int]:
        """Finished offsets that this assignment has delivered, increasing; those it has passed over are dropped."""
        ready = []
        for offset in sorted(self._finished.get(partition, ())):
            if frontier.is_unfinished(offset):
                ready.append(offset)
            elif frontier.position is not None and offset < frontier.position:
                self._drop(partition, offset)
        return ready

    def _end(self, record_id: RecordId, *, is_committed: bool) -> None:
        partition, offset = record_id
        entry = self._entries.get(partition, {}).get(offset)
        if entry is None or entry.state is not EntryState.TAKEN:
            return
        if not is_committed:
            entry.state = EntryState.FINISHED
            self._finished.setdefault(partition, {})[offset] = entry
            return
        self._drop(partition, offset)
        frontier = self._trackers.get(partition)
        if frontier is not None and frontier.is_unfinished(offset):
            frontier.done(offset)

    def _drop(self, partition: int, offset: int) -> _Entry:
        entry = self._entries[partition].pop(offset)
        self._finished.get(partition, {}).pop(offset, None)
        if entry.state is EntryState.IN_FLIGHT:
            self.in_flight -= 1
        else:
            self.uncommitted -= 1
            self.uncommitted_bytes -= entry.size_bytes
        return entry


def _expressible(
    frontier: CompletionTracker, ready: list[int], metadata_chars: int
) -> tuple[list[int], OffsetCommit | None]:
    """Return the longest halving prefix of ``ready`` whose commit fits the metadata, and that commit."""
    done = ready
    while True:
        found = frontier.commit(also_done=frozenset(done))
        commit = None if found is None else OffsetCommit(found[0], encode(*found))
        if commit is None or len(commit.metadata) <= metadata_chars:
            return done, commit
        if not done:
            return [], None
        done = done[: len(done) // 2]
