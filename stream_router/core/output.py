"""What the router writes for one input record: a result, or a dead letter with the original bytes.

A routed event, or an input record and what is wrong with it, flow in; a record that the producer can take flows out.
A record never vanishes because it is large: a dead letter that does not fit is cut, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from schemas.routed import RoutedEvent
from schemas.topics import (
    DLQ_ERROR,
    DLQ_OFFSET,
    DLQ_PARTITION,
    DLQ_REASON,
    DLQ_STAGE,
    DLQ_TOPIC,
    DLQ_TRUNCATED,
)

STAGE = "route"
_DLQ_PREFIX = "dlq."
_MAX_ERROR_CHARS = 1_000
_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})
# Varints, attributes and the batch's own frame, counted generously; a header costs at most 10 bytes of lengths.
_RECORD_OVERHEAD_BYTES = 256
_HEADER_OVERHEAD_BYTES = 10

Header = tuple[str, bytes | None]


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


@dataclass(frozen=True, slots=True)
class InputRecord:
    """One record of the queries topic, as the broker delivered it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Outcome(NamedTuple):
    """What became of one input record: one output record, a result or a dead letter.

    ``labels`` are what results are counted by: workload, answered_by, reason of the decision.
    """

    source: InputRecord
    record: OutputRecord
    labels: tuple[str, str, str] = ("", "", "")

    @property
    def size_bytes(self) -> int:
        """Upper bound of the memory that its bytes hold."""
        return self.record.size_bytes + len(self.source.value or b"")


def result(topic: str, routed: RoutedEvent, source: InputRecord) -> OutputRecord:
    """Return the result's record: keyed by query_id, the query's trace context handed through."""
    trace = tuple(header for header in source.headers if header[0] in _TRACE_HEADERS) if source.headers else ()
    return OutputRecord(topic, routed.query_id.encode(), routed.to_json(), trace)


def dead_letter(topic: str, source: InputRecord, reason: str, error: str) -> OutputRecord:
    """Return the dead letter of an input record: its bytes as they came, and what is wrong with them.

    Parameters
    ----------
    topic : str
        Of the dead letters.
    reason : str
        A short machine-readable word.
    error : str
        One line for people.
    """
    where_and_why: Sequence[Header] = (
        (DLQ_TOPIC, source.topic.encode()),
        (DLQ_PARTITION, str(source.partition).encode()),
        (DLQ_OFFSET, str(source.offset).encode()),
        (DLQ_STAGE, STAGE.encode()),
        (DLQ_ERROR, error[:_MAX_ERROR_CHARS].encode(errors="replace")),
        (DLQ_REASON, reason.encode()),
    )
    # A dead letter that is sent through again carries its new fate, not its old one beside it.
    originals = tuple(header for header in source.headers if not header[0].startswith(_DLQ_PREFIX))
    return OutputRecord(topic, source.key, source.value, (*originals, *where_and_why))


def cut_to(record: OutputRecord, limit_bytes: int) -> OutputRecord:
    """Cut a dead letter that is larger than its topic takes.

    The value is cut first, then the original headers go, then the key is cut; ``dlq.truncated`` tells the original
    size of the value and what else went.

    Parameters
    ----------
    limit_bytes : int
        Largest record that the producer takes; at least 4,000 for the ``dlq.`` headers to stay whole.
    """
    if record.size_bytes <= limit_bytes:
        return record
    kept, note = record.headers, f"value of {len(record.value or b'')} bytes"
    bare = _noted(record.topic, record.key, kept, note)
    if bare.size_bytes > limit_bytes:
        kept = tuple(header for header in record.headers if header[0].startswith(_DLQ_PREFIX))
        note += ", original headers"
        bare = _noted(record.topic, record.key, kept, note)
    if record.key is not None and bare.size_bytes > limit_bytes:
        note += f", key of {len(record.key)} bytes"
        room = max(limit_bytes - _noted(record.topic, None, kept, note).size_bytes, 0)
        bare = _noted(record.topic, record.key[:room], kept, note)
    room = max(limit_bytes - bare.size_bytes, 0)
    return replace(bare, value=None if record.value is None else record.value[:room])


def _noted(topic: str, key: bytes | None, headers: tuple[Header, ...], note: str) -> OutputRecord:
    return OutputRecord(topic, key, None, (*headers, (DLQ_TRUNCATED, note.encode())))
