"""The dead letter of a record that does not follow the contract: the original bytes, and what is wrong with them.

It never vanishes because it is large: a dead letter that its topic does not take is cut, and says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from schemas.topics import DLQ_ERROR, DLQ_OFFSET, DLQ_PARTITION, DLQ_REASON, DLQ_STAGE, DLQ_TOPIC, DLQ_TRUNCATED
from ucci_runtime.broker.records import Header, OutputRecord, Record

_DLQ_PREFIX = "dlq."
_MAX_ERROR_CHARS = 1_000


def dead_letter(topic: str, record: Record, *, stage: str, reason: str, error: str) -> OutputRecord:
    """Return the dead letter of a record; where that is too large, it names its own cut form to be written instead.

    ``stage``: ``route``, ``join`` or ``fit``. ``reason``: a short machine-readable word.
    """
    where_and_why: tuple[Header, ...] = (
        (DLQ_TOPIC, record.source.topic.encode()),
        (DLQ_PARTITION, str(record.source.partition).encode()),
        (DLQ_OFFSET, str(record.offset).encode()),
        (DLQ_STAGE, stage.encode()),
        (DLQ_ERROR, error[:_MAX_ERROR_CHARS].encode(errors="replace")),
        (DLQ_REASON, reason.encode()),
    )
    # A dead letter that is sent through again carries its new fate, not its old one beside it.
    kept = tuple(header for header in record.headers if not header[0].startswith(_DLQ_PREFIX))
    letter = OutputRecord(topic, record.key, record.value, (*kept, *where_and_why))
    return replace(letter, instead=partial(cut_to, letter))


def reason_of(letter: OutputRecord) -> str:
    """Return why a record became a dead letter."""
    return next((value or b"" for name, value in letter.headers if name == DLQ_REASON), b"").decode()


def cut_to(record: OutputRecord, limit_bytes: int) -> OutputRecord:
    """Cut a dead letter that is larger than its topic takes.

    The value is cut first, then the original headers go, then the key is cut; ``dlq.truncated`` names the original size
    of the value and what else went. ``limit_bytes``: largest record that the producer takes; at least 4,000 for the
    ``dlq.`` headers to stay whole.
    """
    if record.size_bytes <= limit_bytes:
        return record
    kept, note = record.headers, f"value of {len(record.value or b'')} bytes"
    bare = _noted(record, record.key, kept, note)
    if bare.size_bytes > limit_bytes:
        kept = tuple(header for header in record.headers if header[0].startswith(_DLQ_PREFIX))
        note += ", original headers"
        bare = _noted(record, record.key, kept, note)
    if record.key is not None and bare.size_bytes > limit_bytes:
        note += f", key of {len(record.key)} bytes"
        room = max(limit_bytes - _noted(record, None, kept, note).size_bytes, 0)
        bare = _noted(record, record.key[:room], kept, note)
    room = max(limit_bytes - bare.size_bytes, 0)
    return replace(bare, value=None if record.value is None else record.value[:room])


def _noted(record: OutputRecord, key: bytes | None, headers: tuple[Header, ...], note: str) -> OutputRecord:
    return OutputRecord(record.topic, key, None, (*headers, (DLQ_TRUNCATED, note.encode())))
