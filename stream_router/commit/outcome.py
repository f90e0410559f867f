"""What is written for one query: a result, or a dead letter with the query's original bytes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from schemas.json_bytes import framed
from schemas.routed import RoutedEvent
from ucci_runtime.broker import dead_letters
from ucci_runtime.broker.records import Header, OutputRecord, Record

STAGE = "route"
TOO_LARGE = "too_large"


class Outcome(NamedTuple):
    """Outcome of one query's record: one output record, a result or a dead letter.

    ``labels`` are what results are counted by: workload, answered_by, reason of the decision; ``trial`` what they are
    counted by beside that while a version is on trial: see
    :func:`stream_router.cascade.lever.trial_labels`.
    """

    source: Record
    record: OutputRecord
    labels: tuple[str, str, str] = ("", "", "")
    trial: tuple[str, str, str, str] | None = None

    @property
    def size_bytes(self) -> int:
        """Upper bound of the memory that its bytes hold."""
        return self.record.size_bytes + len(self.source.value or b"")


class OutputTopics(NamedTuple):
    """The topics that outcomes go to, by full name, and how they are written."""

    results: str
    dead_letters: str
    #: Stands in front of results, if there is one.
    schema_id: int | None = None
    #: Which part of the service dead letters name.
    stage: str = STAGE

    def result(self, source: Record, routed: RoutedEvent, trace: tuple[Header, ...] = ()) -> OutputRecord:
        """Return the result's record, keyed by query_id; one that is too large for its topic becomes a dead letter."""
        value = routed.to_json()
        if self.schema_id is not None:
            value = framed(self.schema_id, value)
        instead = partial(self._too_large, source, len(value))
        return OutputRecord(self.results, routed.query_id.encode(), value, trace, instead)

    def dead_letter(self, source: Record, reason: str, error: str) -> OutputRecord:
        """Return the dead letter of a record: its bytes as they came, and what is wrong with them."""
        return dead_letters.dead_letter(self.dead_letters, source, stage=self.stage, reason=reason, error=error)

    def _too_large(self, source: Record, size_bytes: int, limit_bytes: int) -> OutputRecord:
        error = (
            f"the result of {size_bytes} bytes exceeds what its topic takes ({limit_bytes} bytes); "
            "raise the topic's max.message.bytes, or ask for less"
        )
        return self.dead_letter(source, TOO_LARGE, error)
