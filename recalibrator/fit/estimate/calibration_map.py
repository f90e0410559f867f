"""The map g, fitted to error counts by cell: knots that a router can read, non-decreasing and never NaN.

Two fitters of it are offered. :func:`isotonic_map` follows whatever shape the errors have, shrunk to a logistic map
while labels are few; :func:`platt_map` knows two parameters alone (Platt, 1999), and needs few labels. A further one
needs a line in :func:`map_fitter`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log
from typing import Literal, NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats, Ints
from schemas.calibration import CalibrationMap

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
    given half a label more (Platt's correction). ``errors`` and ``weight`` are weighted sums of errors and of labels,
    ``place`` is x, the standardised logit of u.

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
    ridge = (_RIDGE_LEVEL + _LEAST_CURVATURE, _RIDGE_SLOPE + _LEAST_CURVATURE)
    for _ in range(_NEWTON_STEPS):
        chance, pull = _logistic(level, slope, basis[1]), (_RIDGE_LEVEL * (level - prior), _RIDGE_SLOPE * slope)
        up, tilt = newton_step(basis, count, hits, chance, ridge, pull)[0]
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
    """Return one penalised Newton step of a logistic regression, of level and slope, and the inverse Hessian.

    That is the variance of the level, the covariance, and the variance of the slope; positive definite. ``basis`` is of
    :func:`line_basis`; ``count``, ``hits`` and ``chance``, shape (cells,), are how many trials, how many of them hit,
    and by which chance as fitted so far; ``ridge`` and ``pull`` the second and the first derivative of the penalty, by
    level and by slope.

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


_LEAST_STEP = 1.0 / 512.0
_LEAST_MASS = 1e-9
"""In labels; a cell with less holds rounding errors alone."""


class ErrorCells(NamedTuple):
    """What g is fitted to, shape (cells,) each."""

    #: Logit of u at each cell's centre, increasing.
    logits: Floats
    #: ``errors`` and ``labels``: weighted sums of the small model's errors and of labels; 0 ≤ errors ≤ labels.
    errors: Floats
    labels: Floats
    #: Share of current queries.
    traffic: Floats

    @property
    def places(self) -> Floats:
        """The logits, shifted and scaled to [-1, 1]."""
        low, high = self.logits[0], self.logits[-1]
        return np.asarray((self.logits - (low + high) / 2.0) / ((high - low) / 2.0))


MapFitter = Callable[[ErrorCells], CalibrationMap]
"""Fits the map g from scratch at every refit; a pure function."""


def isotonic_map(cells: ErrorCells, prior_labels: float) -> CalibrationMap:
    """Return isotonic regression on cells, shrunk to a logistic map.

    The logistic map is worth ``prior_labels``, spread as the traffic is: with few labels it decides, with many it
    only fills the gaps. Blocks are read at their centre of mass, with straight lines between, so that g rises where
    the step function is flat (centred isotonic regression).
    """
    logistic = platt(cells.errors, cells.labels, cells.places)
    spread = 0.5 * prior_labels
    pseudo = cells.traffic * (spread / max(float(np.add.reduce(cells.traffic)), 1e-12))
    pseudo += cells.labels * (spread / max(float(np.add.reduce(cells.labels)), 1e-12))
    mass = cells.labels + pseudo
    used = np.flatnonzero(mass > _LEAST_MASS)
    if not len(used):
        return CalibrationMap(uncertainty=(0.5,), error_probability=(float(logistic[0]),))
    mass, value = mass[used], (cells.errors + pseudo * logistic)[used] / mass[used]
    level, first = pool(value, mass)
    centre = np.add.reduceat(mass * cells.logits[used], first) / np.add.reduceat(mass, first)
    return _thinned(np.minimum(np.maximum(level, 0.0), 1.0), _unlogit(centre))


def platt_map(cells: ErrorCells) -> CalibrationMap:
    """Return a logistic curve over the logit of u (Platt, 1999), read at the cells' centres."""
    return _thinned(platt(cells.errors, cells.labels, cells.places), _unlogit(cells.logits))


def map_fitter(name: Literal["isotonic", "platt"], prior_labels: float) -> MapFitter:
    """Return the fitter that a workload's settings name; ``prior_labels`` is of the isotonic map."""
    return platt_map if name == "platt" else partial(isotonic_map, prior_labels=prior_labels)


def _unlogit(logits: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def _thinned(level: Floats, knots: Floats) -> CalibrationMap:
    """Keep the first and the last knot, and between them those that rise noticeably above the one kept before."""
    values, places = level.tolist(), knots.tolist()
    kept, next_value, last_place = [0], values[0] + _LEAST_STEP, places[0]
    for index, value in enumerate(values):
        if value >= next_value and places[index] > last_place:
            kept.append(index)
            next_value, last_place = value + _LEAST_STEP, places[index]
    if kept[-1] != len(values) - 1 and places[-1] > last_place:
        kept.append(len(values) - 1)
    return CalibrationMap(
        uncertainty=tuple(places[index] for index in kept), error_probability=tuple(values[index] for index in kept)
    )


def pool(value: Floats, weight: Floats) -> tuple[Floats, Ints]:
    """Fit the non-decreasing step function that is closest to cell means, by their positive weights.

    Returns its levels, which increase, and the first cell of each block.

    Examples
    --------
    >>> level, first = pool(np.array([0.1, 0.4, 0.2, 0.9]), np.ones(4))
    >>> level.round(2).tolist(), first.tolist()
    ([0.1, 0.3, 0.9], [0, 1, 3])
    """
    # 140 MB that a process without the fit does without.
    from scipy.optimize import isotonic_regression

    result = isotonic_regression(value, weights=weight)
    first = np.asarray(result.blocks, dtype=np.intp)[:-1]
    return np.asarray(result.x)[first], first
