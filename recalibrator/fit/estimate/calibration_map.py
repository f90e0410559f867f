"""The map g: error counts by cell flow in, knots that a router can read flow out, non-decreasing and never NaN."""

from __future__ import annotations

import numpy as np

from recalibrator.fit.estimate.isotonic import pool
from recalibrator.fit.estimate.logistic import platt
from recalibrator.fit.estimate.smoothing import Floats
from recalibrator.grid import Grid
from schemas.calibration import CalibrationMap

_LEAST_STEP = 1.0 / 512.0
_LEAST_MASS = 1e-9
"""In labels; a cell with less holds rounding errors alone."""


def fit_map(grid: Grid, errors: Floats, weight: Floats, shift: Floats, traffic: Floats, prior: float) -> CalibrationMap:
    """Fit g by isotonic regression on cells, shrunk to a logistic map.

    The logistic map is worth ``prior`` labels, spread as the traffic is: with few labels it decides, with many it
    only fills the gaps. Blocks are read at their centre of mass, with straight lines between, so that g rises where
    the step function is flat (centred isotonic regression).

    Parameters
    ----------
    grid : Grid
    errors, weight : ndarray, shape (cells,)
        Weighted sums of small errors and of labels.
    shift : ndarray, shape (cells,)
        What the agreement tilt adds to P(error | u).
    traffic : ndarray, shape (cells,)
        Share of current queries in each cell.
    prior : float
        In labels.
    """
    errors = np.minimum(np.maximum(errors + shift * weight, 0.0), weight)
    logistic = platt(errors, weight, grid.standard_logits)
    spread = 0.5 * prior
    pseudo = traffic * (spread / max(float(np.add.reduce(traffic)), 1e-12))
    pseudo += weight * (spread / max(float(np.add.reduce(weight)), 1e-12))
    mass = weight + pseudo
    used = np.flatnonzero(mass > _LEAST_MASS)
    if not len(used):
        return CalibrationMap(uncertainty=(0.5,), error_probability=(float(logistic[0]),))
    mass, value = mass[used], (errors + pseudo * logistic)[used] / mass[used]
    level, first, _ = pool(value, mass)
    centre = np.add.reduceat(mass * grid.logits[used], first) / np.add.reduceat(mass, first)
    knots = 1.0 / (1.0 + np.exp(-centre))
    return _thinned(np.minimum(np.maximum(level, 0.0), 1.0), knots)


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
