"""Exponentially forgotten sums: contributions in order of time flow in, their weighted sums by group flow out.

A label counts half for every ``half_life`` labels routed after it. Instead of weighing all anew at each look, a label
weighs 2^(rank / half life), its rank being the number of labels routed before it: later ones leave that as it is, and
one factor makes the weight of the newest label 1. Sums over the older labels are kept from look to look and go on
from there. Additions are made one by one in the order of time, wherever they go on from, so that the sums are the same
bytes as those of a window that was filled at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.data.table import COUNTS, ERROR, GROUP, LABEL_PROBABILITY, OUTCOMES, PAIR, ROUTED_US

Floats = NDArray[np.float64]

LEAST_PROPENSITY = 1e-3
"""A label weighs no more than a thousand queries, however seldom it was asked for."""

_OPEN_ROWS = 256
"""The latest contributions, among which late labels still fall, are added up anew at each look."""

_MARKS = 4
_ROWS_AT_ONCE = 4_096
_HALVINGS_MOST = 256
"""Ranks are counted from where no weight, nor its square, leaves the range of a float."""

SLOW = slice(0, OUTCOMES)
SLOW_SQUARE, SLOW_SQUARE_PAIR = OUTCOMES, OUTCOMES + 1
FAST = slice(OUTCOMES + 2, 2 * OUTCOMES + 2)
FAST_SQUARE, FAST_QUERIES, MAP_LABELS, MAP_ERRORS = range(2 * OUTCOMES + 2, 2 * OUTCOMES + 6)
SUMS = 2 * OUTCOMES + 6
"""Rows of the sums: outcomes by the slow weights, the squares of these, and those of pairs alone; outcomes by the fast
weights, their squares, and the fast weights by inverse propensity; labels and errors by the weights of the map."""


class HalfLives(NamedTuple):
    """In labels: of the outcome curves, of what is recent, and of the map g."""

    slow: float
    fast: float
    map: float


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Sums over all contributions that count, those routed before a change apart from those since.

    Parameters
    ----------
    before, since : ndarray, shape (``SUMS``, groups)
        The newest label weighs 1. Before is None where nothing has changed.
    labels, pairs, fresh : int
        Contributions that count; of these, where both models ran; of these, those since the change.
    window_us : tuple of int or None
        First and last routing time of what counts.
    """

    before: Floats | None
    since: Floats
    labels: int
    pairs: int
    fresh: int
    window_us: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Mark:
    """The sums over the first rows in order; ``last_us`` is the time of the last of them."""

    rows: int
    last_us: float
    labels: int
    pairs: int
    before_change: int
    span_us: tuple[float, float] | None
    sums: Floats


