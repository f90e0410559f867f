"""A batch of routed queries, as arrays → the summary that the join stage would make of it.

The stage counts one routed event after the other, which is too slow for millions of queries; a test holds both equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from recalibrator.grid import Grid
from schemas import TrafficSummary, VersionTraffic

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RoutedBatch:
    """What became of a batch's queries, shape (queries,) each.

    ``u``: naN where the small answer failed. ``large_ran``, ``explored``, ``agree``, ``label_requested``: ``agree``
    counts only where both models answered. ``degraded``: where the large model was called and gave no answer, so that
    the small one was served; by default nowhere. ``small_latency_s``, ``large_latency_s``: sums over calls.
    ``handoff``: name of the one that the large model answered under.
    """

    u: NDArray[np.float64]
    large_ran: Mask
    explored: Mask
    agree: Mask
    label_requested: Mask
    first_at: datetime
    last_at: datetime
    degraded: Mask | None = None
    small_latency_s: float = 0.0
    large_latency_s: float = 0.0
    handoff: str | None = None


def summarise(batch: RoutedBatch, grid: Grid, workload: str, version: int, large_cost: float) -> TrafficSummary:
    """Count a batch that one version routed.

    ``grid``: the core's. ``large_cost``: of one large call, in small calls.
    """
    queries, large = len(batch.u), int(batch.large_ran.sum())
    degraded = np.zeros(queries, dtype=bool) if batch.degraded is None else batch.degraded
    failed = np.isnan(batch.u)
    known = ~failed
    answered, explored = batch.large_ran & ~degraded, batch.explored & ~degraded
    filled, place = np.unique(grid.indices(batch.u[known]), return_inverse=True)

    def counted(which: Mask) -> tuple[int, ...]:
        return tuple(np.bincount(place[which[known]], minlength=len(filled)).tolist())

    part = VersionTraffic(
        calibration_version=version,
        queries=queries,
        cell=tuple(filled.tolist()),
        count=counted(known),
        pairs=counted(answered),
        agreeing=counted(answered & batch.agree),
        pairs_explored=counted(explored),
        escalated=large,
        explored=int(explored.sum()),
        small_failed=int(failed.sum()),
        degraded=int(degraded.sum()),
        labels_requested=int(batch.label_requested.sum()),
        small_calls=queries,
        large_calls=large,
        cost_sequential=queries + large_cost * large,
        cost_paper=queries + (large_cost - 1.0) * large,
        small_latency_s=batch.small_latency_s,
        large_latency_s=batch.large_latency_s,
        handoff=batch.handoff,
    )
    return TrafficSummary(
        workload=workload,
        first_routed_at=batch.first_at,
        last_routed_at=batch.last_at,
        grid=grid.spec,
        versions=(part,),
    )
