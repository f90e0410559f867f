"""Local-linear smoothing on the grid: fits curves over the cells to weighted sums by cell.

Curves of outcomes are not monotone (the large model's score among disagreements first rises with u), so that they are
smoothed, never forced into an order. Two passes of a moving mean give a triangular kernel, each by a few additions of
whole rows. At this size a call of numpy costs as much as its work: all rows pass a kernel together, and the lines under
both kernels are fitted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats, Ints

_LEAST_MASS = 1e-9
_LEAST_SQUARE = 1e-12
"""Below these a kernel holds nothing but the rounding errors of its moving sums."""


def kernel_sums(blocks: Sequence[Floats], *kernels: tuple[int, slice]) -> list[Floats]:
    """Sum each row over the cells around each cell, with triangular weights that are 1 at the centre.

    Parameters
    ----------
    blocks : sequence of ndarray, shape (rows, cells) each
    *kernels : tuple of int and slice
        Cells until the weight has fallen to 0, odd; and which to sum of the rows of all blocks.

    Returns
    -------
    list of ndarray, shape (rows of the slice, cells)
        One a kernel.

    Examples
    --------
    >>> kernel_sums([np.array([[0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0]])], (3, slice(1)))[0].tolist()
    [[0.0, 3.0, 6.0, 9.0, 6.0, 3.0, 0.0]]
    """
    # Rows one after the other, with so many zeros between them that no kernel reaches from one into the next.
    count, cells = sum(map(len, blocks)), blocks[0].shape[1]
    gap = max(width for width, _ in kernels) - 1
    stride = cells + gap
    flat = np.zeros(count * stride + 2 * gap)
    np.concatenate(blocks, out=flat[: count * stride].reshape(count, stride)[:, gap:])
    powers, results = [flat], []
    for width, wanted in kernels:
        first, last, _ = wanted.indices(count)
        size, begins = (last - first) * stride, gap - width // 2
        once = _moving_sums(powers, width, first * stride, size + 2 * gap)
        # What the first pass carries beyond the grid is lost to the second.
        between = once[:size].reshape(last - first, stride)
        between[:, :begins] = between[:, begins + cells :] = once[size:] = 0.0
        twice = _moving_sums([once], width)[gap - (width - 1) :]
        results.append(twice[:size].reshape(last - first, stride)[:, :cells] * (1.0 / width))
    return results


def _moving_sums(powers: list[Floats], width: int, first: int = 0, count: int | None = None) -> Floats:
    """Sum each ``width`` values in a row, from sums of 1, 2, 4, … of them: exactly 0 where all are 0.

    Parameters
    ----------
    powers : list of ndarray
        Its first entry are the values; the others follow as far as they are needed.
    width : int
        Odd, above 1.
    first, count : int
        The values to sum; by default all.
    """
    bits = width.bit_length()
    for bit in range(len(powers), bits):
        half, values = 2 ** (bit - 1), powers[-1]
        powers.append(values[:-half] + values[half:])
    length = (len(powers[0]) - first if count is None else count) - width + 1
    covered = first + 2 ** (bits - 1)
    parts = [powers[bits - 1][first : first + length]]
    for bit in range(bits - 1):
        if width & 2**bit:
            parts.append(powers[bit][covered : covered + length])
            covered += 2**bit
    sums = parts[0] + parts[1]
    for part in parts[2:]:
        sums += part
    return sums


@lru_cache(maxsize=8)
def kernel_mass(cells: int, width: int) -> Floats:
    """Return the sum of the kernel's weights at each cell, less at the ends of the grid; shape (cells,), read-only."""
    mass: Floats = kernel_sums([np.ones((1, cells))], (width, slice(1)))[0][0]
    mass.flags.writeable = False
    return mass


def kernel_mean(row: Floats, width: int) -> Floats:
    """Return the mean of one row under the kernel around each cell; shape (cells,)."""
    box = np.ones(width)
    sums = np.convolve(np.convolve(row, box, "same"), box, "same")
    means: Floats = sums / (width * kernel_mass(len(row), width))
    return means


@dataclass(frozen=True, slots=True)
class Family:
    """What groups of curves under one kernel are fitted to.

    Parameters
    ----------
    width : int
        Support of the kernel, in cells.
    weight, weight_square : ndarray, shape (groups, cells)
        Sums of the weights and of their squares.
    responses : ndarray, shape (responses, cells)
        Weighted sums.
    owner : ndarray of int, shape (responses,)
        The group of each response.
    """

    width: int
    weight: Floats
    weight_square: Floats
    responses: Floats
    owner: Ints


class Fitted(NamedTuple):
    """Curves of one family, (responses, cells), and Kish's effective labels behind them, (groups, cells)."""

    curves: Floats
    effective: Floats


