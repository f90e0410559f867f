"""Local-linear smoothing on the grid: weighted sums by cell flow in, curves over the cells flow out.

Curves of outcomes are not monotone (the large model's score among disagreements first rises with u), so that they are
smoothed, never forced into an order. Two passes of a moving sum give a triangular kernel at a cost that does not
depend on its width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST_MASS = 1e-9
_LEAST_SQUARE = 1e-12
"""Below these a kernel holds nothing but the rounding errors of its moving sums."""


def kernel_sums(rows: Floats, width: int) -> Floats:
    """Sum each row over the cells around each cell, with triangular weights that are 1 at the centre.

    Parameters
    ----------
    rows : ndarray, shape (rows, cells)
    width : int
        Cells until the weight has fallen to 0; odd.

    Returns
    -------
    ndarray, shape (rows, cells)

    Examples
    --------
    >>> kernel_sums(np.array([[0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0]]), 3).tolist()
    [[0.0, 3.0, 6.0, 9.0, 6.0, 3.0, 0.0]]
    """
    return _moving_sums(_moving_sums(rows, width), width) / width


def _moving_sums(rows: Floats, width: int) -> Floats:
    half = width // 2
    cells = rows.shape[1]
    running = np.zeros((rows.shape[0], cells + 2 * half + 1))
    np.cumsum(rows, axis=1, out=running[:, half + 1 : half + 1 + cells])
    running[:, half + 1 + cells :] = running[:, half + cells : half + cells + 1]
    return running[:, 2 * half + 1 :] - running[:, :cells]


def shrunk_local_linear(
    weight: Floats, weight_square: Floats, responses: Floats, width: int, wide: int, prior: float, ridge: float = 0.1
) -> tuple[Floats, Floats]:
    """Fit a line around each cell and read it there; where labels are few, lean on a wider kernel, then on the mean.

    Parameters
    ----------
    weight, weight_square : ndarray, shape (cells,)
        Sums of the weights and of their squares.
    responses : ndarray, shape (responses, cells)
        Weighted sums.
    width, wide : int
        Supports of both kernels, in cells.
    prior : float
        Labels that the wider curve is worth under the narrower one, and the mean under the wider.
    ridge : float
        Penalty on the slope, relative to a full kernel's spread; keeps lines flat where all data lie in few cells.

    Returns
    -------
    fitted : ndarray, shape (responses, cells)
    effective : ndarray, shape (cells,)
        Kish's effective number of labels under the narrow kernel.
    """
    count, cells = responses.shape
    place = np.arange(cells, dtype=np.float64) - (cells - 1) / 2.0
    rows = np.empty((4 + 2 * count, cells))
    rows[0], rows[1], rows[3] = weight, weight * place, weight_square
    np.multiply(rows[1], place, out=rows[2])
    rows[4 : 4 + count] = responses
    np.multiply(responses, place, out=rows[4 + count :])
    fitted = (responses.sum(axis=1) / max(float(weight.sum()), 1e-12))[:, None]
    effective = np.zeros(cells)
    for support in (wide, width):
        curve, effective = _line(kernel_sums(rows, support), place, ridge * support * support / 6.0)
        fitted = fitted + effective / (effective + prior) * (curve - fitted)
    return fitted, effective


def _line(sums: Floats, place: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Read the weighted least-squares line of each response at each cell, 0 where the kernel holds nothing.

    Parameters
    ----------
    sums : ndarray, shape (4 + 2 * responses, cells)
        Kernel sums of the weight alone, times place, times its square; of the squared weight; of the responses, and
        of these times place.
    place : ndarray, shape (cells,)
    ridge : float
        Added to the spread of place.

    Returns
    -------
    fitted : ndarray, shape (responses, cells)
    effective : ndarray, shape (cells,)
        (Σw)² / Σw² under the kernel.
    """
    count = (len(sums) - 4) // 2
    mass, squares, level = sums[0], sums[3], sums[4 : 4 + count]
    safe = np.maximum(mass, _LEAST_MASS)
    centre = sums[1] / safe
    level /= safe
    spread = np.maximum(sums[2] / safe - centre * centre, 0.0) + ridge
    slope = (sums[4 + count :] / safe - centre * level) * ((place - centre) / spread)
    empty = mass <= _LEAST_MASS
    effective = np.where(empty | (squares <= _LEAST_SQUARE), 0.0, mass * mass / np.maximum(squares, _LEAST_SQUARE))
    fitted = np.where(empty, 0.0, level + slope)
    return fitted, effective
