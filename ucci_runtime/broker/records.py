"""Records as they come from a topic and go to one, whichever broker carries them, and what is counted on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from schemas.errors import DecodeError
from schemas.event import Event

Header = tuple[str, bytes | None]

# Varints, attributes and the batch's own frame, counted generously; a header costs at most 10 bytes of lengths.
_RECORD_OVERHEAD_BYTES = 512
_HEADER_OVERHEAD_BYTES = 10


class Input(NamedTuple):
    """One partition of an input topic."""

    topic: str
    partition: int


#: A partition and an offset in it.
Place = tuple[Input, int]


class OffsetCommit(NamedTuple):
    """What a group commits for one partition: the next offset to read, and what it notes beside it."""

    offset: int
    metadata: str = ""


class Record(NamedTuple):
    """One record as the broker delivered it."""

    source: Input
    offset: int
    key: bytes | None
    value: bytes | None
    #: 0 where there is none.
    timestamp_ms: int = 0

    headers: tuple[Header, ...] = ()
    #: Whether the broker dated it (``LogAppendTime``), rather than its producer.
    by_broker: bool = False
    #: Why its headers cannot be read; ``headers`` is empty then.
    headers_fault: str | None = None


Read = TypeVar("Read", bound=Event)


def event_of(record: Record, kind: type[Read]) -> Read | None:
    """Return a record's event; None where it has none, or none that can be read: services have counted that."""
    try:
        return None if record.value is None else kind.from_record(record.value)
    except DecodeError:
        return None


class EndReached(NamedTuple):
    """The reader stands at the end of one partition."""

    source: Input
    offset: int


class Lag(NamedTuple):
    """How far a reader is behind the end of one partition."""

    #: In offsets.
    records: int
    #: Age of the newest record taken, by the clocks of those who wrote it; 0 at the end, None before the first.
    seconds: float | None


def next_offset(found: OffsetCommit | None) -> int:
    """Return the offset that a group goes on from: 0 where it has committed nothing."""
    return 0 if found is None else found.offset


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One record to produce."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    #: Given the largest size that the topics take, returns what is written where this record is larger.
    instead: Callable[[int], OutputRecord] | None = field(default=None, compare=False, repr=False)
    #: The partition to write to; None leaves it to the client's partitioner, by the key.
    partition: int | None = None

    @property
    def size_bytes(self) -> int:
        """Upper bound of its size on the wire."""
        if not self.headers:
            return len(self.key or b"") + len(self.value or b"") + _RECORD_OVERHEAD_BYTES
        headers = sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + _RECORD_OVERHEAD_BYTES


class Count(Protocol):
    """Counts one thing by name and label; a metric."""

    def __call__(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a count, or observe a size or duration."""
