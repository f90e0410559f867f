"""Post-stratification: curves of both models' outcomes over u, from labels within each cell.

Which queries are escalated, explored and labelled depends on u and on hashes alone, so that within a cell of u the
labelled are a fair sample of all. Means are therefore taken within cells, smoothed over neighbours, and only later
weighted by the current traffic; propensities within a cell cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.estimate.smoothing import Family, kernel_mass, shrunk_local_linear
from recalibrator.fit.method_constants import MethodConstants


@dataclass(frozen=True, slots=True)
class CellSums:
    """Weighted sums of outcomes by cell."""

    #: Shape (3, cells, OUTCOMES): first axis: agreement unknown, disagreeing, agreeing.
    by_relation: Floats
    #: Shape (cells, OUTCOMES): sums over all relations.
    by_cell: Floats
    #: Shape (OUTCOMES,): sums over queries whose small answer failed.
    failed: Floats
    #: Shape (3, cells): sums of squared weights.
    square: Floats
    failed_square: float


def cell_sums(outcomes: Floats, square: Floats) -> CellSums:
    """Return by cell and relation what is summed by group: outcomes, shape (OUTCOMES, groups), and squared weights."""
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
    """Mean outcome of one model's answers over u."""

    #: ``value`` and ``size``, shape (cells,): E[z | u] and E[d | u].
    value: Floats
    size: Floats
    #: Shape (cells,): Var(z | u) of a single answer.
    variance: Floats
    #: Shape (cells,): effective labels per cell behind them.
    density: Floats


@dataclass(frozen=True, slots=True)
class Stratified:
    """Curves of both models, and mean score, size and squared standard error where the small answer failed.

    ``agreement`` is P(agree | u) as the labelled pairs show it, inside (0, 1).
    """

    small: Curve
    large: Curve
    agreement: Floats
    failed: tuple[float, float, float]


_VARIANCE_PRIOR_LABELS = 8.0
_RELATED = [at.HITS_SMALL, at.SIZE_SMALL, at.HITS_LARGE, at.SIZE_LARGE, at.ERROR]
_OWNERS = (np.repeat([0, 1, 2], [3, 3, 1]), np.repeat([0, 1], len(_RELATED)))


class Smoothed(NamedTuple):
    """Outcomes smoothed over u."""

    #: Shape (7, cells): by all labels: a, d and z² of the small model. By pairs: those of the large one. By pairs of
    #: known agreement: whether they agree.
    curves: Floats
    #: Shape (3, cells): Kish's effective labels behind these three.
    effective: Floats
    #: Shape (2, 5, cells): by pairs that disagree, and by those that agree: a and d of the small model, of the large
    #: one, and the error.
    related: Floats
    #: Whether there are pairs of either kind.
    is_related: bool

    @property
    def agreement(self) -> Floats:
        """P(agree | u) as smoothed, which may lie a little outside [0, 1]; shape (cells,)."""
        return np.asarray(self.curves[6])


def smooth_outcomes(sums: CellSums, constants: MethodConstants) -> Smoothed:
    """Smooth all outcomes over u at once: those of all labels, and, more widely, those of pairs given agreement."""
    (unknown, apart, alike), every = sums.by_relation.transpose(0, 2, 1), sums.by_cell.T
    square, wide = sums.square, constants.wide_bandwidth_cells
    # Squared weights are not kept separately for pairs of unknown agreement: these are scaled by their share of weight.
    share = np.divide(unknown[at.PAIR], unknown[at.ONE], out=np.zeros(len(square[0])), where=unknown[at.ONE] > 0.0)
    known_square = square[1] + square[2]
    whole = Family(
        constants.bandwidth_cells,
        np.array((every[at.ONE], every[at.PAIR], apart[at.ONE] + alike[at.ONE])),
        np.array((known_square + square[0], known_square + share * square[0], known_square)),
        np.array((*every[[*at.SMALL[1:], *at.LARGE[1:]]], alike[at.ONE])),
        _OWNERS[0],
    )
    responses = np.concatenate((apart[_RELATED], alike[_RELATED]))
    weight = np.array((apart[at.PAIR], alike[at.PAIR]))
    related = Family(constants.related_bandwidth_cells, weight, square[1:], responses, _OWNERS[1])
    fits = shrunk_local_linear((whole, related), wide, constants.shrink_labels)
    curves = fits[1].curves.reshape(2, len(_RELATED), -1)
    return Smoothed(fits[0].curves, fits[0].effective, curves, bool(weight.any(axis=1).all()))


def stratify(sums: CellSums, smoothed: Smoothed, target: float, constants: MethodConstants) -> Stratified:
    """Make curves of both models' answers, for τ in (0, 1), from sums and the same smoothed.

    Where no answer of a model is known at all, its curve is 0 with next to no labels behind it.
    """
    every, curves, effective = np.add.reduce(sums.by_cell, axis=0).tolist(), smoothed.curves, smoothed.effective
    mass = kernel_mass(curves.shape[1], constants.bandwidth_cells)
    small = _curve(curves[:3], effective[0], _variance(every, at.SMALL, target), target, mass)
    large = _curve(curves[3:6], effective[1], _variance(every, at.LARGE, target), target, mass)
    agreement = np.minimum(np.maximum(smoothed.agreement, 0.01), 0.99)
    return Stratified(small, large, agreement, _failed(sums, every, target, constants.shrink_labels))


def _variance(every: list[float], model: at.Answers, target: float) -> float:
    """Return Var(z) over all cells, of one model's answers."""
    hits, size, squares = (every[column] / max(every[model.answers], 1e-12) for column in model[1:])
    return max(squares - (hits - target * size) ** 2, 1e-4)


def _curve(fitted: Floats, effective: Floats, overall: float, target: float, mass: Floats) -> Curve:
    """Return the curve from those of a, d and z²; ``mass`` is that of the kernel."""
    value = fitted[0] - target * fitted[1]
    near = np.maximum(fitted[2] - value * value, 0.0)
    # Where no error was seen yet the spread is unknown rather than nil.
    variance = (effective * near + _VARIANCE_PRIOR_LABELS * overall) / (effective + _VARIANCE_PRIOR_LABELS)
    return Curve(value, np.maximum(fitted[1], 0.0), variance, (effective + 0.25) / mass)


def _failed(sums: CellSums, every: list[float], target: float, prior: float) -> tuple[float, float, float]:
    """Mean score, size and its squared standard error where the small answer failed, shrunk to all large answers."""
    whole = max(every[at.PAIR], 1e-12)
    *means, squares = (every[column] / whole for column in at.LARGE[1:])
    weight, *failed = sums.failed[list(at.LARGE[:3])].tolist()
    effective = weight * weight / sums.failed_square if sums.failed_square > 0.0 else 0.0
    scale = effective / weight if weight > 0.0 else 0.0
    mean_hits, mean_size = (
        (scale * one + prior * mean) / (effective + prior) for one, mean in zip(failed, means, strict=True)
    )
    return mean_hits - target * mean_size, mean_size, max(squares, 1e-4) / (effective + prior)
