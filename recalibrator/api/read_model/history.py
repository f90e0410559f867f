"""The history of a workload: a bounded series of points, from its statuses and versions.

Compaction removes statuses but keeps versions: where no status is left to read, as after a restart, the versions'
evidence takes its place, so that the history never begins at the last restart.

It grows coarser with age, and is never empty in any of the spans that people look at: of points every few seconds, the
latest hour, six hours, day and week keep some 120 each.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import takewhile
from typing import Literal

from pydantic import JsonValue
from pydantic_core import to_json

from recalibrator.api.read_model.version_lines import interval_95
from schemas.calibration import CalibrationVersion, Interval
from schemas.costs import CostRate
from schemas.event import rfc3339
from schemas.status import WorkloadStatus

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Of a series; beyond it the older points are merged.
MAX_POINTS = 720

Source = Literal["status", "version"]


@dataclass(frozen=True, slots=True)
class Served:
    """Whose answers were served to all queries up to some time, and the calls behind them."""

    #: Queries; ``degraded`` ones got the small answer where the large model was to answer.
    small: int
    large: int
    degraded: int

    small_calls: int
    large_calls: int
    #: Sums over calls, in seconds.
    small_latency_s: float
    large_latency_s: float

    @property
    def queries(self) -> int:
        """All of them."""
        return self.small + self.large + self.degraded


@dataclass(frozen=True)
class HistoryPoint:
    """How a workload stood at one time."""

    at: datetime
    #: ``status``, or ``version`` where only what a version was published with is left.
    source: Source

    state: str
    version: int | None
    #: With its 95% bounds.
    micro_f1: Interval | None
    #: As seen, or as expected by the version.
    escalation_rate: float | None

    cost: CostRate | None
    drift: str
    #: Whether a model server failed more calls than usual.
    has_outage: bool = False
    #: Null for versions whose evidence is older than they are.
    served: Served | None = None

    @cached_property
    def encoded(self) -> bytes:
        """The same as JSON: a history is asked for oftener than it changes."""
        content = {
            "at": rfc3339(self.at),
            "state": self.state,
            "calibration_version": self.version,
            "micro_f1": self.micro_f1,
            "escalation_rate": self.escalation_rate,
            "sequential_cost": None if self.cost is None else self.cost.sequential,
            "cost": self.cost,
            "drift": self.drift,
            "source": self.source,
            "served": self.served,
        }
        return to_json(content)


class History:
    """The points of one workload."""

    def __init__(self) -> None:
        self._statuses: list[HistoryPoint] = []
        self._versions: list[HistoryPoint] = []

    def add_status(self, status: WorkloadStatus) -> None:
        """Take a status; one without a time, or older than the last, is no point."""
        at = status.updated_at
        if at is None or (self._statuses and at <= self._statuses[-1].at):
            return
        point = HistoryPoint(
            at=at,
            source="status",
            state=status.state,
            version=status.calibration_version,
            micro_f1=status.micro_f1,
            escalation_rate=status.escalation_rate,
            cost=status.cost,
            drift=status.drift.state,
            has_outage=status.outage is not None,
            served=_served(status.details),
        )
        self._statuses = aged([*self._statuses, point])

    def add_version(self, version: CalibrationVersion, published_at: datetime) -> None:
        """Take a version's evidence, as of when it was published."""
        evidence = version.evidence
        # One of an earlier version says what that one served.
        is_former = "content_of" in evidence.details or evidence.trigger == "handoff_off"
        point = HistoryPoint(
            at=published_at,
            source="version",
            state=version.state,
            version=version.version,
            micro_f1=interval_95(version),
            escalation_rate=evidence.escalation_rate,
            cost=evidence.expected_cost,
            drift=evidence.drift_state or "ok",
            served=None if is_former else _served(evidence.details),
        )
        insort(self._versions, point, key=lambda known: (known.at, known.version or 0))
        self._versions = aged(self._versions)

    def points(self) -> tuple[HistoryPoint, ...]:
        """Return all points, oldest first: versions up to the first status, statuses from there on."""
        if not self._statuses:
            return tuple(self._versions)
        before = bisect_left(self._versions, self._statuses[0].at, key=lambda point: point.at)
        return (*self._versions[:before], *self._statuses)


def _served(details: Mapping[str, JsonValue]) -> Served | None:
    found = details.get("served")
    values = [found.get(one.name) for one in fields(Served)] if isinstance(found, dict) else [None]
    if not all(isinstance(value, int | float) and value >= 0 for value in values):
        return None
    # Just checked; counts are whole, since JSON keeps integers.
    return Served(*values)


def begun(points: Sequence[HistoryPoint], holds: Callable[[HistoryPoint], bool]) -> datetime | None:
    """Return since when, as far as the points, oldest first, go back, what holds at the last has held; else None."""
    latest = list(takewhile(holds, reversed(points)))
    return latest[-1].at if latest else None


def last_growth(points: Sequence[HistoryPoint]) -> datetime | None:
    """Return when the count of queries last grew, as far back as the points go; None where no status counts them."""
    latest = points[-1].served if points else None
    if latest is None or not latest.queries:
        return None
    return begun(points, lambda point: point.served is not None and point.served.queries == latest.queries)


def since(points: Sequence[HistoryPoint], start: datetime | None) -> Sequence[HistoryPoint]:
    """Return the points at or after a time."""
    return points if start is None else points[bisect_left(points, start, key=lambda point: point.at) :]


#: Up to which age points are merged to one for how long a time.
_STEPS = (
    (timedelta(hours=1), timedelta(seconds=30)),
    (timedelta(hours=6), timedelta(seconds=150)),
    (timedelta(days=1), timedelta(minutes=9)),
    (timedelta(days=7), timedelta(minutes=72)),
)

#: Points older than all of these.
_OLDER = 120


def aged(points: list[HistoryPoint]) -> list[HistoryPoint]:
    """Return a series, oldest first; of a long one older points are merged, and the latest stands for all of them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> days = [SimpleNamespace(at=_EPOCH + timedelta(seconds=10 * n)) for n in range(8640)]
    >>> kept = aged(days)
    >>> len(kept), kept[0] is days[0], kept[-1] is days[-1]
    (364, True, True)
    """
    if len(points) <= MAX_POINTS:
        return points
    (first, *between, last), longest = points, _STEPS[-1][1]
    while (last.at - first.at) / longest > _OLDER:
        # Doubled, so that what was merged before is merged on and never split again.
        longest *= 2
    merged: dict[tuple[timedelta, int], HistoryPoint] = {}
    for point in between:
        step = next((step for age, step in _STEPS if last.at - point.at <= age), longest)
        merged[step, (point.at - _EPOCH) // step] = point
    return [first, *merged.values(), last]
