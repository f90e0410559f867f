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


def local_linear(weight: Floats, responses: Floats, width: int, ridge: float = 0.1) -> tuple[Floats, Floats]:
    """Fit a line around each cell and read it there.

    Parameters
    ----------
    weight : ndarray, shape (cells,)
        Sum of the observations' weights in each cell.
    responses : ndarray, shape (responses, cells)
        Weighted sums of each response.
    width : int
        Kernel support on either side, in cells.
    ridge : float
        Penalty on the slope, relative to a full kernel's spread; keeps lines flat where all data lie in few cells.

    Returns
    -------
    fitted : ndarray, shape (responses, cells)
        0 where the kernel holds nothing.
    mass : ndarray, shape (cells,)
        The kernel's sum of weights.
    """
    place = np.arange(len(weight), dtype=np.float64) - (len(weight) - 1) / 2.0
    count = len(responses)
    stacked = np.empty((3 + 2 * count, len(weight)))
    stacked[0], stacked[1], stacked[2] = weight, weight * place, weight * place * place
    stacked[3 : 3 + count] = responses
    stacked[3 + count :] = responses * place
    sums = kernel_sums(stacked, width)
    s0 = np.maximum(sums[0], 0.0)
    safe = np.maximum(s0, _LEAST_MASS)
    centre = sums[1] / safe
    level = sums[3 : 3 + count] / safe
    spread = np.maximum(sums[2] / safe - centre * centre, 0.0) + ridge * width * width / 6.0
    slope = (sums[3 + count :] / safe - centre * level) / spread
    fitted = level + slope * (place - centre)
    return np.where(s0 > _LEAST_MASS, fitted, 0.0), s0


def shrunk_local_linear(
    weight: Floats, weight_square: Floats, responses: Floats, width: int, wide: int, prior: float
) -> tuple[Floats, Floats]:
    """Smooth with a narrow kernel where there are labels, with a wide one where there are few, else take the mean.

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

    Returns
    -------
    fitted : ndarray, shape (responses, cells)
    effective : ndarray, shape (cells,)
        Kish's effective number of labels under the narrow kernel.
    """
    overall = (responses.sum(axis=1) / max(float(weight.sum()), 1e-12))[:, None]
    fitted = np.broadcast_to(overall, responses.shape)
    effective = np.zeros_like(weight)
    for support in (wide, width):
        curve, mass = local_linear(weight, responses, support)
        squares = kernel_sums(weight_square[None, :], support)[0]
        effective = np.where(squares > _LEAST_SQUARE, mass * mass / np.maximum(squares, _LEAST_SQUARE), 0.0)
        share = effective / (effective + prior)
        fitted = share * curve + (1.0 - share) * fitted
    return fitted, effective
