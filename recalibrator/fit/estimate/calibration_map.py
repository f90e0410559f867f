"""The map g, fitted to error counts by cell: knots that a router can read, non-decreasing and never NaN.

Two fitters of it are offered. :class:`IsotonicMap` follows whatever shape the errors have; :class:`PlattMap` knows two
parameters alone, and needs few labels. A further one needs a line in :func:`map_fitter`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np

from recalibrator.fit.arrays import Floats, Ints
from recalibrator.fit.estimate.logistic import platt
from schemas.calibration import CalibrationMap

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
        scaled: Floats = (self.logits - (low + high) / 2.0) / ((high - low) / 2.0)
        return scaled


class MapFitter(Protocol):
    """Fits the map g from scratch at every refit."""

    @property
    def name(self) -> str:
        """As in the settings."""
        ...

    def fit(self, cells: ErrorCells) -> CalibrationMap:
        """Return the map; a pure function of the cells."""
        ...


class IsotonicMap:
    """Isotonic regression on cells, shrunk to a logistic map.

    The logistic map is worth ``prior_labels``, spread as the traffic is: with few labels it decides, with many it
    only fills the gaps. Blocks are read at their centre of mass, with straight lines between, so that g rises where
    the step function is flat (centred isotonic regression).
    """

    name = "isotonic"

    def __init__(self, prior_labels: float) -> None:
        self._prior_labels = prior_labels

    def fit(self, cells: ErrorCells) -> CalibrationMap:
        """Return the map."""
        logistic = platt(cells.errors, cells.labels, cells.places)
        spread = 0.5 * self._prior_labels
        pseudo = cells.traffic * (spread / max(float(np.add.reduce(cells.traffic)), 1e-12))
        pseudo += cells.labels * (spread / max(float(np.add.reduce(cells.labels)), 1e-12))
        mass = cells.labels + pseudo
        used = np.flatnonzero(mass > _LEAST_MASS)
        if not len(used):
            return CalibrationMap(uncertainty=(0.5,), error_probability=(float(logistic[0]),))
        mass, value = mass[used], (cells.errors + pseudo * logistic)[used] / mass[used]
        level, first, _ = pool(value, mass)
        centre = np.add.reduceat(mass * cells.logits[used], first) / np.add.reduceat(mass, first)
        return _thinned(np.minimum(np.maximum(level, 0.0), 1.0), _unlogit(centre))


class PlattMap:
    """A logistic curve over the logit of u (Platt, 1999), read at the cells' centres."""

    name = "platt"

    def fit(self, cells: ErrorCells) -> CalibrationMap:
        """Return the map."""
        return _thinned(platt(cells.errors, cells.labels, cells.places), _unlogit(cells.logits))


def map_fitter(name: Literal["isotonic", "platt"], prior_labels: float) -> MapFitter:
    """Return the fitter that a workload's settings name; ``prior_labels`` is of the isotonic map."""
    return PlattMap() if name == "platt" else IsotonicMap(prior_labels)


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
        uncertainty=tuple(places[index] for index in kept),
        error_probability=tuple(values[index] for index in kept),
    )


def pool(value: Floats, weight: Floats) -> tuple[Floats, Ints, Ints]:
    """Fit the non-decreasing step function that is closest to the values.

    Parameters
    ----------
    value, weight : ndarray, shape (cells,)
        Cell means and their positive weights.

    Returns
    -------
    level : ndarray of float, shape (blocks,)
        Increasing.
    first, last : ndarray of int, shape (blocks,)
        The first and last cell of each block.

    Examples
    --------
    >>> level, first, last = pool(np.array([0.1, 0.4, 0.2, 0.9]), np.ones(4))
    >>> level.round(2).tolist(), first.tolist(), last.tolist()
    ([0.1, 0.3, 0.9], [0, 1, 3], [0, 2, 3])
    """
    # 140 MB that a process without the fit does without.
    from scipy.optimize import isotonic_regression

    result = isotonic_regression(value, weights=weight)
    bounds = np.asarray(result.blocks, dtype=np.intp)
    return np.asarray(result.x)[bounds[:-1]], bounds[:-1], bounds[1:] - 1
