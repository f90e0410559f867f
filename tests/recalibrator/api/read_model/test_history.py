"""The past: bounded, in order, and there again after a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.api.read_model.history import MAX_POINTS, History, since
from schemas.calibration import CalibrationVersion, Evidence, Interval
from schemas.status import WorkloadStatus
from tests.support.api import plain_status
from tests.support.versions import sealed_version

START = datetime(2026, 1, 1, tzinfo=UTC)
NARROW = Interval(estimate=0.905, lower=0.9, upper=0.91)


def status(second: float, **changes: Any) -> WorkloadStatus:
    return plain_status(**{"calibration_version": 7, "updated_at": START + timedelta(seconds=second)} | changes)


def version(number: int, **details: Any) -> CalibrationVersion:
    evidence = Evidence(trigger="threshold_moved", micro_f1=NARROW, drift_state="suspected", details=details)
    return sealed_version(version=number, created_at=START, evidence=evidence)


def test_after_a_restart_versions_stand_in_for_old_statuses() -> None:
    """With their 95 % interval where they tell it; where there are statuses, versions add no points."""
    history, wide = History(), Interval(estimate=0.905, lower=0.88, upper=0.93)
    # What a compacted topic still holds: every version, but only the last status.
    for number, details in ((1, {"micro_f1_95": wide.model_dump()}), (2, {})):
        history.add_version(version(number, **details), START + timedelta(hours=number))
    history.add_status(status(3 * 3_600))
    history.add_version(version(8), START + timedelta(hours=4))
    history.add_status(status(5 * 3_600))
    points = history.points()

    assert [point.source for point in points] == ["version"] * 2 + ["status"] * 2
    assert [point.version for point in points] == [1, 2, 7, 7]
    assert (points[0].at, points[0].drift) == (START + timedelta(hours=1), "suspected")
    assert [point.micro_f1 for point in points[:2]] == [wide, NARROW]


@given(moments=st.lists(st.integers(0, 10_000), max_size=60), numbers=st.lists(st.integers(0, 10_000), max_size=60))
def test_points_are_in_order_whatever_comes(moments: list[int], numbers: list[int]) -> None:
    history = History()
    for second in moments:
        history.add_status(status(second))
    for count, second in enumerate(numbers):
        history.add_version(version(count + 1), START + timedelta(seconds=second))
    points = history.points()

    assert all(a.at <= b.at for a, b in pairwise(points))
    assert list(since(points, START + timedelta(seconds=5_000))) == [
        point for point in points if point.at >= START + timedelta(seconds=5_000)
    ]


def served(queries: int, **counts: float) -> dict[str, Any]:
    """The details of a status after so many queries, all answered by the small model but for these."""
    others = {"large": 0, "degraded": 0, "small_calls": queries, "large_calls": 0}
    latency = {"small_latency_s": 0.05 * queries, "large_latency_s": 0.0}
    return {"served": {**others, **latency, "small": queries - int(sum(counts.values())), **counts}}


def test_every_range_of_a_week_has_its_points() -> None:
    """A status every 20 s for 8 days, after as many versions: each range that the page offers has a line to draw."""
    history = History()
    for number in range(1, 3 * MAX_POINTS):
        history.add_version(
            version(1).model_copy(update={"version": number}), START + timedelta(seconds=number - 10_000)
        )
    for second in range(0, 8 * 86_400, 20):
        history.add_status(status(second))
    points = history.points()
    latest = points[-1].at

    assert len(points) <= 2 * MAX_POINTS
    assert points[0].at == START - timedelta(seconds=9_999)
    for hours in (1, 6, 24, 7 * 24):
        assert len(since(points, latest - timedelta(hours=hours))) >= 100, hours


def test_what_was_served_survives_a_restart_in_versions() -> None:
    """Versions carry the counts as of when they were fitted; one with a former version's evidence does not."""
    history = History()
    history.add_version(version(1, **served(600)), START)
    history.add_version(version(2, **served(600), content_of=1), START + timedelta(minutes=5))
    history.add_status(status(600, details=served(1_800, large=300)))

    counts = [point.served and (point.served.queries, point.served.large) for point in history.points()]
    assert counts == [(600, 0), None, (1_800, 300)]


def test_counts_that_are_none_are_left_out() -> None:
    for broken in ({"served": 7}, {"served": {"small": "many"}}, served(9, small=-1), {}):
        history = History()
        history.add_status(status(0, details=broken))
        assert history.points()[0].served is None
