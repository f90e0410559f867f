"""A workload's traffic: queries a second, and when the last one came. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from recalibrator.api.read_model.history import HistoryPoint, Served, last_growth

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
