"""The sums over all traffic: whose answers were served, exact over restarts and whatever the window has dropped."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np

from recalibrator.fit.codec import dump, load
from recalibrator.fit.data.traffic_window import TrafficWindow
from recalibrator.grid import Grid
from schemas.traffic import GridSpec, TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START
from tests.support.traffic import unpaired


def summary(second: int, *parts: VersionTraffic) -> TrafficSummary:
    at = START + timedelta(seconds=second)
    return TrafficSummary(workload="photo", first_routed_at=at, last_routed_at=at, grid=GridSpec(), versions=parts)


def version(number: int | None, queries: int, escalated: int, degraded: int = 0) -> VersionTraffic:
    calls = {"small_calls": queries, "large_calls": escalated, "degraded": degraded, "escalated": escalated}
    latencies = {"small_latency_s": 0.05 * queries, "large_latency_s": 0.5 * escalated}
    return VersionTraffic(calibration_version=number, queries=queries, **calls, **latencies)


def test_what_was_served_adds_up_to_all_queries() -> None:
    """Over two versions and a window that holds the latest alone: each query counts once, by whose answer it got."""
    traffic = TrafficWindow(Grid(GridSpec()), queries=10)
    traffic.add(summary(0, version(None, 40, 40)))
    traffic.add(summary(1, version(1, 60, 20, degraded=5), version(2, 100, 10)))
    calls = {"small_calls": 200, "large_calls": 70, "small_latency_s": 10.0, "large_latency_s": 35.0}
    assert traffic.served() == {"small": 130, "large": 65, "degraded": 5, **calls}


def test_what_was_added_is_taken_out_and_survives_a_snapshot() -> None:
    grid = Grid(GridSpec())
    window, latest, restored = (TrafficWindow(grid, queries=2) for _ in range(3))
    for second, u in enumerate((0.1, 0.2, 0.3)):
        one = unpaired(grid, np.array([u, u]), second, queries=2, small_failed=second)
        window.add(one)
    latest.add(one)
    load(restored, json.loads(json.dumps(dump(window))))
    for other in (latest, restored):
        assert other.counts.tolist() == window.counts.tolist()
        assert other.failed_share == window.failed_share == 1.0
    assert dump(restored) == dump(window)
