"""Latencies as routers report them: bounded, a slow minute stays visible, and silence adds nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recalibrator.api.read_model.aging import MAX_POINTS
from recalibrator.api.read_model.latency_history import LatencyHistory
from schemas.routed import ModelRole
from schemas.status import ModelHealth

START = datetime(2026, 1, 1, tzinfo=UTC)


def large(calls: int, median_s: float = 0.4, p99_s: float = 2.0) -> dict[ModelRole, ModelHealth]:
    return {"large": ModelHealth(state="up", calls=calls, latency_s={"p50": median_s, "p99": p99_s})}


def test_a_slow_minute_stays_visible_in_a_week() -> None:
    """Reports every 10 s for 8 days are few points; the one minute of 30 s calls is among them."""
    history = LatencyHistory()
    for second in range(0, 8 * 86_400, 10):
        is_slow = 3 * 86_400 <= second < 3 * 86_400 + 60
        history.add("router-1", START + timedelta(seconds=second), large(second + 1, p99_s=30.0 if is_slow else 2.0))
    points = history.points()["large"]

    assert len(points) <= MAX_POINTS
    assert max(point.p99_s for point in points) == 30.0
    assert {round(point.median_s, 6) for point in points} == {0.4}
    assert history.points()["small"] == ()


def test_a_server_that_is_not_called_adds_no_points() -> None:
    """A router repeats the quantiles of its latest calls for as long as it makes none."""
    history = LatencyHistory()
    for minute in range(10):
        history.add("router-1", START + timedelta(minutes=minute), large(calls=7))
    assert [point.at for point in history.points()["large"]] == [START]


def test_routers_count_together_whatever_their_clocks() -> None:
    history = LatencyHistory()
    history.add("router-1", START + timedelta(seconds=2), large(1, 0.2, 1.0))
    history.add("router-2", START, large(1, 0.4, 3.0))
    history.add("router-2", START + timedelta(minutes=1), {"large": ModelHealth(state="down", calls=2)})

    (point,) = history.points()["large"]
    assert (point.at, point.p99_s, point.reports) == (START + timedelta(seconds=2), 3.0, 2)
    assert point.median_s == pytest.approx(0.3)
