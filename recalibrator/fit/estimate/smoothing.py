"""Local-linear smoothing on the grid: fits curves over the cells to weighted sums by cell.

Curves of outcomes are not monotone (the large model's score among disagreements first rises with u), so that they are
smoothed, never forced into an order. Two passes of a moving mean give a triangular kernel. At this size a call of numpy
costs as much as its work: all rows pass a kernel together, and the lines under both kernels are fitted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats, Ints

_LEAST_MASS = 1e-9
_LEAST_SQUARE = 1e-12
"""Below these a kernel holds nothing but the rounding errors of its moving sums."""

_RIDGE = 0.1
"""Penalty on the slope, relative to a full kernel's spread; keeps lines flat where all data lie in few cells."""


def kernel_sums(rows: Floats, width: int) -> Floats:
    """Sum each row over the cells around each cell, with triangular weights that are 1 at the centre.

    ``width``: cells until the weight has fallen to 0, odd.

    Examples
    --------
    >>> kernel_sums(np.array([[0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0]]), 3).round(12).tolist()
    [[0.0, 3.0, 6.0, 9.0, 6.0, 3.0, 0.0]]
    """
    # 140 MB that a process without the fit does without.
    from scipy.ndimage import uniform_filter1d

    once = uniform_filter1d(rows, width, mode="constant")
    return np.asarray(uniform_filter1d(once, width, mode="constant") * width)


@lru_cache(maxsize=8)
def kernel_mass(cells: int, width: int) -> Floats:
    """Return the sum of the kernel's weights at each cell, less at the ends of the grid; shape (cells,), read-only."""
    mass: Floats = kernel_sums(np.ones((1, cells)), width)[0]
    mass.flags.writeable = False
    return mass


def kernel_mean(row: Floats, width: int) -> Floats:
    """Return the mean of one row under the kernel around each cell; shape (cells,)."""
    return np.asarray(kernel_sums(row[None], width)[0] / kernel_mass(len(row), width))


@dataclass(frozen=True, slots=True)
class Family:
    """What groups of curves under one kernel are fitted to."""

    #: Support of the kernel, in cells.
    width: int
    #: ``weight`` and ``weight_square``, shape (groups, cells): sums of the weights and of their squares.
    weight: Floats
    weight_square: Floats
    #: Shape (responses, cells): weighted sums.
    responses: Floats
    #: Shape (responses,): the group of each response.
    owner: Ints


class Fitted(NamedTuple):
    """Curves of one family, (responses, cells), and Kish's effective labels behind them, (groups, cells)."""

    curves: Floats
    effective: Floats


def shrunk_local_linear(families: Sequence[Family], wide: int, prior: float) -> list[Fitted]:
    """Fit a line around each cell and read it there; where labels are few, lean on a wider kernel, then on the mean.

    Returns the fits in the order of ``families``. Each group is fitted by itself. ``wide`` is the support of the wider
    kernel, in cells; ``prior`` are the labels that the wider curve is worth under the narrower one, and the mean under
    the wider.
    """
    part = _reach(families, wide)
    place = _places(families[0].weight.shape[1])[part]
    sums = _smoothed_moments(families, part, place, wide)
    widths = [family.width for family in families for _ in family.weight]
    penalty = np.square([[wide] * len(widths), widths]) * (_RIDGE / 6.0)
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

    Shape (4 * groups + 2 * responses, cells): sums of the weights alone, times place and times its square, and of the
    squared weights; then of the responses, and of these times place.
    """
    sums = []
    for family in families:
        mass, counted = family.weight[:, part], family.responses[:, part]
        moment = mass * place
        blocks = (mass, moment, moment * place, family.weight_square[:, part], counted, counted * place)
        rows = np.concatenate(blocks)
        sums.append((kernel_sums(rows, wide), kernel_sums(rows, family.width)))
    return sums


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
    return np.asarray(np.add.reduce(family.responses, axis=1, keepdims=True) / whole.take(family.owner, axis=0))


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
    """Return the weighted least-squares line around each cell, 0 where the kernel holds nothing, and (Σw)² / Σw² there.

    ``lines``, shape (2, kernels, groups, cells): what the sum of a response, and that of it times place, count for in
    the line's value at the cell. ``sums``, shape (4, kernels, groups, cells), are of the weights alone, times place,
    times its square, and of the squared weights; ``penalty``, shape (kernels, groups, 1), is added to the spread of
    place.
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
