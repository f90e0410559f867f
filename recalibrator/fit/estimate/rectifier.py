"""The rectifier: what recent labels say beyond the curves, shrunk, on either side of the serving threshold.

One correction for all of u would be steadier, but fails when u loses its signal; one on each side holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.estimate.outcome_curves import CellSums

_ALONE = 1.0 + 1e-9
"""In labels: the newest one by itself, whatever its weight is rounded to, has no spread."""


@dataclass(frozen=True, slots=True)
class Rectifier:
    """Corrections of both curves."""

    #: Shape (2, cells): what to add to E[z | u] of small and large.
    value: Floats
    #: Shape (2, 2): squared standard errors: small and large, below and above the serving threshold.
    variance: Floats
    #: Cells up to this one lie below the serving threshold.
    split: int
    #: Shape (2, 2), like ``variance``: the variance of one label's residual; NaN where no label is recent.
    spread: Floats
    #: Squared E[z] of a change, shape (2, models): of the typical size, and of that which labels may leave unknown.
    expected: Floats


class Change(NamedTuple):
    """What is expected beforehand of a change that no detector has seen."""

    #: ``typical`` and ``unseen``: sizes in micro-F1: the typical one, by which labels are believed, and the one that
    #: may lie in what they leave unknown.
    typical: float
    unseen: float
    #: Below and above the serving threshold, the share of the labels that the current traffic should have and has not,
    #: in [0, 1].
    unlabelled: tuple[float, ...]


def rectify(
    recent: CellSums,
    curves: tuple[Floats, Floats],
    shifts: Floats,
    shifted: Floats,
    *,
    target: float,
    split: int,
    change: Change,
) -> Rectifier:
    """Compare recent labels with the curves.

    Each mean residual with standard error s is shrunk by m² / (m² + s²), m = typical·E[d] being the change of E[z]
    that is expected beforehand: the posterior mean under a normal prior. Most changes are small, but not all, so that
    the variance which remains is M² s² / (M² + s²), M = unseen·E[d]: the fewer labels, the wider the margin, and M²
    where none come. A cut-off at one standard error instead (James and Stein's positive part) would ignore a moderate
    change on all four parts at once.

    ``recent`` is weighted by recency. ``curves`` are E[z | u] of the small and of the large model before the agreement
    tilt, ``shifts``, shape (2, cells), what that adds to each, and ``shifted``, alike, the weight of the labels, of all
    and of pairs, to which it applies. ``split`` is the last cell below the serving threshold, -1 when everything
    escalates.
    """
    kish = recent.square.sum(axis=0), recent.square[1] + recent.square[2]
    sides = slice(0, split + 1), slice(split + 1, None)
    corrections = np.zeros((2, len(curves[0])))
    variance, spreads, scales = np.zeros((2, 2)), np.full((2, 2), np.nan), np.zeros((2, 2))
    for place, (model, curve) in enumerate(zip((at.SMALL, at.LARGE), curves, strict=True)):
        count, hits, sizes, squares = recent.by_cell.T[list(model)]
        value = hits - target * sizes
        squares = squares - 2.0 * curve * value + count * curve * curve
        above = value - count * curve - shifted[place] * shifts[place]
        rows = np.array((count, above, squares, kish[place]), dtype=np.float64)
        size, whole = float(sizes.sum()), max(float(count.sum()), 1e-12)
        expected, unseen = ((scale * size / whole) ** 2 for scale in change[:2])
        scales[:, place] = expected, unseen
        for side, (cells, absent) in enumerate(zip(sides, change.unlabelled, strict=True)):
            total, summed, squared, weight_square = rows[:, cells].sum(axis=1).tolist()
            if total <= _ALONE:
                variance[place, side] = unseen
                continue
            mean = summed / total
            spreads[place, side] = spread = max(squared / total - mean * mean, 1e-4)
            squared_error = spread * weight_square / (total * total)
            corrections[place, cells] = mean * expected / (expected + squared_error)
            known = unseen * squared_error / (unseen + squared_error)
            variance[place, side] = known + absent * (unseen - known)
    return Rectifier(corrections, variance, split, spreads, scales)
