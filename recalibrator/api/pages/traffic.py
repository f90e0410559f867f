"""A workload's traffic: queries a second, and when the last one came. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from recalibrator.api.read_model.history import HistoryPoint, last_growth

SPAN = timedelta(minutes=5)
"""Over which the rate is taken."""


class Traffic(NamedTuple):
    """Queries a second over :data:`SPAN`, None while unknown; and when their count last grew."""

    per_second: float | None
    last_at: datetime | None


def traffic(points: Sequence[HistoryPoint], now: datetime) -> Traffic:
    """Return how busy a workload is, from the counts of its statuses."""
    known = [(point.at, point.served) for point in points if point.served is not None]
    if not known:
        return Traffic(None, None)
    since = now - SPAN
    start_at, start = next(((at, one) for at, one in reversed(known) if at <= since), known[0])
    # A status comes when something has changed: where the last one before is old, nothing came in until the span began.
    span_s = (now - max(start_at, since)).total_seconds()
    grown = known[-1][1].queries - start.queries
    rate = max(0, grown) / span_s if span_s > 0.0 else None
    return Traffic(rate if grown >= 0 else None, last_growth(points))
