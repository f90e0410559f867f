"""Traffic without pairs: values of u flow in, the summary that the join would make of them flows out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalibrator.grid import Grid
from schemas.traffic import TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START


def unpaired(grid: Grid, u: NDArray[np.float64], at_s: int, **sums: Any) -> TrafficSummary:
    """Summarise queries of these u, all routed so many seconds after the streams' start; ``sums``: other counts."""
    count = np.bincount(grid.indices(u), minlength=grid.cells)
    filled = np.flatnonzero(count)
    nothing = (0,) * len(filled)
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
