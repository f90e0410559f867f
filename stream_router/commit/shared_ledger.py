"""The ledger that three threads share: intake delivers, the loop finishes, the transaction thread takes.

This is the only lock between them, and it is held for bookkeeping alone, never over a call to the broker. With each
batch goes the group's metadata as it was when the batch was taken: a batch of an older generation is refused by the
coordinator rather than committed under the newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Condition, Lock
from typing import NamedTuple

from stream_router.commit.done_offsets import MAX_METADATA_CHARS, CommittedOffsets
from stream_router.commit.ledger import CommitBatch, Ledger, Load, RecordId
from stream_router.commit.outcome import Outcome
from ucci_runtime.broker.records import Record

#: Answers held while they cannot be committed; intake stops above it.
MAX_UNCOMMITTED_BYTES = 64 * 1024 * 1024

_MIN_UNCOMMITTED = 10_000
_MANY_SHARE = 4
_MANY_WAIT_S = 0.02


class Taken(NamedTuple):
    """A batch taken from the ledger, and the group metadata to commit it under: an object of the client library."""

    batch: CommitBatch
    group: object


class SharedLedger:
    """A :class:`Ledger` behind one lock, and the waits of those who depend on it.

    ``max_in_flight``: most queries asked of the models at once. An attribute that may be set from any thread: queries
    in flight beyond it are answered, and it holds from the next one on.
    """

    def __init__(self, max_in_flight: int) -> None:
        self._ledger = Ledger()
        self.max_in_flight = max_in_flight
        self._group: object = None
        #: Whether the group has given this instance its partitions (there may be none).
        self.is_assigned = False
        #: How many slots the consumer's thread waits for, or waited for last.
        self._awaited_slots = 1
        self._lock = Lock()
        self._slot_freed = Condition(self._lock)
        self._idle = Condition(self._lock)

    # --- called by the consumer's thread ---

    def assigned(self, assignment: Mapping[int, CommittedOffsets], group: object) -> tuple[RecordId, ...]:
        """Replace the assignment; return the queries in flight to give up."""
        with self._lock:
            self._group, self.is_assigned = group, True
            return self._ledger.assigned(assignment)

    def released(self) -> None:
        """Note that nothing is ours until the next assignment."""
        with self._lock:
            self.is_assigned = False
            self._ledger.released()

    def delivered(self, records: Iterable[Record], group: object) -> list[Record]:
        """Note deliveries; return those to ask the models about."""
        with self._lock:
            self._group = group
            return [record for record in records if self._ledger.delivered(record.source.partition, record.offset)]

    def advance(self, positions: Mapping[int, int], group: object) -> None:
        """Note the consumer's positions."""
        with self._lock:
            self._group = group
            self._ledger.advance(positions)

    def await_slots(self, timeout_s: float) -> int:
        """Return how many queries may be taken on; blocks up to ``timeout_s`` for the first slot.

        A short wait for a quarter of the slots keeps a full router from taking queries on one by one.
        """
        with self._lock:
            many = max(1, self.max_in_flight // _MANY_SHARE)
            self._wait_for_slots(many, min(timeout_s, _MANY_WAIT_S))
            self._wait_for_slots(1, timeout_s)
            return self._free()

    def await_idle(self, timeout_s: float) -> bool:
        """Block until no query is in flight; False when the time is over first."""
        with self._lock:
            return self._idle.wait_for(lambda: self._ledger.in_flight == 0, timeout_s)

    @property
    def congested(self) -> frozenset[int]:
        """Partitions to be consumed no further for now."""
        return self._ledger.congested

    def committable(self, partition: int) -> int | None:
        """Return the offset of the partition's last commit."""
        with self._lock:
            return self._ledger.committable(partition)

    # --- called by the loop ---

    def finished(self, outcome: Outcome) -> bool:
        """Note a query's outcome; False when it has been given up."""
        with self._lock:
            kept = self._ledger.finished(outcome)
            self._wake()
            return kept

    # --- called by the transaction's thread ---

    def take(self, metadata_chars: int = MAX_METADATA_CHARS) -> Taken | None:
        """Take what one transaction can commit now; see :meth:`Ledger.take`."""
        with self._lock:
            batch = self._ledger.take(metadata_chars)
            return None if batch is None else Taken(batch, self._group)

    def ended(self, batch: CommitBatch, group: Mapping[int, CommittedOffsets] | None = None) -> None:
        """Note that a batch is committed, or what the group's offsets say of it: see :meth:`Ledger.settled`."""
        with self._lock:
            if group is None:
                self._ledger.committed(batch)
            else:
                self._ledger.settled(batch, group)
            self._wake()

    # --- called by anyone ---

    def load(self) -> Load:
        """Return how much is held."""
        with self._lock:
            return self._ledger.load()

    def _wait_for_slots(self, count: int, timeout_s: float) -> None:
        self._awaited_slots = count
        self._slot_freed.wait_for(lambda: self._free() >= count, timeout_s)

    def _free(self) -> int:
        ledger, most = self._ledger, self.max_in_flight
        if ledger.uncommitted_bytes >= MAX_UNCOMMITTED_BYTES:
            return 0
        return max(min(most - ledger.in_flight, max(_MIN_UNCOMMITTED, 4 * most) - ledger.uncommitted), 0)

    def _wake(self) -> None:
        """Wake those who wait for what has changed."""
        # A thread that is woken takes the interpreter from the loop, so that it is left alone until it can go on.
        if self._free() >= self._awaited_slots:
            self._slot_freed.notify()
        if self._ledger.in_flight == 0:
            self._idle.notify_all()
