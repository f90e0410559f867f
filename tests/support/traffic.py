"""Traffic without pairs: values of u flow in, the summary that the join would make of them flows out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalibrator.grid import Grid
from schemas.traffic import TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START


def unpaired(
    grid: Grid, u: NDArray[np.float64], at_s: int, *, spared: NDArray[np.float64] | None = None, **sums: Any
) -> TrafficSummary:
    """Summarise queries of these u, all routed at one time.

    Parameters
    ----------
    grid : Grid
    u : ndarray
    at_s : int
        Seconds after the streams' start.
    spared : ndarray, optional
        Those u whose calls would have been stopped early, had they not been drawn to run in full.
    **sums
        Other counts of the summary, by name.
    """
    count = np.bincount(grid.indices(u), minlength=grid.cells)
    filled = np.flatnonzero(count)
    nothing = (0,) * len(filled)
    if spared is not None:
        of_spared = np.bincount(grid.indices(spared), minlength=grid.cells)
        sums["spared"] = tuple(of_spared[filled].tolist())
    part = VersionTraffic(
        calibration_version=1,
        cell=tuple(filled.tolist()),
        count=tuple(count[filled].tolist()),
        pairs=nothing,
        agreeing=nothing,
        pairs_explored=nothing,
        **sums,
    )
    at = START + timedelta(seconds=at_s)
    return TrafficSummary(workload="w", first_routed_at=at, last_routed_at=at, grid=grid.spec, versions=(part,))
