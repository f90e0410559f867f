"""How micro-F1 of the answers served changed at a time, and what each field adds to the change, by labels."""

from __future__ import annotations

import numpy as np

from recalibrator.fit.data.decayed_sums import LEAST_PROPENSITY
from recalibrator.fit.data.label_columns import LABEL_PROBABILITY, ROUTED_US, STANDING
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.movement.decomposition import decompose
from schemas.movement import GroupEffect, RateChange

LEAST_LABELS = 50
"""On either side; fewer say nothing."""


def micro_f1_change(labels: LabelTable, since_us: int) -> RateChange | None:
    """Return micro-F1 = Σ 2·TP / Σ (predicted + gold) before and after, weighted by inverse label propensity.

    Parameters
    ----------
    labels : LabelTable
    since_us : int
        By routing time.
    """
    table = labels.table
    counting = table[:, STANDING] > 0.0
    late = table[:, ROUTED_US] >= since_us
    sides = (counting & ~late, counting & late)
    if min(int(side.sum()) for side in sides) < LEAST_LABELS:
        return None
    weight = 1.0 / np.maximum(table[:, LABEL_PROBABILITY], LEAST_PROPENSITY)
    per_field = labels.per_field.astype(np.float64)
    sums = [np.einsum("n,nfk->fk", np.where(side, weight, 0.0), per_field) for side in sides]
    sizes = [one[:, 1] + one[:, 2] for one in sums]
    hits = [2.0 * one[:, 0] for one in sums]
    if min(size.sum() for size in sizes) <= 0.0:
        return None
    effects = decompose(sizes[0], hits[0], sizes[1], hits[1])
    before, after = (min(1.0, float(hit.sum() / size.sum())) for hit, size in zip(hits, sizes, strict=True))
    return RateChange(
        before=before,
        after=after,
        effects=tuple(
            GroupEffect(group="field", value=name, composition=float(mixed), within=float(own))
            for name, mixed, own in zip(labels.fields, effects.composition, effects.within, strict=True)
        ),
    )
