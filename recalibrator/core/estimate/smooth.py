"""Local-linear smoothing on the grid: weighted sums by cell flow in, curves over the cells flow out.

Curves of outcomes are not monotone (the large model's score among disagreements first rises with u), so that they are
smoothed, never forced into an order. Two passes of a moving mean give a triangular kernel, each by a few additions of
whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST_MASS = 1e-9
_LEAST_SQUARE = 1e-12
"""Below these a kernel holds nothing but the rounding errors of its moving sums."""


def kernel_sums(rows: Floats, *widths: int) -> list[Floats]:
    """Sum each row over the cells around each cell, with triangular weights that are 1 at the centre.

    Parameters
    ----------
    rows : ndarray, shape (rows, cells)
    *widths : int
        Cells until the weight has fallen to 0; odd.

    Returns
    -------
    list of ndarray, shape (rows, cells)
        One a width.

    Examples
    --------
    >>> kernel_sums(np.array([[0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0]]), 3)[0].tolist()
    [[0.0, 3.0, 6.0, 9.0, 6.0, 3.0, 0.0]]
    """
    # Rows one after the other, with so many zeros between them that no kernel reaches from one into the next.
    count, cells = rows.shape
    gap = max(widths) - 1
    stride = cells + gap
    flat = np.zeros(count * stride + 2 * gap)
    flat[: count * stride].reshape(count, stride)[:, gap:] = rows
    powers, results = [flat], []
    for width in widths:
        once, begins = _moving_sums(powers, width), gap - width // 2
        # What the first pass carries beyond the grid is lost to the second.
        between = once[: count * stride].reshape(count, stride)
        between[:, :begins] = between[:, begins + cells :] = once[count * stride :] = 0.0
        twice = _moving_sums([once], width)[gap - (width - 1) :]
        results.append(twice[: count * stride].reshape(count, stride)[:, :cells] * (1.0 / width))
    return results


def _moving_sums(powers: list[Floats], width: int) -> Floats:
    """Sum each ``width`` values in a row, from sums of 1, 2, 4, … of them: exactly 0 where all are 0.

    Parameters
    ----------
    powers : list of ndarray
        Its first entry are the values; the others follow as far as they are needed.
    width : int
        Odd, above 1.
    """
    bits = width.bit_length()
    for bit in range(len(powers), bits):
        half, values = 2 ** (bit - 1), powers[-1]
        powers.append(values[:-half] + values[half:])
    sums, covered = powers[bits - 1], 2 ** (bits - 1)
    for bit in range(bits - 1):
        if width & 2**bit:
            sums = sums[: -(2**bit)] + powers[bit][covered : covered + len(sums) - 2**bit]
            covered += 2**bit
    return sums


@lru_cache(maxsize=8)
def kernel_mass(cells: int, width: int) -> Floats:
    """Return the sum of the kernel's weights at each cell, less at the ends of the grid; shape (cells,), read-only."""
    mass: Floats = kernel_sums(np.ones((1, cells)), width)[0][0]
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
    cells = len(groups[0].weight)
    weight = np.array([group.weight for group in groups])
    part = _reach(weight, wide)
    responses = np.concatenate([group.responses for group in groups])
    owner, bounds, every = _layout(tuple(len(group.responses) for group in groups), cells)
    place, mass = every[part], weight[:, part]
    moment, counted = mass * place, responses[:, part]
    rows = np.concatenate(
        (mass, moment, moment * place, [group.weight_square[part] for group in groups], counted, counted * place)
    )
    mean = (responses.sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-12)[owner])[:, None]
    curve, near = mean, mass
    for support, sums in zip((wide, width), kernel_sums(rows, wide, width), strict=True):
        line, near = _lines(sums, owner, place, ridge * support * support / 6.0)
        line -= curve
        line *= (near / (near + prior)).take(owner, axis=0)
        line += curve
        curve = line
    # Where no label lies within reach the mean is all there is.
    fitted, effective = np.empty(responses.shape), np.zeros(weight.shape)
    fitted[:] = mean
    fitted[:, part], effective[:, part] = curve, near
    return tuple(Fitted(fitted[rows], one) for rows, one in zip(bounds, effective, strict=True))


def _reach(weight: Floats, width: int) -> slice:
    """Return the cells to which a kernel carries anything."""
    filled = np.flatnonzero(weight.any(axis=0))
    if not len(filled):
        return slice(0, weight.shape[1])
    return slice(max(0, int(filled[0]) - width + 1), int(filled[-1]) + width)


@lru_cache(maxsize=32)
def _layout(counts: tuple[int, ...], cells: int) -> tuple[NDArray[np.intp], tuple[slice, ...], Floats]:
    """Return the group of each response, the responses of each group, and the cells' places around the middle."""
    owner = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts).tolist()
    place = np.arange(cells, dtype=np.float64) - (cells - 1) / 2.0
    for constant in (owner, place):
        constant.flags.writeable = False
    return owner, tuple(slice(end - count, end) for end, count in zip(ends, counts, strict=True)), place


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
    held = mass > _LEAST_MASS
    inverse = 1.0 / np.maximum(mass, _LEAST_MASS)
    centre = first * inverse
    spread = second * inverse - centre * centre
    lean = (place - centre) / (np.maximum(spread, 0.0) + ridge)
    effective = mass * mass / np.maximum(squares, _LEAST_SQUARE)
    effective *= held & (squares > _LEAST_SQUARE)
    # Level + slope · (place - centre), with both divided by the mass once: level · (1 - centre · lean) + moment · lean.
    inverse *= held
    lean *= inverse
    level = inverse - centre * lean
    fitted = sums[4 * groups : 4 * groups + len(owner)] * level.take(owner, axis=0)
    fitted += sums[4 * groups + len(owner) :] * lean.take(owner, axis=0)
    return fitted, effective
