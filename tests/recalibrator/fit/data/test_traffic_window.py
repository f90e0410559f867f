"""A window of traffic counts whatever a summary says."""

from __future__ import annotations

from hypothesis import example, given

from recalibrator.fit.data.traffic_window import COUNT, MIX, TrafficWindow
from recalibrator.grid import Grid
from schemas.event import MAX_INTEGER
from schemas.traffic import GridSpec, TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START
from tests.support.strategies import counts

CELL = 3


@given(counts, counts, counts)
@example(MAX_INTEGER, MAX_INTEGER - 1, MAX_INTEGER)
def test_queries_that_stand_for_others_are_at_least_themselves(queries: int, skipped: int, known: int) -> None:
    """Of few asked, each stands for so many that the product is no integer of 64 bits any more."""
    cell = {"cell": (CELL,), "count": (known,), "pairs": (0,), "agreeing": (0,), "pairs_explored": (0,)}
    part = VersionTraffic(calibration_version=1, queries=queries, small_skipped=skipped, **cell)
    window = TrafficWindow(Grid(GridSpec()), 1_000)
    window.add(
        TrafficSummary(workload="w", first_routed_at=START, last_routed_at=START, grid=GridSpec(), versions=(part,))
    )
    assert window.counts[MIX, CELL] >= window.counts[COUNT, CELL] >= min(known, 1)
