"""A record that does not follow the contract → its dead letter: the original bytes, and what is wrong with them.

It never vanishes because it is large: what its topic does not take is cut, and says so.
"""

from __future__ import annotations

from recalibrator.ports import Header, OutputRecord, Record
from schemas.topics import (
    DLQ_ERROR,
    DLQ_OFFSET,
    DLQ_PARTITION,
    DLQ_REASON,
    DLQ_STAGE,
    DLQ_TOPIC,
    DLQ_TRUNCATED,
)

_DLQ_PREFIX = "dlq."
_MAX_ERROR_CHARS = 1_000
# Varints, attributes and the batch's frame, counted generously; a header costs at most 10 bytes of lengths.
_RECORD_OVERHEAD_BYTES = 512
_HEADER_OVERHEAD_BYTES = 10


def dead_letter(
    topic: str, record: Record, *, stage: str, reason: str, error: str, max_record_bytes: int
) -> OutputRecord:
    """Return the dead letter of a record.

    Parameters
    ----------
    topic : str
        Of the dead letters.
    record : Record
        As the broker delivered it.
    stage : str
        ``join`` or ``fit``.
    reason : str
        A short machine-readable word.
    error : str
        One line for people.
    max_record_bytes : int
        Largest record that the topic takes. Beyond it the value is cut first, then the original headers go, then
        the key is cut; header ``dlq.truncated`` tells the value's size.
    """
    ours: tuple[Header, ...] = (
        (DLQ_TOPIC, record.source.topic.encode()),
        (DLQ_PARTITION, str(record.source.partition).encode()),
        (DLQ_OFFSET, str(record.offset).encode()),
        (DLQ_STAGE, stage.encode()),
        (DLQ_ERROR, error[:_MAX_ERROR_CHARS].encode(errors="replace")),
        (DLQ_REASON, reason.encode()),
    )
    # A dead letter that is sent through again carries its new fate, not its old one beside it.
    originals = tuple(header for header in record.headers if not header[0].startswith(_DLQ_PREFIX))
    whole = OutputRecord(topic, record.key, record.value, (*originals, *ours))
    if size_bytes(whole) <= max_record_bytes:
        return whole
    ours = (*ours, (DLQ_TRUNCATED, f"value of {len(record.value or b'')} bytes".encode()))
    cut = OutputRecord(topic, record.key, b"", (*originals, *ours))
    if size_bytes(cut) > max_record_bytes:
        cut = OutputRecord(topic, record.key, b"", ours)
    if record.key is not None and (excess := size_bytes(cut) - max_record_bytes) > 0:
        cut = cut._replace(key=record.key[: max(len(record.key) - excess, 0)])
    return cut._replace(value=(record.value or b"")[: max(max_record_bytes - size_bytes(cut), 0)])


def size_bytes(record: OutputRecord) -> int:
    """Return an upper bound of a record's size on the wire."""
    headers = sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD_BYTES
