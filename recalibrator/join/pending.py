"""What the join took since its last commit: states, outputs and counts, committed together or dropped whole."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from recalibrator.join.ports import LabelerKey, StoredRow
from recalibrator.join.query_state import JoinState
from schemas.routed import RoutedEvent
from schemas.status import LabelerCounts
from schemas.traffic import TrafficSummary
from ucci_runtime.broker.records import OutputRecord


class Summarizer(Protocol):
    """Counts results; :class:`recalibrator.core.TrafficSummarizer`."""

    def add(self, routed: RoutedEvent) -> None:
        """Count one result."""
        ...

    def take(self) -> TrafficSummary | None:
        """Return the counts and begin anew; None when there was nothing."""
        ...


@dataclass(slots=True)
class Pending:
    """What was taken since the last commit; dropped whole when a commit fails.

    ``states`` is a cache of what was loaded or changed, ``absent`` the keys that the store does not have, ``touched``
    the changed ones with the latest time of their records in Unix milliseconds.
    """

    states: dict[tuple[int, str], JoinState] = field(default_factory=dict)
    absent: set[tuple[int, str]] = field(default_factory=set)
    touched: dict[tuple[int, str], int] = field(default_factory=dict)
    judged: dict[LabelerKey, LabelerCounts] = field(default_factory=dict)
    outputs: list[OutputRecord] = field(default_factory=list)
    summarizers: dict[str, Summarizer] = field(default_factory=dict)
    records: int = 0
    since_s: float = math.inf

    def rows(self) -> dict[tuple[int, str], StoredRow]:
        """Return what to store."""
        return {key: StoredRow(self.states[key], ms) for key, ms in self.touched.items()}
