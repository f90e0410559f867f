"""What the router writes for one input record: a result, or a dead letter with the original bytes.

A routed event, or an input record and what is wrong with it, flow in; a record to produce flows out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from schemas.routed import RoutedEvent
from ucci_runtime.broker import dead_letters
from ucci_runtime.broker.records import Header, Input, OutputRecord

STAGE = "route"


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

    ``labels`` are what results are counted by: workload, answered_by, reason of the decision; ``trial`` what they are
    counted by beside that while a version is on trial: see
    :func:`stream_router.calibration.active_versions.trial_labels`.
    """

    source: InputRecord
    record: OutputRecord
    labels: tuple[str, str, str] = ("", "", "")
    trial: tuple[str, str, str, str] | None = None

    @property
    def size_bytes(self) -> int:
        """Upper bound of the memory that its bytes hold."""
        return self.record.size_bytes + len(self.source.value or b"")


def result(topic: str, routed: RoutedEvent, trace: tuple[Header, ...] = ()) -> OutputRecord:
    """Return the result's record: keyed by query_id, with a trace context as its headers."""
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
    original = OutputRecord(topic, source.key, source.value, source.headers)
    where = Input(source.topic, source.partition)
    return dead_letters.dead_letter(where, source.offset, original, stage=STAGE, reason=reason, error=error)
