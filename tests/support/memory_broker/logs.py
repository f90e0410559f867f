"""The logs of the broker in memory: partitions with Kafka's offsets, isolation, compaction and open transactions.

A transaction's end takes an offset of its own in each partition that it wrote to, as Kafka's markers do. Readers of
what is committed never see beyond the first record of an open transaction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from ucci_runtime.broker.records import Input, OffsetCommit, Record

#: Longest note beside an offset, by default: Kafka's ``offset.metadata.max.bytes`` is 4,096, which is refused.
MAX_METADATA_CHARS = 4_095


class TransactionEnd(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False, slots=True)
class OpenTransaction:
    """One transaction of a transactional id, until long after its end."""

    transactional_id: str
    opened_at_s: float
    end: TransactionEnd = TransactionEnd.OPEN
    #: Whose offsets it takes; empty until that was asked for.
    group: str = ""
    #: Those that it takes records for.
    partitions: set[Input] = field(default_factory=set)

    offsets: dict[Input, OffsetCommit] = field(default_factory=dict)
    logs: dict[Input, PartitionLog] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    partitions: int = 1
    #: Whether only the last record of a key must stay; every record then needs a key.
    compact: bool = False
    #: Whether the broker dates the records (``LogAppendTime``).
    by_broker: bool = False
    #: Largest record that it takes.
    max_record_bytes: int = 1_000_000


class PartitionLog:
    def __init__(self, source: Input) -> None:
        self.source = source
        self.start = 0
        self.end = 0
        self._offsets: list[int] = []
        self._records: list[Record] = []
        self._writers: list[OpenTransaction | None] = []
        self._open: dict[OpenTransaction, int] = {}

    @property
    def stable_end(self) -> int:
        """The offset up to which every transaction has ended."""
        return min(self._open.values(), default=self.end)

    def append(self, record: Record, writer: OpenTransaction | None = None) -> None:
        """Append a record at the end; its offset must be :attr:`end`."""
        if writer is not None:
            self._open.setdefault(writer, self.end)
            writer.logs[self.source] = self
        self._offsets.append(self.end)
        self._records.append(record)
        self._writers.append(writer)
        self.end += 1

    def mark(self, writer: OpenTransaction | None = None) -> None:
        """Append the end of a transaction: an offset without a record."""
        if writer is not None:
            self._open.pop(writer, None)
        self.end += 1

    def committed_from(self, position: int, most: int) -> tuple[list[Record], int]:
        """Return up to ``most`` committed records from a position on, and the position after them.

        The position after them is the stable end where nothing more is to be read.
        """
        end = self.stable_end
        found: list[Record] = []
        for index in range(bisect_left(self._offsets, position), bisect_left(self._offsets, end)):
            if self._is_committed(index):
                found.append(self._records[index])
                if len(found) == most:
                    return found, self._offsets[index] + 1
        return found, max(end, position)

    def compact(self) -> None:
        """Keep the last committed record of each key; the log's last record always stays, as in an active segment."""
        stable, count = bisect_left(self._offsets, self.stable_end), len(self._records)
        last = {self._records[index].key: index for index in range(stable) if self._is_committed(index)}
        self._keep(sorted({*last.values(), *range(stable, count), *range(count)[-1:]}))

    def cut(self, before: int) -> None:
        self.start = max(self.start, min(before, self.end))
        self._keep(range(bisect_left(self._offsets, self.start), len(self._offsets)))

    def _is_committed(self, index: int) -> bool:
        writer = self._writers[index]
        return writer is None or writer.end is TransactionEnd.COMMITTED

    def _keep(self, kept: Sequence[int]) -> None:
        self._offsets = [self._offsets[index] for index in kept]
        self._records = [self._records[index] for index in kept]
        self._writers = [self._writers[index] for index in kept]
