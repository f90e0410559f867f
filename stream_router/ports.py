"""The seams between the router's loop and the world: what answers a query, and which calibration is in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from schemas.calibration import CalibrationVersion
from schemas.query import QueryEvent
from schemas.routed import RoutedEvent
from schemas.status import ModelHealth
from schemas.trial import CalibrationTrial


class Calibrations(Protocol):
    """Which version each workload is decided by; swapped at any time without a restart."""

    def in_force(self, workload: str) -> CalibrationVersion | None:
        """Return the version in force, or None in a cold start."""
        ...

    def trial(self, workload: str) -> CalibrationTrial | None:
        """Return the version on trial beside it, or None."""
        ...


class Answerer(Protocol):
    """Answers one query with the cascade."""

    async def answer(self, query: QueryEvent, workload: str, headers: Mapping[str, str] | None = None) -> RoutedEvent:
        """Run the cascade for one query.

        Waits, however long, while neither model server can answer; may be cancelled at any time.

        Raises
        ------
        ModelsFailed
            When both models fail on this query while the servers answer others.
        """
        ...

    def health(self) -> Mapping[str, Mapping[str, ModelHealth]]:
        """Return each workload's model servers as seen from here, by role."""
        ...

    @property
    def can_answer(self) -> bool:
        """Whether every workload has at least one model server that is up."""
        ...
