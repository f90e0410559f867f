"""Records as they come from a topic and go to one, and what is counted on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

Header = tuple[str, bytes | None]

# Varints, attributes and the batch's own frame, counted generously; a header costs at most 10 bytes of lengths.
_RECORD_OVERHEAD_BYTES = 512
_HEADER_OVERHEAD_BYTES = 10


class Input(NamedTuple):
    """One partition of an input topic."""

    topic: str
    partition: int


class OffsetCommit(NamedTuple):
    """What a group commits for one partition: the next offset to read, and what it notes beside it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One record to produce."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

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
        ...
