"""A logistic map on the logit of u: what isotonic regression is shrunk to while labels are few (Platt, 1999)."""

from __future__ import annotations

from math import log

import numpy as np

from recalibrator.fit.arrays import Floats

_NEWTON_STEPS = 8
_RIDGE_LEVEL, _RIDGE_SLOPE = 0.01, 0.05
_LEAST_CURVATURE = 1e-6
_LOGIT_MOST = 30.0
_LEAST_SPREAD = 1e-4
_STEEPEST_START = 12.0
_SETTLED = 1e-6
"""Newton's method doubles the digits: a step so small leaves an error of about its square."""


def platt(errors: Floats, weight: Floats, place: Floats) -> Floats:
    """Fit P(error | u) = 1 / (1 + exp(-(b + s·x))) with s ≥ 0 by penalised Newton steps.

    Shape (cells,): non-decreasing, inside (0, 1). With labels of one kind alone it stays inside too: both kinds are
    given half a label more (Platt's correction).

    Parameters
    ----------
    errors, weight : ndarray, shape (cells,)
        Weighted sums of errors and of labels.
    place : ndarray, shape (cells,)
        x, the standardised logit of u.

    Examples
    --------
    >>> g = platt(np.array([0.0, 5.0, 10.0]), np.full(3, 10.0), np.array([-1.0, 0.0, 1.0]))
    >>> bool(g[0] < 0.3 < 0.7 < g[2])
    True
    """
    total, wrong = float(np.add.reduce(weight)), float(np.add.reduce(errors))
    share = (wrong + 0.5) / (total + 1.0)
    filled = np.flatnonzero(weight)
    basis, known = line_basis(place[filled]), weight[filled]
    count = known * ((total + 1.0) / max(total, 1e-12))
    hits = errors[filled] + share * (count - known)
    prior = log(share / (1.0 - share))
    level, slope = _discriminant(basis, count, hits, prior)
    for _ in range(_NEWTON_STEPS):
        up, tilt = newton_step(
            basis,
            count,
            hits,
            _logistic(level, slope, basis[1]),
            (_RIDGE_LEVEL + _LEAST_CURVATURE, _RIDGE_SLOPE + _LEAST_CURVATURE),
            (_RIDGE_LEVEL * (level - prior), _RIDGE_SLOPE * slope),
        )[0]
        level, slope = level + min(max(up, -3.0), 3.0), slope + min(max(tilt, -3.0), 3.0)
        if abs(up) < _SETTLED and abs(tilt) < _SETTLED:
            break
    if slope < 0.0:
        return np.full(len(place), share)
    return _logistic(level, slope, place)


def line_basis(x: Floats) -> Floats:
    """Return the powers 0, 1 and 2 of x, shape (3, cells): what a fit of a level and a slope is summed against."""
    return np.array((np.ones(len(x)), x, x * x))


def _discriminant(basis: Floats, count: Floats, hits: Floats, prior: float) -> tuple[float, float]:
    """Return level and slope as if x were normal among hits and misses alike: close enough to save two steps."""
    (whole, first, second), (wrong, first_wrong) = basis.dot(count).tolist(), basis[:2].dot(hits).tolist()
    if not 0.0 < wrong < whole:
        return prior, 0.0
    apart = first_wrong / wrong - (first - first_wrong) / (whole - wrong)
    share = wrong / whole
    spread = second / whole - (first / whole) ** 2 - share * (1.0 - share) * apart * apart
    if apart <= 0.0 or spread < _LEAST_SPREAD:
        return prior, 0.0
    slope = min(apart / spread, _STEEPEST_START)
    middle = (first_wrong / wrong + (first - first_wrong) / (whole - wrong)) / 2.0
    return prior - slope * middle, slope


def _logistic(level: float, slope: float, x: Floats) -> Floats:
    """Return the logistic of a line, its logit cut where only rounding is left; x in [-1, 1]."""
    logit = x * -slope
    logit -= level
    if abs(level) + abs(slope) > _LOGIT_MOST:
        logit = np.minimum(np.maximum(logit, -_LOGIT_MOST), _LOGIT_MOST)
    return 1.0 / (1.0 + np.exp(logit))


def newton_step(
    basis: Floats, count: Floats, hits: Floats, chance: Floats, ridge: tuple[float, float], pull: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """Return one penalised Newton step of a logistic regression on a level and a slope.

    Parameters
    ----------
    basis : ndarray, shape (3, cells)
        Where, as :func:`line_basis` gives it.
    count, hits, chance : ndarray, shape (cells,)
        How many trials; how many of them hit; by which chance as fitted so far.
    ridge, pull : tuple of float
        Second and first derivative of the penalty, by level and by slope.

    Returns
    -------
    step : tuple of float
        Of level and slope.
    covariance : tuple of float
        The inverse Hessian: variance of the level, covariance, variance of the slope; positive definite.

    Examples
    --------
    >>> basis, trials = line_basis(np.array([-1.0, 1.0])), np.array([4.0, 4.0])
    >>> newton_step(basis, trials, np.array([1.0, 3.0]), np.full(2, 0.5), (0.0, 0.0), (0.0, 0.0))
    ((0.0, 1.0), (0.5, -0.0, 0.5))
    """
    # The method costs a third of what the operator @ does.
    expected = count * chance
    a, b, d = basis.dot(expected - expected * chance).tolist()
    up, tilt = basis[:2].dot(hits - expected).tolist()
    a, d, up, tilt = a + ridge[0], d + ridge[1], up - pull[0], tilt - pull[1]
    scale = 1.0 / (a * d - b * b)
    covariance = (d * scale, -b * scale, a * scale)
    return (covariance[0] * up + covariance[1] * tilt, covariance[1] * up + covariance[2] * tilt), covariance
