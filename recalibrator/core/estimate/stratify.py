"""Post-stratification: labelled contributions flow in, curves of both models' outcomes over u flow out.

Which queries are escalated, explored and labelled depends on u and on hashes alone, so that within a cell of u the
labelled are a fair sample of all. Means are therefore taken within cells, smoothed over neighbours, and only later
weighted by the current traffic; propensities within a cell cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recalibrator.core.estimate.smooth import Fitted, Floats, Sums, kernel_mass, shrunk_local_linear
from recalibrator.core.observe.table import (
    ERROR,
    HITS_LARGE,
    HITS_SMALL,
    ONE,
    PAIR,
    SIZE_LARGE,
    SIZE_SMALL,
    SQUARE_LARGE,
    SQUARE_SMALL,
)
from recalibrator.core.tuning import Tuning


@dataclass(frozen=True, slots=True)
class CellSums:
    """Weighted sums of outcomes by cell.

    Parameters
    ----------
    by_relation : ndarray, shape (3, cells, OUTCOMES)
        First axis: agreement unknown, disagreeing, agreeing.
    by_cell : ndarray, shape (cells, OUTCOMES)
        Sums over all relations.
    failed : ndarray, shape (OUTCOMES,)
        Sums over queries whose small answer failed.
    square : ndarray, shape (3, cells)
        Sums of squared weights.
    failed_square : float
    """

    by_relation: Floats
    by_cell: Floats
    failed: Floats
    square: Floats
    failed_square: float


def cell_sums(outcomes: Floats, square: Floats) -> CellSums:
    """Tell apart by cell and relation what is summed by group.

    Parameters
    ----------
    outcomes : ndarray, shape (OUTCOMES, groups)
        Weighted sums; groups as in :class:`~recalibrator.core.observe.window.LabelWindow`.
    square : ndarray, shape (groups,)
        Sums of squared weights.
    """
    by_relation = outcomes[:, :-1].reshape(len(outcomes), 3, -1)
    by_cell = by_relation[:, 0] + by_relation[:, 1]
    by_cell += by_relation[:, 2]
    return CellSums(
        by_relation=by_relation.transpose(1, 2, 0),
        by_cell=by_cell.T,
        failed=outcomes[:, -1],
        square=square[:-1].reshape(3, -1),
        failed_square=float(square[-1]),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean outcome of one model's answers over u.

    Parameters
    ----------
    value, size : ndarray, shape (cells,)
        E[z | u] and E[d | u].
    variance : ndarray, shape (cells,)
        Var(z | u) of a single answer.
    density : ndarray, shape (cells,)
        Effective labels per cell behind them.
    """

    value: Floats
    size: Floats
    variance: Floats
    density: Floats


@dataclass(frozen=True, slots=True)
class Stratified:
    """Curves of both models, of the small one's error, and of a failed small answer's replacement.

    ``agreement`` is P(agree | u) as the labelled pairs show it, inside (0, 1).
    """

    small: Curve
    large: Curve
    error: Floats
    agreement: Floats
    failed_value: float
    failed_size: float
    failed_variance: float


_VARIANCE_PRIOR_LABELS = 8.0


def stratify(sums: CellSums, target: float, tuning: Tuning) -> Stratified:
    """Fit the curves.

    Parameters
    ----------
    sums : CellSums
    target : float
        τ, in (0, 1).
    tuning : Tuning

    Returns
    -------
    Stratified
        Where no answer of a model is known at all, its curve is 0 with next to no labels behind it.
    """
    every, square = sums.by_cell.T, sums.square
    # Squared weights are not kept apart for pairs of unknown agreement: these are scaled by their share of weight.
    unknown = sums.by_relation[0]
    share = np.divide(unknown[:, PAIR], unknown[:, ONE], out=np.zeros(len(unknown)), where=unknown[:, ONE] > 0.0)
    pair_square = square[1] + square[2] + share * square[0]
    known = sums.by_relation[1, :, ONE] + sums.by_relation[2, :, ONE]
    groups = (
        Sums(every[ONE], square.sum(axis=0), every[[HITS_SMALL, SIZE_SMALL, SQUARE_SMALL, ERROR]]),
        Sums(every[PAIR], pair_square, every[[HITS_LARGE, SIZE_LARGE, SQUARE_LARGE]]),
        Sums(known, square[1] + square[2], sums.by_relation[2, :, ONE][None, :]),
    )
    fits = shrunk_local_linear(groups, tuning.bandwidth_cells, tuning.wide_bandwidth_cells, tuning.shrink_labels)
    small, large = (_curve(group, fit, target, tuning) for group, fit in zip(groups[:2], fits[:2], strict=True))
    error, agreement = np.clip(fits[0].curves[3], 0.0, 1.0), np.clip(fits[2].curves[0], 0.01, 0.99)
    value, size, variance = _failed(sums, every, target, tuning.shrink_labels)
    return Stratified(small, large, error, agreement, value, size, variance)


def _curve(sums: Sums, fit: Fitted, target: float, tuning: Tuning) -> Curve:
    fitted, effective, responses = fit.curves, fit.effective, sums.responses
    value, size = fitted[0] - target * fitted[1], np.maximum(fitted[1], 0.0)
    whole = max(float(sums.weight.sum()), 1e-12)
    mean = (responses[0].sum() - target * responses[1].sum()) / whole
    overall = max(float(responses[2].sum()) / whole - mean * mean, 1e-4)
    near = np.maximum(fitted[2] - value * value, 0.0)
    # Where no error was seen yet the spread is unknown rather than nil.
    variance = (effective * near + _VARIANCE_PRIOR_LABELS * overall) / (effective + _VARIANCE_PRIOR_LABELS)
    return Curve(value, size, variance, (effective + 0.25) / kernel_mass(len(value), tuning.bandwidth_cells))


def _failed(sums: CellSums, every: Floats, target: float, prior: float) -> tuple[float, float, float]:
    """Mean score, size and its squared standard error where the small answer failed, shrunk to all large answers."""
    whole = max(float(every[PAIR].sum()), 1e-12)
    hits, size, squares = (float(every[name].sum()) / whole for name in (HITS_LARGE, SIZE_LARGE, SQUARE_LARGE))
    weight = float(sums.failed[PAIR])
    effective = weight * weight / sums.failed_square if sums.failed_square > 0.0 else 0.0
    scale = effective / weight if weight > 0.0 else 0.0
    mean_hits = (scale * float(sums.failed[HITS_LARGE]) + prior * hits) / (effective + prior)
    mean_size = (scale * float(sums.failed[SIZE_LARGE]) + prior * size) / (effective + prior)
    return mean_hits - target * mean_size, mean_size, max(squares, 1e-4) / (effective + prior)
