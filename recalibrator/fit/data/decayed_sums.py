"""Decayed sums: what labels add up to, those of queries routed long ago weighing less.

A label counts half for every ``half_life`` labels routed after it. Instead of weighing all anew at each refit, a label
weighs 2^(rank / half life), its rank being the number of labels routed before it: later ones leave that as it is, and
one factor makes the weight of the newest label 1. Sums over the older labels are kept from refit to refit and go on
from there. Additions are made one by one in the order of time, wherever they go on from, so that the sums are the same
bytes as those of a window that was filled at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats, Ints
from recalibrator.fit.data.label_columns import (
    ERROR,
    GROUP,
    LABEL_PROBABILITY,
    OUTCOMES,
    PAIR,
    PREDICTED,
    ROUTED_US,
    STANDING,
)
from recalibrator.fit.data.label_table import LabelTable

LEAST_PROPENSITY = 1e-3
"""A label weighs no more than a thousand queries, however seldom it was asked for."""

_OPEN_ROWS = 256
"""The latest contributions, among which late labels still fall, are added up anew at each refit."""

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


class Order:
    """The slots of a table sorted by one of its columns, equal keys by slot.

    Parameters
    ----------
    room : int
        Rows of the table.

    Examples
    --------
    >>> order, keys = Order(4), np.array([3.0, 1.0, 2.0, 1.0])
    >>> order.merge(keys[:2]).tolist(), order.merge(keys).tolist()
    ([1, 0], [1, 3, 2, 0])
    """

    def __init__(self, room: int) -> None:
        self._slots = np.empty(room, dtype=np.intp)
        self._keys = np.empty(room)
        self._known = 0

    def forget(self) -> None:
        """Sort anew next time: keys have changed or rows have moved."""
        self._known = 0

    def merge(self, column: Floats) -> Ints:
        """Return all slots in order; costs what lies behind the first of those that came since the last call.

        Parameters
        ----------
        column : ndarray, shape (rows,)
            The keys; NaN comes last. Those known before have not changed.

        Returns
        -------
        ndarray of int, shape (rows,)
            Valid until the next call.
        """
        known, count = self._known, len(column)
        if known < count:
            fresh = column[known:]
            slots = np.argsort(fresh, kind="stable")
            fresh, slots = fresh[slots], slots + known
            places = np.searchsorted(self._keys[:known], fresh, side="right")
            first = int(places[0])
            places += np.arange(len(places)) - first
            stays = np.ones(count - first, dtype=bool)
            stays[places] = False
            for ordered, newcomers in ((self._slots, slots), (self._keys, fresh)):
                former = ordered[first:known].copy()
                tail = ordered[first:count]
                tail[stays], tail[places] = former, newcomers
            self._known = count
        return self._slots[:count]

    @property
    def keys(self) -> Floats:
        """The keys in order, as of the last :meth:`merge`."""
        return self._keys[: self._known]


class HalfLives(NamedTuple):
    """In labels: of the outcome curves, of what is recent, and of the map g."""

    slow: float
    fast: float
    map: float


@dataclass(frozen=True, slots=True)
class DecayedSums:
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


class LabelSums:
    """The order of a table's labels and their decayed sums, kept from refit to refit.

    Parameters
    ----------
    labels : LabelTable
        No other object may clear its ``changes``.
    """

    def __init__(self, labels: LabelTable) -> None:
        self.labels = labels
        self._rows_of_sums = np.arange(SUMS)[:, None] * labels.groups
        self._by_time, self._by_prediction = Order(labels.room), Order(labels.room)
        self._marks: list[_Mark] = []
        self._made_for: tuple[HalfLives, int | None, int] | None = None
        self._touched_us = np.inf

    def _refresh(self) -> None:
        """Take note of what has changed in the table."""
        changes = self.labels.changes
        if changes.reordered:
            self._by_time.forget()
        if changes.replaced:
            self._by_prediction.forget()
        routed_us = self.labels.table[:, ROUTED_US]
        self._touched_us = min(self._touched_us, float(routed_us[changes.rows :].min(initial=changes.earliest_us)))
        changes.clear(len(routed_us))

    def by_time(self) -> Ints:
        """Return the labels by routing time, shape (labels,)."""
        self._refresh()
        return self._by_time.merge(self.labels.table[:, ROUTED_US])

    def by_prediction(self) -> Ints:
        """Return the labels by g(u) as routed, those where it is unknown last; shape (labels,)."""
        self._refresh()
        return self._by_prediction.merge(self.labels.table[:, PREDICTED])

    def routed_since(self, instant_us: float) -> Ints:
        """Return the labels of queries routed at or after a time, by that time."""
        order = self.by_time()
        return order[int(np.searchsorted(self._by_time.keys, instant_us, side="left")) :]

    def newer(self) -> Ints:
        """Return for each label how many that count were routed after it, shape (labels,)."""
        order, table, counting = self.by_time(), self.labels.table, self.labels.counting
        counts = np.ones(len(order)) if counting == len(order) else table[order, STANDING] > 0.0
        after = counting - np.cumsum(counts, dtype=np.intp)
        times = self._by_time.keys
        last = np.append(times[1:] != times[:-1], True)
        if not last.all():  # equal times share the age of the newest among them, so that their order is irrelevant
            after = after[last][np.cumsum(last) - last]
        result = np.empty(len(order), dtype=np.intp)
        result[order] = after
        return result

    def recent_weight(self, since_us: float, half_life: float) -> Floats:
        """Return by group the decayed weight of what was routed since a time: of all that counts, and of pairs.

        Parameters
        ----------
        since_us : float
        half_life : float
            In labels; the newest one weighs 1.

        Returns
        -------
        ndarray, shape (2, groups)
        """
        rows = self.labels.table.take(self.routed_since(since_us), axis=0)
        counts = rows[:, STANDING] > 0.0
        rows = rows if counts.all() else rows[counts]
        weight = np.exp2((_ranks(rows[:, ROUTED_US]) - (len(rows) - 1)) / half_life)
        group, groups = rows[:, GROUP].astype(np.intp), self.labels.groups
        return np.stack([np.bincount(group, mass, groups) for mass in (weight, weight * rows[:, PAIR])])

    def decayed_sums(self, half_lives: HalfLives, changed_us: int | None) -> DecayedSums:
        """Return the sums by group of all that counts, older labels weighing less.

        Parameters
        ----------
        half_lives : HalfLives
        changed_us : int or None
            Labels of queries routed before then are added up apart.
        """
        order, table, counting_labels = self.by_time(), self.labels.table, self.labels.counting
        step = int(_HALVINGS_MOST * min(half_lives))
        origin = max(0, counting_labels - 1) // step * step
        if self._made_for != (half_lives, changed_us, origin):
            self._made_for = (half_lives, changed_us, origin)
            self._marks.clear()
        while self._marks and self._marks[-1].last_us >= self._touched_us:
            self._marks.pop()
        self._touched_us = np.inf
        mark = self._marks[-1] if self._marks else self._start(changed_us)
        rows = table.take(order[mark.rows :], axis=0)
        counts = rows[:, STANDING] > 0.0
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
        return _Mark(0, -np.inf, 0, 0, 0, None, np.zeros((parts, SUMS, self.labels.groups)))

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
        # One addition after the other, in order: the sums do not depend on where they went on from.
        places = self._rows_of_sums + columns[GROUP].astype(np.intp)
        np.add.at(sums.reshape(-1), places.reshape(-1), values.reshape(-1))


def _ranks(routed_us: Floats) -> Floats:
    """Return how many rows lie before the last one of the same time: equal times count as equally old."""
    if (routed_us[1:] == routed_us[:-1]).any():
        return np.searchsorted(routed_us, routed_us, side="right").astype(np.float64) - 1.0
    return np.arange(len(routed_us), dtype=np.float64)


def _relative(whole: _Mark, half_lives: HalfLives, origin: int) -> DecayedSums:
    """Make the weight of the newest label 1."""
    newest = max(0, whole.labels - 1) - origin
    slow, fast, of_map = (2.0 ** (-newest / half_life) for half_life in half_lives)
    scale = np.empty(SUMS)
    scale[SLOW], scale[FAST] = slow, fast
    scale[[SLOW_SQUARE, SLOW_SQUARE_PAIR, FAST_SQUARE, FAST_QUERIES]] = slow * slow, slow * slow, fast * fast, fast
    scale[[MAP_LABELS, MAP_ERRORS]] = of_map
    sums = whole.sums
    sums *= scale[:, None]
    return DecayedSums(
        before=sums[0] if len(sums) > 1 else None,
        since=sums[-1],
        labels=whole.labels,
        pairs=whole.pairs,
        fresh=whole.labels - whole.before_change,
        window_us=None if whole.span_us is None else (int(whole.span_us[0]), int(whole.span_us[1])),
    )
