"""How long calls of the model servers took, as routers reported it: a bounded series for each server of a workload.

A router reports the quantiles of its latest calls. Of a stretch of time the series keeps the mean of the medians and
the highest 99th percentile that any router reported, so that a slow minute stays visible in a week.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock

from recalibrator.api.read_model.aging import MAX_POINTS, aged
from schemas.routed import ModelRole
from schemas.status import ModelHealth

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = timedelta(seconds=30)
"""Reports of so long a time are one point from the beginning."""

_MOST_KNOWN = 2_000
"""Servers of routers whose number of calls is remembered."""


@dataclass(frozen=True, slots=True)
class LatencyPoint:
    """What routers reported around one time.

    Parameters
    ----------
    median_s : float
        Mean of the reported medians, in seconds.
    p99_s : float
        The highest 99th percentile that was reported, in seconds.
    reports : int
        How many.
    """

    at: datetime
    median_s: float
    p99_s: float
    reports: int = 1


def joined(earlier: LatencyPoint, later: LatencyPoint) -> LatencyPoint:
    """Return both as one.

    Examples
    --------
    >>> noon = datetime(2026, 1, 1, 12)
    >>> one = joined(LatencyPoint(noon, 0.2, 1.0, reports=3), LatencyPoint(noon, 0.4, 0.9))
    >>> (round(one.median_s, 3), one.p99_s, one.reports)
    (0.25, 1.0, 4)
    """
    reports = earlier.reports + later.reports
    median_s = (earlier.reports * earlier.median_s + later.reports * later.median_s) / reports
    return LatencyPoint(later.at, median_s, max(earlier.p99_s, later.p99_s), reports)


class LatencyHistory:
    """The latencies of one workload's model servers; one thread adds, any reads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._series: dict[str, list[LatencyPoint]] = {}
        self._calls: dict[tuple[str, str], int] = {}

    def add(self, router: str, at: datetime, models: Mapping[ModelRole, ModelHealth]) -> None:
        """Take one router's report; it says nothing new of a server that it has not called since the last."""
        for role, health in models.items():
            calls = self._calls.pop((router, role), None)
            self._calls[router, role] = health.calls
            while len(self._calls) > _MOST_KNOWN:
                del self._calls[next(iter(self._calls))]
            if health.calls == calls or not {"p50", "p99"} <= health.latency_s.keys():
                continue
            with self._lock:
                self._append(role, LatencyPoint(at, health.latency_s["p50"], health.latency_s["p99"]))

    def points(self) -> dict[str, tuple[LatencyPoint, ...]]:
        """Return each server's points by role, oldest first."""
        with self._lock:
            return {role: tuple(self._series.get(role, ())) for role in ("small", "large")}

    def _append(self, role: str, point: LatencyPoint) -> None:
        series = self._series.setdefault(role, [])
        if series and point.at < series[-1].at:
            # The clocks of two routers differ a little.
            point = replace(point, at=series[-1].at)
        if series and (point.at - _EPOCH) // _STEP == (series[-1].at - _EPOCH) // _STEP:
            series[-1] = joined(series[-1], point)
        else:
            series.append(point)
        if len(series) > MAX_POINTS:
            self._series[role] = aged(series, joined)
