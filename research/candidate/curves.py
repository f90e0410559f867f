"""The offline set → curves over the cells of u: what is expected of a query of each u, and how z varies there.

z = 2·TP − τ·(predicted + gold). All curves are local-linear in the rank of the labels that they rest on, so that the
bandwidth follows where labels are: a share of the labels, and no number of cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.grid import Grid

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DIMENSIONS = 7
"""Of a world's deviation from the offline curves: level and slope of logit A, of s0 and of l0; level of z1."""
_LEAST_CHANCE = 0.003


class Labels(NamedTuple):
    """Labelled queries, shape (labels,) each.

    ``at``: when the query was routed, in queries or seconds. ``agree``: 1 or 0 where both models ran, else -1.
    ``small``, ``large``: z of both answers; the large one's counts only where it ran. ``size``: predicted plus gold
    pairs.
    """

    at: Floats
    cell: Ints
    agree: Ints
    small: Floats
    large: Floats
    size: Floats


@dataclass(frozen=True, slots=True)
class Curves:
    """What is expected at each u in the offline world, shape (cells,) each.

    ``place``: standardised logit of u: mean 0 and spread 1 where agreement is open. ``logit``: of A(u) = P(both answers
    are equal | u). ``equal``, ``small``, ``large``: E[z | equal], E[z small | different], E[z large | different].
    ``noise``: ndarray, shape (3, cells); variances of a single z around these three. ``size``: E[predicted + gold].
    ``weight``: size over its mean: the shape of a failure that both models share. ``slopes``: ndarray, shape (3,); of
    the three curves against ``logit`` along u.
    """

    place: Floats
    logit: Floats
    equal: Floats
    small: Floats
    large: Floats
    noise: Floats
    size: Floats
    weight: Floats
    slopes: Floats

    @property
    def agreement(self) -> Floats:
        """A(u)."""
        return 1.0 / (1.0 + np.exp(-self.logit))


def fit_curves(labels: Labels, logits: Floats, narrow: float, wide: float) -> Curves:
    """Fit all curves.

    ``labels``: pairs only count. ``logits``: ndarray, shape (cells,); of the cells' centres. ``narrow``, ``wide``:
    bandwidths, as shares of the labels: of agreement and size, and of z given agreement.
    """
    cells = len(logits)
    pair = labels.agree >= 0
    known = Labels(*(column[pair] for column in labels))
    equal, apart = known.agree == 1, known.agree == 0

    def sums(which: NDArray[np.bool_], values: Floats | None = None) -> Floats:
        return np.bincount(known.cell[which], None if values is None else values[which], cells).astype(np.float64)

    def curve(which: NDArray[np.bool_], values: Floats, width: float) -> Floats:
        return smooth(sums(which), sums(which, values), width)

    every = np.ones(len(known.cell), dtype=bool)
    chance = np.clip(curve(every, equal.astype(np.float64), narrow), _LEAST_CHANCE, 1.0 - _LEAST_CHANCE)
    logit = np.log(chance / (1.0 - chance))
    of_equal, of_small, of_large = (
        curve(which, values, wide)
        for which, values in ((equal, known.small), (apart, known.small), (apart, known.large))
    )
    noise = np.stack(
        [
            _noise(
                curve(which, (values - mean[known.cell]) ** 2, wide),
                float(((values - mean[known.cell]) ** 2)[which].mean()),
            )
            for which, values, mean in (
                (equal, known.small, of_equal),
                (apart, known.small, of_small),
                (apart, known.large, of_large),
            )
        ]
    )
    size = np.maximum(curve(every, known.size, narrow), 0.0)
    open_ = sums(every) * chance * (1.0 - chance)
    mean = float(open_ @ logits / open_.sum())
    spread = float(np.sqrt(open_ @ (logits - mean) ** 2 / open_.sum()))
    slopes = np.array(
        [
            _slope(logit, values, sums(which))
            for which, values in ((equal, of_equal), (apart, of_small), (apart, of_large))
        ]
    )
    return Curves(
        np.clip((logits - mean) / spread, -2.5, 2.5),
        logit,
        of_equal,
        of_small,
        of_large,
        noise,
        size,
        size / float(known.size.mean()),
        slopes,
    )


def smooth(count: Floats, total: Floats, width: float) -> Floats:
    """Return a local-linear curve of total / count over cells, in the rank of what is counted.

    ``count``, ``total``: ndarray, shape (cells,). ``width``: standard deviation of the kernel, as a share of all.
    """
    rank = (np.cumsum(count) - 0.5 * count) / max(count.sum(), 1e-12)
    away = rank[None, :] - rank[:, None]
    kernel = np.exp(-0.5 * (away / width) ** 2)
    mass, first, second = kernel @ count, (kernel * away) @ count, (kernel * away**2) @ count
    level, moment = kernel @ total, (kernel * away) @ total
    second += 0.1 * mass * width**2
    return np.asarray((level * second - moment * first) / (mass * second - first**2))


def _noise(near: Floats, overall: float) -> Floats:
    """Return variances, never far below the overall one: where no error was seen yet the spread is not nil."""
    return np.maximum(near, 0.0) * 0.8 + 0.2 * overall


def _slope(along: Floats, values: Floats, weight: Floats) -> float:
    share = weight / weight.sum()
    away = along - share @ along
    return float((share * away) @ values / max((share * away) @ away, 1e-12))


class Outlook(NamedTuple):
    """What a world with some η shows at each u: A(u), and E[z] given agreement, (..., cells) each."""

    agree: Floats
    equal: Floats
    small: Floats
    large: Floats