def shrunk_local_linear(families: Sequence[Family], wide: int, prior: float, ridge: float = 0.1) -> list[Fitted]:
    """Fit a line around each cell and read it there; where labels are few, lean on a wider kernel, then on the mean.

    Parameters
    ----------
    families : sequence of Family
        Each group is fitted by itself.
    wide : int
        Support of the wider kernel, in cells.
    prior : float
        Labels that the wider curve is worth under the narrower one, and the mean under the wider.
    ridge : float
        Penalty on the slope, relative to a full kernel's spread; keeps lines flat where all data lie in few cells.

    Returns
    -------
    list of Fitted
        As ``families``.
    """
    part = _reach(families, wide)
    place = _places(families[0].weight.shape[1])[part]
    sums = _smoothed_moments(families, part, place, wide)
    widths = [family.width for family in families for _ in family.weight]
    penalty = np.square([[wide] * len(widths), widths]) * (ridge / 6.0)
    lines, near = _lines(_weights_alone(families, sums), place, penalty[:, :, None])
    # What each line counts for in the end: the narrow one first, the wide one in what that leaves, the mean last.
    share = near / (near + prior)
    share[0] *= 1.0 - share[1]
    rest = 1.0 - share[0] - share[1]
    lines *= share
    fits, first = list[Fitted](), 0
    for family, under in zip(families, sums, strict=True):
        own, mean = slice(first, first + len(family.weight)), _means(family)
        parts = lines[:, :, own].take(family.owner, axis=2)
        for kernel, moments in enumerate(under):
            parts[:, kernel] *= moments[4 * len(family.weight) :].reshape(2, len(family.owner), -1)
        # Where no label lies within reach the mean is all there is.
        curves, effective = np.empty(family.responses.shape), np.zeros(family.weight.shape)
        curves[:] = mean
        curves[:, part] = np.add.reduce(parts, axis=(0, 1)) + rest[own].take(family.owner, axis=0) * mean
        effective[:, part] = near[1, own]
        fits.append(Fitted(curves, effective))
        first = own.stop
    return fits


def _smoothed_moments(families: Sequence[Family], part: slice, place: Floats, wide: int) -> list[tuple[Floats, Floats]]:
    """Return what lies under the wide and under the narrow kernel at each cell, of each family.

    Returns
    -------
    list of tuple of ndarray, shape (4 * groups + 2 * responses, cells)
        Sums of the weights alone, times place and times its square, and of the squared weights; then of the responses,
        and of these times place.
    """
    blocks, spans, first = list[Floats](), list[slice](), 0
    for family in families:
        mass, counted = family.weight[:, part], family.responses[:, part]
        moment = mass * place
        blocks += (mass, moment, moment * place, family.weight_square[:, part], counted, counted * place)
        spans.append(slice(first, first + 4 * len(mass) + 2 * len(counted)))
        first = spans[-1].stop
    kernels = [(family.width, span) for family, span in zip(families, spans, strict=True)]
    widely, *narrowly = kernel_sums(blocks, (wide, slice(first)), *kernels)
    return [(widely[span], narrow) for span, narrow in zip(spans, narrowly, strict=True)]


def _weights_alone(families: Sequence[Family], sums: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return the first four of the sums, of all groups of all families; shape (4, kernels, groups, cells)."""
    parts = [
        moments[: 4 * len(family.weight)].reshape(4, len(family.weight), -1)
        for kernel in zip(*sums, strict=True)
        for family, moments in zip(families, kernel, strict=True)
    ]
    every = np.concatenate(parts, axis=1)
    return every.reshape(4, 2, -1, every.shape[2])


def _means(family: Family) -> Floats:
    """Return the mean of each response over all cells, shape (responses, 1)."""
    whole = np.maximum(np.add.reduce(family.weight, axis=1, keepdims=True), 1e-12)
    means: Floats = np.add.reduce(family.responses, axis=1, keepdims=True) / whole.take(family.owner, axis=0)
    return means


def _reach(families: Sequence[Family], width: int) -> slice:
    """Return the cells to which a kernel carries anything."""
    filled = np.flatnonzero(np.maximum.reduce([family.weight.max(axis=0) for family in families]))
    if not len(filled):
        return slice(0, families[0].weight.shape[1])
    return slice(max(0, int(filled[0]) - width + 1), int(filled[-1]) + width)


@lru_cache(maxsize=8)
def _places(cells: int) -> Floats:
    """Return the cells' places around the middle; shape (cells,), read-only."""
    place = np.arange(cells, dtype=np.float64) - (cells - 1) / 2.0
    place.flags.writeable = False
    return place


def _lines(sums: Floats, place: Floats, penalty: Floats) -> tuple[Floats, Floats]:
    """Return the weighted least-squares line around each cell, 0 where the kernel holds nothing.

    Parameters
    ----------
    sums : ndarray, shape (4, kernels, groups, cells)
        Of the weights alone, times place, times its square, and of the squared weights.
    place : ndarray, shape (cells,)
    penalty : ndarray, shape (kernels, groups, 1)
        Added to the spread of place.

    Returns
    -------
    lines : ndarray, shape (2, kernels, groups, cells)
        What the sum of a response, and that of it times place, count for in the line's value at the cell.
    effective : ndarray, shape (kernels, groups, cells)
        (Σw)² / Σw² under the kernel.
    """
    mass, first, second, squares = sums
    held = mass > _LEAST_MASS
    inverse = held / np.maximum(mass, _LEAST_MASS)
    centre = first * inverse
    spread = np.maximum(second * inverse - centre * centre, 0.0)
    spread += penalty
    # Level + slope · (place - centre), with both divided by the mass once: level · (1 - centre · lean) + moment · lean.
    lines = np.empty((2, *mass.shape))
    level, lean = lines
    np.divide((place - centre) * inverse, spread, out=lean)
    np.subtract(inverse, centre * lean, out=level)
    effective = (held & (squares > _LEAST_SQUARE)) * mass * mass / np.maximum(squares, _LEAST_SQUARE)
    return lines, effective
