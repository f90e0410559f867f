"""Pool adjacent violators on cells: at most a few hundred values, at any number of labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from recalibrator.fit.estimate.smoothing import Floats


def pool(value: Floats, weight: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
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
    result = isotonic_regression(value, weights=weight)
    bounds = np.asarray(result.blocks, dtype=np.intp)
    return np.asarray(result.x)[bounds[:-1]], bounds[:-1], bounds[1:] - 1