def outlook(curves: Curves, eta: Floats) -> Outlook:
    """Return what worlds show; ``eta`` has shape (..., DIMENSIONS)."""
    place, part = curves.place, [eta[..., number, None] for number in range(DIMENSIONS)]
    line = part[0] + part[1] * place
    return Outlook(
        1.0 / (1.0 + np.exp(-(curves.logit + line))),
        curves.equal + curves.slopes[0] * line + part[6] * curves.weight,
        curves.small + curves.slopes[1] * line + part[2] + part[3] * place,
        curves.large + curves.slopes[2] * line + part[4] + part[5] * place,
    )


def gradients(curves: Curves, seen: Outlook) -> tuple[Floats, Floats]:
    """Return how E[z small | u] and E[z large | u] move with η, shape (cells, DIMENSIONS) each, for one world."""
    line = np.stack((np.ones(len(curves.place)), curves.place), axis=1)
    agree = seen.agree
    none, apart, both = np.zeros_like(line), (1.0 - agree)[:, None] * line, (agree * curves.weight)[:, None]
    of_small, of_large = (
        (agree * (1.0 - agree) * (seen.equal - model) + agree * curves.slopes[0] + (1.0 - agree) * slope)[:, None]
        * line
        for model, slope in ((seen.small, curves.slopes[1]), (seen.large, curves.slopes[2]))
    )
    return (
        np.concatenate((of_small, apart, none, both), axis=1),
        np.concatenate((of_large, none, apart, both), axis=1),
    )


def kept_info(curves: Curves, eta: Floats, count: Floats, total: Floats) -> tuple[Floats, Floats]:
    """Return what labels of small answers alone say about η, expanded at some η.

    ``eta``: ndarray, shape (DIMENSIONS,). ``count``, ``total``: ndarray, shape (rows, cells); labels and their z.

    Returns info, of shape (rows, DIMENSIONS, DIMENSIONS), and vec, of shape (rows, DIMENSIONS).
    """
    seen = outlook(curves, eta)
    h, _ = gradients(curves, seen)
    a, gap = seen.agree, seen.equal - seen.small
    v = a * curves.noise[0] + (1.0 - a) * curves.noise[1] + a * (1.0 - a) * gap**2
    scaled = h / v[:, None]
    info = (count @ (scaled[:, :, None] * h[:, None, :]).reshape(len(h), -1)).reshape(-1, DIMENSIONS, DIMENSIONS)
    mean = a * seen.equal + (1.0 - a) * seen.small
    return info, (total - count * (mean - h @ eta)) @ scaled


def grouped(curves: Curves, weight: Floats, size: int) -> Curves:
    """Return curves over groups of so many neighbouring cells, their means by a weight of shape (cells,)."""
    whole = weight.reshape(-1, size).sum(axis=1)

    def means(values: Floats) -> Floats:
        return (weight * values).reshape(*values.shape[:-1], -1, size).sum(axis=-1) / whole

    names = ("place", "logit", "equal", "small", "large", "noise", "size", "weight")
    return Curves(**{name: means(getattr(curves, name)) for name in names}, slopes=curves.slopes)


def equations(curves: Curves, labels: Labels) -> tuple[Floats, Floats, Floats, Ints]:
    """Return what labelled pairs say about a world's deviation η: linear equations h·η = r with variance v.

    Returns h, of shape (equations, DIMENSIONS); r and v; and the label that each equation belongs to: a pair that
    differs gives two.
    """
    parts = [_of_equal(curves, labels), *_of_different(curves, labels)]
    h, r, v, label = (np.concatenate([part[place] for part in parts]) for place in range(4))
    return h, r, v, label


def _rows(curves: Curves, cell: Ints) -> tuple[Floats, Floats]:
    return np.zeros((len(cell), DIMENSIONS)), np.stack((np.ones(len(cell)), curves.place[cell]), axis=1)


def _of_equal(curves: Curves, labels: Labels) -> tuple[Floats, Floats, Floats, Ints]:
    which = np.flatnonzero(labels.agree == 1)
    cell = labels.cell[which]
    h, line = _rows(curves, cell)
    h[:, 0:2], h[:, 6] = curves.slopes[0] * line, curves.weight[cell]
    return h, labels.small[which] - curves.equal[cell], curves.noise[0, cell], which


def _of_different(curves: Curves, labels: Labels) -> list[tuple[Floats, Floats, Floats, Ints]]:
    which = np.flatnonzero(labels.agree == 0)
    cell = labels.cell[which]
    found = []
    for number, (mean, z) in enumerate(((curves.small, labels.small), (curves.large, labels.large)), start=1):
        h, line = _rows(curves, cell)
        h[:, 0:2], h[:, 2 * number : 2 * number + 2] = curves.slopes[number] * line, line
        found.append((h, z[which] - mean[cell], curves.noise[number, cell], which))
    return found


def cells_of(grid: Grid, u: Floats) -> tuple[Bools, Ints]:
    """Return which queries have a u, and the cell of each; any where u is unknown."""
    known = ~np.isnan(u)
    return known, grid.indices(np.where(known, u, 0.5))


def counts_by_cell(grid: Grid, u: Floats, ran: Bools, agree: Bools) -> tuple[Floats, Floats, Floats]:
    """Return how many queries of known u, pairs and agreeing pairs fell into each cell."""
    known, cell = cells_of(grid, u)
    pairs = known & ran

    def count(which: Bools) -> Floats:
        return np.bincount(cell[which], minlength=grid.cells).astype(np.float64)

    return count(known), count(pairs), count(pairs & agree)
