"""Whether people label queries of one side of the threshold alone.

People who label where they happen to look, which is often where something was escalated, say nothing of the answers
that were kept. No estimate of what is served can notice that by itself: the labels there are look as they always do.
"""

from __future__ import annotations

import numpy as np

from recalibrator.fit.data.label_columns import GROUP, ROUTED_US, STANDING, Standing
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.traffic_window import COUNT, TrafficWindow
from schemas.calibration import LabelShares
from schemas.status import SilentSide

EXPECTED_LEAST = 30.0
"""Labels that a side should have had before its silence means anything: by chance alone fewer than an eighth of them
come once in 10^10 times (Poisson)."""

SHARE = 1.0 / 8.0
"""Of these, below which the side counts as silent."""


def silent_side(
    labels: LabelTable, traffic: TrafficWindow, shares: LabelShares, threshold: float | None
) -> SilentSide | None:
    """Return the side of the threshold on u from which hardly a label has come for the recent queries, or None.

    A side should have as many labels for each one asked for, by the shares in force, as the other side has.
    """
    if threshold is None or traffic.begins_us is None:
        return None
    # The cells below the threshold are kept; it lies on an edge, which is not to depend on the last bit.
    kept_cells = int(np.searchsorted(labels.grid.edges, threshold * (1.0 + 1e-12), side="right"))
    recent = labels.table[:, ROUTED_US] >= traffic.begins_us
    standing, group = labels.table[recent, STANDING], labels.table[recent, GROUP]
    group = group[(standing != Standing.UNREQUESTED) & (group < labels.groups - 1)]
    is_kept = np.mod(group, labels.grid.cells) < kept_cells
    came = {"kept": float(is_kept.sum()), "escalated": float((~is_kept).sum())}
    counts = traffic.counts[COUNT]
    asked = {
        "kept": float(counts[:kept_cells].sum()) * shares.kept,
        "escalated": float(counts[kept_cells:].sum()) * shares.escalated,
    }
    sides: tuple[tuple[SilentSide, SilentSide], ...] = (("kept", "escalated"), ("escalated", "kept"))
    for side, other in sides:
        expected = came[other] * asked[side] / asked[other] if asked[other] > 0.0 else 0.0
        if expected >= EXPECTED_LEAST and came[side] < SHARE * expected:
            return side
    return None
