"""A batch of routed queries, as arrays → the summary that the join stage would make of it.

The stage counts one routed event after the other, which is too slow for millions of queries; a test holds both equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from recalibrator.core.observe.cells import Grid
from schemas import TrafficSummary, VersionTraffic

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RoutedBatch:
    """What became of a batch's queries, shape (queries,) each.

    Parameters
    ----------
    u : ndarray of float
        NaN where the small answer failed.
    large_ran, explored, agree, label_requested : ndarray of bool
        ``agree`` counts only where the large model ran.
    first_at, last_at : datetime
    """

    u: NDArray[np.float64]
    large_ran: Mask
    explored: Mask
    agree: Mask
    label_requested: Mask
    first_at: datetime
    last_at: datetime


def summarise(batch: RoutedBatch, grid: Grid, workload: str, version: int, large_cost: float) -> TrafficSummary:
    """Count a batch that one version routed.

    Parameters
    ----------
    batch : RoutedBatch
    grid : Grid
        The core's.
    workload : str
    version : int
    large_cost : float
        Of one large call, in small calls.
    """
    known = ~np.isnan(batch.u)
    filled, place = np.unique(grid.indices(batch.u[known]), return_inverse=True)

    def counted(which: Mask) -> tuple[int, ...]:
        return tuple(np.bincount(place[which[known]], minlength=len(filled)).tolist())

    queries, large = len(batch.u), int(batch.large_ran.sum())
    part = VersionTraffic(
        calibration_version=version,
        queries=queries,
        cell=tuple(filled.tolist()),
        count=counted(known),
        pairs=counted(batch.large_ran),
        agreeing=counted(batch.large_ran & batch.agree),
        pairs_explored=counted(batch.explored),
        escalated=large,
        explored=int(batch.explored.sum()),
        small_failed=int((~known).sum()),
        labels_requested=int(batch.label_requested.sum()),
        small_calls=queries,
        large_calls=large,
        cost_sequential=queries + large_cost * large,
        cost_paper=queries + (large_cost - 1.0) * large,
    )
    return TrafficSummary(
        workload=workload,
        first_routed_at=batch.first_at,
        last_routed_at=batch.last_at,
        grid=grid.spec,
        versions=(part,),
    )
