"""Over which queries a figure was taken: a number without its span misleads as soon as versions change. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pydantic import JsonValue

from schemas.status import WorkloadStatus


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
