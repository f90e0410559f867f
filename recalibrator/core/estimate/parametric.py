"""A logistic map on the logit of u: what isotonic regression is shrunk to while labels are few (Platt, 1999)."""

from __future__ import annotations

import numpy as np

from recalibrator.core.estimate.smooth import Floats

_NEWTON_STEPS = 8
_RIDGE = 1.0
_SETTLED = 1e-9


def platt(errors: Floats, weight: Floats, place: Floats) -> Floats:
    """Fit P(error | u) = 1 / (1 + exp(-(b + s·x))) with s ≥ 0 by penalised Newton steps.

    Parameters
    ----------
    errors, weight : ndarray, shape (cells,)
        Weighted sums of errors and of labels.
    place : ndarray, shape (cells,)
        x, the standardised logit of u.

    Returns
    -------
    ndarray, shape (cells,)
        Non-decreasing, inside (0, 1). With labels of one kind alone it stays inside too: both kinds are given half a
        label more (Platt's correction).

    Examples
    --------
    >>> g = platt(np.array([0.0, 5.0, 10.0]), np.full(3, 10.0), np.array([-1.0, 0.0, 1.0]))
    >>> bool(g[0] < 0.3 < 0.7 < g[2])
    True
    """
    total, wrong = float(weight.sum()), float(errors.sum())
    share = (wrong + 0.5) / (total + 1.0)
    filled = np.flatnonzero(weight)
    design = np.stack((np.ones(len(filled)), place[filled]))
    count = weight[filled] * (total + 1.0) / max(total, 1e-12)
    hits = errors[filled] + share * (count - weight[filled])
    prior = np.array((np.log(share / (1.0 - share)), 0.0))
    penalty = np.array((_RIDGE * 0.01, _RIDGE * 0.05))
    parameters = prior.copy()
    for _ in range(_NEWTON_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(parameters @ design, -30.0), 30.0)))
        hessian = (design * (count * chance * (1.0 - chance))) @ design.T
        inverse = inverse_of(hessian, penalty[0] + 1e-6, penalty[1] + 1e-6)
        step = inverse @ (design @ (hits - count * chance) - penalty * (parameters - prior))
        parameters = parameters + np.minimum(np.maximum(step, -3.0), 3.0)
        if max(abs(step[0]), abs(step[1])) < _SETTLED:
            break
    level, slope = float(parameters[0]), float(parameters[1])
    if slope < 0.0:
        return np.full(len(place), share)
    return 1.0 / (1.0 + np.exp(-np.clip(level + slope * place, -30.0, 30.0)))


def inverse_of(matrix: Floats, first_ridge: float, second_ridge: float) -> Floats:
    """Return the inverse of a symmetric 2 × 2 matrix with a ridge on its diagonal; positive definite.

    Examples
    --------
    >>> inverse_of(np.array([[1.0, 1.0], [1.0, 3.0]]), 0.0, 2.0).tolist()
    [[1.25, -0.25], [-0.25, 0.25]]
    """
    a, b, d = float(matrix[0, 0]) + first_ridge, float(matrix[0, 1]), float(matrix[1, 1]) + second_ridge
    scale = 1.0 / (a * d - b * b)
    return np.array(((d * scale, -b * scale), (-b * scale, a * scale)))
