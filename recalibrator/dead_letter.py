"""A record that does not follow the contract → its dead letter, cut to what the topic takes."""

from __future__ import annotations

from ucci_runtime.broker import dead_letters
from ucci_runtime.broker.records import OutputRecord, Record


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
        Largest record that the topic takes; see :func:`ucci_runtime.broker.dead_letters.cut_to`.
    """
    original = OutputRecord(topic, record.key, record.value, record.headers)
    letter = dead_letters.dead_letter(record.source, record.offset, original, stage=stage, reason=reason, error=error)
    return dead_letters.cut_to(letter, max_record_bytes)
