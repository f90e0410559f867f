"""Local-linear smoothing on the grid: weighted sums by cell flow in, curves over the cells flow out.

Curves of outcomes are not monotone (the large model's score among disagreements first rises with u), so that they are
smoothed, never forced into an order. Two passes of a moving mean give a triangular kernel at a cost that does not
depend on its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

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
    means = uniform_filter1d(rows, width, axis=1, mode="constant")
    return np.asarray(uniform_filter1d(means, width, axis=1, mode="constant")) * width


@lru_cache(maxsize=8)
def kernel_mass(cells: int, width: int) -> Floats:
    """Return the sum of the kernel's weights at each cell, less at the ends of the grid; shape (cells,), read-only."""
    mass: Floats = kernel_sums(np.ones((1, cells)), width)[0]
    mass.flags.writeable = False
    return mass


@dataclass(frozen=True, slots=True)
class Sums:
    """What one group of curves is fitted to.

    Parameters
    ----------
    weight, weight_square : ndarray, shape (cells,)
        Sums of the weights and of their squares.
    responses : ndarray, shape (responses, cells)
        Weighted sums.
    """

    weight: Floats
    weight_square: Floats
    responses: Floats


class Fitted(NamedTuple):
    """Curves of one group, shape (responses, cells), and Kish's effective labels behind them, shape (cells,)."""

    curves: Floats
    effective: Floats


def shrunk_local_linear(
    groups: Sequence[Sums], width: int, wide: int, prior: float, ridge: float = 0.1
) -> tuple[Fitted, ...]:
    """Fit a line around each cell and read it there; where labels are few, lean on a wider kernel, then on the mean.

    Parameters
    ----------
    groups : sequence of Sums
        Fitted each by itself, in one pass over all.
    width, wide : int
        Supports of both kernels, in cells.
    prior : float
        Labels that the wider curve is worth under the narrower one, and the mean under the wider.
    ridge : float
        Penalty on the slope, relative to a full kernel's spread; keeps lines flat where all data lie in few cells.

    Returns
    -------
    tuple of Fitted
        As ``groups``.
    """
    counts = [len(group.responses) for group in groups]
    owner = np.repeat(np.arange(len(groups)), counts)
    responses = np.concatenate([group.responses for group in groups])
    place = np.arange(responses.shape[1], dtype=np.float64) - (responses.shape[1] - 1) / 2.0
    weight = np.stack([group.weight for group in groups])
    rows = np.concatenate(
        (
            weight,
            weight * place,
            weight * (place * place),
            np.stack([group.weight_square for group in groups]),
            responses,
            responses * place,
        )
    )
    fitted = (responses.sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-12)[owner])[:, None]
    effective = np.zeros_like(weight)
    for support in (wide, width):
        curve, effective = _lines(kernel_sums(rows, support), owner, place, ridge * support * support / 6.0)
        fitted = fitted + (effective / (effective + prior))[owner] * (curve - fitted)
    bounds = np.cumsum([0, *counts])
    return tuple(
        Fitted(fitted[first:last], one) for first, last, one in zip(bounds, bounds[1:], effective, strict=False)
    )


def _lines(sums: Floats, owner: NDArray[np.intp], place: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Read the weighted least-squares line of each response at each cell, 0 where the kernel holds nothing.

    Parameters
    ----------
    sums : ndarray, shape (4 * groups + 2 * responses, cells)
        Kernel sums of each group's weight alone, times place, times its square, of its squared weight; then of the
        responses, and of these times place.
    owner : ndarray of int, shape (responses,)
        The group of each response.
    place : ndarray, shape (cells,)
    ridge : float
        Added to the spread of place.

    Returns
    -------
    fitted : ndarray, shape (responses, cells)
    effective : ndarray, shape (groups, cells)
        (Σw)² / Σw² under the kernel.
    """
    groups = (len(sums) - 2 * len(owner)) // 4
    mass, first, second, squares = sums[: 4 * groups].reshape(4, groups, -1)
    safe = np.maximum(mass, _LEAST_MASS)
    centre = first / safe
    lean = (place - centre) / (np.maximum(second / safe - centre * centre, 0.0) + ridge)
    empty = mass <= _LEAST_MASS
    effective = np.where(empty | (squares <= _LEAST_SQUARE), 0.0, mass * mass / np.maximum(squares, _LEAST_SQUARE))
    # Level + slope · (place - centre), with both divided by the mass once: level · (1 - centre · lean) + moment · lean.
    inverse = np.where(empty, 0.0, 1.0 / safe)
    fitted = sums[4 * groups : 4 * groups + len(owner)] * (inverse * (1.0 - centre * lean))[owner]
    fitted += sums[4 * groups + len(owner) :] * (inverse * lean)[owner]
    return fitted, effective
