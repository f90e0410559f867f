"""A workload's traffic: queries a second, when the last one came, and over which queries figures were taken. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import JsonValue

from recalibrator.api.read_model.history import HistoryPoint, Served, begun
from schemas.status import WorkloadStatus

#: Over which the rate is taken.
SPAN = timedelta(minutes=5)

_HOUR = timedelta(hours=1)


class Traffic(NamedTuple):
    """Queries a second over :data:`SPAN`, None while unknown; when their count last grew; and answers of the last hour.

    ``degraded`` of ``answered`` were the small model's where the large one was to answer; None while unknown.
    """

    per_second: float | None
    last_at: datetime | None
    degraded: int | None = None
    answered: int | None = None


def traffic(points: Sequence[HistoryPoint], now: datetime) -> Traffic:
    """Return how busy a workload is, from the counts of its statuses."""
    known = [(point.at, point.served) for point in points if point.served is not None]
    if not known:
        return Traffic(None, None)
    since = now - SPAN
    start_at, start = _last_before(known, since)
    _, earlier = _last_before(known, now - _HOUR)
    # A status comes when something has changed: where the last one before is old, nothing came in until the span began.
    span_s = (now - max(start_at, since)).total_seconds()
    grown = known[-1][1].queries - start.queries
    rate = max(0, grown) / span_s if span_s > 0.0 else None
    lately = known[-1][1].degraded - earlier.degraded, known[-1][1].queries - earlier.queries
    return Traffic(rate if grown >= 0 else None, last_growth(points), *(lately if min(lately) >= 0 else (None, None)))


def _last_before(known: Sequence[tuple[datetime, Served]], moment: datetime) -> tuple[datetime, Served]:
    return next(((at, one) for at, one in reversed(known) if at <= moment), known[0])


def last_growth(points: Sequence[HistoryPoint]) -> datetime | None:
    """Return when the count of queries last grew, as far back as the points go; None where no status counts them."""
    latest = points[-1].served if points else None
    if latest is None or not latest.queries:
        return None
    return begun(points, lambda point: point.served is not None and point.served.queries == latest.queries)


class TrafficSpan(NamedTuple):
    """The recent queries behind what was realised: how many, and when the oldest was routed."""

    queries: int
    since: datetime | None

    @property
    def words(self) -> str:
        """The span as a phrase."""
        since = "" if self.since is None else f", since {self.since:%d %b %H:%M} UTC"
        return f"the latest {self.queries:,} queries{since}"


def traffic_span(status: WorkloadStatus) -> TrafficSpan | None:
    """Return the span of escalation, cost and saving; None where an earlier fit wrote the status.

    Examples
    --------
    >>> from schemas.calibration import Target
    >>> traffic_span(WorkloadStatus.cold_start("photo", Target(micro_f1=0.9))) is None
    True
    """
    window = status.details.get("traffic_window")
    if not isinstance(window, dict) or not isinstance(queries := window.get("queries"), int):
        return None
    return TrafficSpan(queries, moment(window.get("since")))


def moment(value: JsonValue) -> datetime | None:
    """Return a time of the free-form details; None where there is none that can be read.

    Examples
    --------
    >>> moment("2026-01-01T00:00:00+00:00").year, moment("yesterday"), moment(None)
    (2026, None, None)
    """
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