class Forgetting:
    """The sums of one window, kept from look to look.

    Parameters
    ----------
    groups : int
        As many as the column ``GROUP`` tells apart.
    """

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._rows_of_sums = np.arange(SUMS)[:, None] * groups
        self._marks: list[_Mark] = []
        self._made_for: tuple[HalfLives, int | None, int] | None = None

    def forget(self) -> None:
        """Keep nothing: rows have moved or left."""
        self._marks.clear()

    def look(
        self,
        table: Floats,
        order: NDArray[np.intp],
        labels: int,
        half_lives: HalfLives,
        changed_us: int | None,
        touched_us: float,
    ) -> Forgotten:
        """Return the sums as of now.

        Parameters
        ----------
        table : ndarray, shape (contributions, ``COLUMNS``)
        order : ndarray of int, shape (contributions,)
            Slots by routing time.
        labels : int
            Contributions that count.
        half_lives : HalfLives
        changed_us : int or None
            From when on the world is another; contributions are told apart there.
        touched_us : float
            The earliest routing time of what came, changed or was withdrawn since the last look.
        """
        step = int(_HALVINGS_MOST * min(half_lives))
        origin = max(0, labels - 1) // step * step
        if self._made_for != (half_lives, changed_us, origin):
            self._made_for = (half_lives, changed_us, origin)
            self._marks.clear()
        while self._marks and self._marks[-1].last_us >= touched_us:
            self._marks.pop()
        mark = self._marks[-1] if self._marks else self._start(changed_us)
        rows = table.take(order[mark.rows :], axis=0)
        counts = rows[:, COUNTS] > 0.0
        counting, begins = rows if counts.all() else rows[counts], mark.rows
        rank = _ranks(counting[:, ROUTED_US]) + (mark.labels - origin)
        weight = np.exp2(np.array([[1.0 / half_life] for half_life in half_lives]) * rank)
        # Marks are set where late labels will seldom fall before the last of them.
        first = 0
        for open_rows in (8 * _OPEN_ROWS, 4 * _OPEN_ROWS, 2 * _OPEN_ROWS, _OPEN_ROWS):
            upto = len(rows) - open_rows
            if upto >= mark.rows - begins + _OPEN_ROWS:
                last = first + int(np.count_nonzero(counts[mark.rows - begins : upto]))
                mark = self._advance(
                    mark,
                    begins + upto,
                    rows[upto - 1, ROUTED_US],
                    counting[first:last],
                    weight[:, first:last],
                    changed_us,
                )
                self._marks = [*self._marks[1 - _MARKS :], mark]
                first = last
        whole = self._advance(mark, len(order), 0.0, counting[first:], weight[:, first:], changed_us)
        return _relative(whole, half_lives, origin)

    def _start(self, changed_us: int | None) -> _Mark:
        parts = 1 if changed_us is None else 2
        return _Mark(0, -np.inf, 0, 0, 0, None, np.zeros((parts, SUMS, self._groups)))

    def _advance(
        self, mark: _Mark, rows: int, last_us: float, counting: Floats, weight: Floats, changed_us: int | None
    ) -> _Mark:
        """Add the next rows that count, in order."""
        sums, routed_us = mark.sums.copy(), counting[:, ROUTED_US]
        old = 0 if changed_us is None else int(np.searchsorted(routed_us, changed_us, side="left"))
        for part, begins, ends in ((sums[0], 0, old), (sums[-1], old, len(counting))):
            for first in range(begins, ends, _ROWS_AT_ONCE):
                piece = slice(first, min(ends, first + _ROWS_AT_ONCE))
                self._add(part, counting[piece], weight[:, piece])
        span = mark.span_us
        if len(counting):
            span = (float(routed_us[0]) if span is None else span[0], float(routed_us[-1]))
        pairs = mark.pairs + int(np.count_nonzero(counting[:, PAIR]))
        return _Mark(rows, last_us, mark.labels + len(counting), pairs, mark.before_change + old, span, sums)

    def _add(self, sums: Floats, rows: Floats, weight: Floats) -> None:
        slow, fast, of_map = weight
        columns = np.ascontiguousarray(rows.T)
        values = np.empty((SUMS, len(rows)))
        np.multiply(columns[:OUTCOMES], slow, out=values[SLOW])
        np.multiply(slow, slow, out=values[SLOW_SQUARE])
        np.multiply(values[SLOW_SQUARE], columns[PAIR], out=values[SLOW_SQUARE_PAIR])
        np.multiply(columns[:OUTCOMES], fast, out=values[FAST])
        np.multiply(fast, fast, out=values[FAST_SQUARE])
        np.divide(fast, np.maximum(columns[LABEL_PROBABILITY], LEAST_PROPENSITY), out=values[FAST_QUERIES])
        values[MAP_LABELS] = of_map
        np.multiply(of_map, columns[ERROR], out=values[MAP_ERRORS])
        # One addition after the other, in order: the sums do not tell where a look went on from.
        places = self._rows_of_sums + columns[GROUP].astype(np.intp)
        np.add.at(sums.reshape(-1), places.reshape(-1), values.reshape(-1))


def latest(rows: Floats, half_life: float, groups: int) -> Floats:
    """Return the forgotten weight of the newest contributions by group.

    Parameters
    ----------
    rows : ndarray, shape (contributions, ``COLUMNS``)
        By routing time, the newest of all last.
    half_life : float
        In labels; the newest one weighs 1.
    groups : int

    Returns
    -------
    ndarray, shape (2, groups)
        Of all that count, and of those where both models ran.
    """
    rows = rows[rows[:, COUNTS] > 0.0]
    weight = np.exp2((_ranks(rows[:, ROUTED_US]) - (len(rows) - 1)) / half_life)
    group = rows[:, GROUP].astype(np.intp)
    return np.stack([np.bincount(group, mass, groups) for mass in (weight, weight * rows[:, PAIR])])


def _ranks(routed_us: Floats) -> Floats:
    """Return how many rows lie before the last one of the same time: equal times count as equally old."""
    if (routed_us[1:] == routed_us[:-1]).any():
        return np.searchsorted(routed_us, routed_us, side="right").astype(np.float64) - 1.0
    return np.arange(len(routed_us), dtype=np.float64)


def _relative(whole: _Mark, half_lives: HalfLives, origin: int) -> Forgotten:
    """Make the weight of the newest label 1."""
    newest = max(0, whole.labels - 1) - origin
    slow, fast, of_map = (2.0 ** (-newest / half_life) for half_life in half_lives)
    scale = np.empty(SUMS)
    scale[SLOW], scale[FAST] = slow, fast
    scale[[SLOW_SQUARE, SLOW_SQUARE_PAIR, FAST_SQUARE, FAST_QUERIES]] = slow * slow, slow * slow, fast * fast, fast
    scale[[MAP_LABELS, MAP_ERRORS]] = of_map
    sums = whole.sums
    sums *= scale[:, None]
    return Forgotten(
        before=sums[0] if len(sums) > 1 else None,
        since=sums[-1],
        labels=whole.labels,
        pairs=whole.pairs,
        fresh=whole.labels - whole.before_change,
        window_us=None if whole.span_us is None else (int(whole.span_us[0]), int(whole.span_us[1])),
    )
