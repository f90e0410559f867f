"""Counts of many series, by block: the latest blocks one by one, and all before them together.

A series is a trait of the queries of one segment, or of all; its numbers are queries, and escalated ones, by category.
All series lie in one array, so that a test of all of them is a few operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Floats, pack, unpack
from recalibrator.fit.movement.dispersion import Scatter, pair_scatter

RECENT_BLOCKS = 24
"""How far back a change may have begun."""

CATEGORIES = 12
MOST_SERIES = 512
OTHER = "other"
_REFERENCE_MOST = 50_000
"""Queries before the recent blocks; beyond it the older ones count half, again and again."""

_COUNT_MOST = 2**31
_ROOM = 32
Counts = NDArray[np.int64]


class Series(NamedTuple):
    """What is counted: a trait, of all queries or of those of a segment's value."""

    trait: str
    segment: str | None = None
    value: str | None = None


class SeriesTable:
    """Series with their blocks.

    A category beyond :data:`CATEGORIES` counts as ``other``, a series beyond :data:`MOST_SERIES` not at all.
    """

    def __init__(self) -> None:
        self.series: list[Series] = []
        self.categories: list[list[str]] = []
        self._index: dict[Series, int] = {}
        self.filled = 0
        self._before = np.zeros((_ROOM, CATEGORIES, 2), dtype=np.int64)
        self._recent = np.zeros((_ROOM, RECENT_BLOCKS, CATEGORIES, 2), dtype=np.int64)
        # The open block, by series: queries and escalated ones of each category in turn. Single additions to an array
        # take ten times as long as to a list.
        self._counts: list[list[int]] = []
        self._places: list[dict[str, int]] = []
        # Of pairs of blocks the first of which has left the recent ones: observed, expected.
        self._scatter = np.zeros((_ROOM, CATEGORIES, 2))
        self._pairs = np.zeros((_ROOM, 1))

    def __len__(self) -> int:
        return len(self.series)

    def add(self, series: Series, categories: Mapping[str, Sequence[int]]) -> None:
        """Count queries in the block that is open.

        Parameters
        ----------
        series : Series
        categories : mapping of str to (int, int)
            Queries of each category, and those of them that escalated.
        """
        at = self._index.get(series)
        if at is None:
            if len(self.series) >= MOST_SERIES:
                return
            at = self._new(series)
        counts, known = self._counts[at], self._places[at]
        for category, (queries, escalated) in categories.items():
            place = known.get(category)
            place = self._place(at, category) if place is None else place
            counted = min(queries, _COUNT_MOST)
            counts[2 * place] += counted
            counts[2 * place + 1] += min(escalated, counted)

    def add_one(self, series: Series, category: str) -> None:
        """Count one query that did not escalate; what :meth:`add` does for many, at half the cost."""
        at = self._index.get(series)
        place = None if at is None else self._places[at].get(category)
        if at is None or place is None:
            self.add(series, {category: (1, 0)})
        else:
            self._counts[at][2 * place] += 1

    def _new(self, series: Series) -> int:
        at = self._index[series] = len(self.series)
        self.series.append(series)
        self.categories.append([])
        self._places.append({})
        self._counts.append([0] * (2 * CATEGORIES))
        if at == len(self._before):
            for name in ("_before", "_recent", "_scatter", "_pairs"):
                grown = getattr(self, name)
                setattr(self, name, np.concatenate([grown, np.zeros_like(grown)]))
        return at

    def _place(self, at: int, category: str) -> int:
        """Return where a category that has no place yet is counted."""
        known = self._places[at]
        if len(known) < CATEGORIES - 1 or (category == OTHER and len(known) < CATEGORIES):
            name = category
        elif OTHER in known:
            return known[OTHER]
        else:
            name = OTHER
        self.categories[at].append(name)
        known[name] = len(known)
        return known[name]

    def close_block(self) -> None:
        """Make the open block the latest; the oldest recent one joins those before."""
        if self.filled == RECENT_BLOCKS:
            self._keep_scatter()
            size = len(self)
            self._before += self._recent[:, 0]
            self._recent[:size, :-1] = self._recent[:size, 1:]
            heavy = self._before[:, :, 0].sum(axis=1) > _REFERENCE_MOST
            if heavy.any():
                self._before[heavy] //= 2
                self._scatter[heavy] /= 2.0
                self._pairs[heavy] /= 2.0
            self.filled -= 1
        self._recent[: len(self), self.filled] = self.open
        self.filled += 1
        self._counts = [[0] * (2 * CATEGORIES) for _ in self._counts]

    def _keep_scatter(self) -> None:
        size = len(self)
        leaving = pair_scatter(self._recent[:size, :2, :, 0].astype(np.float64))
        self._scatter[:size, :, 0] += leaving.observed[:, 0]
        self._scatter[:size, :, 1] += leaving.expected[:, 0]
        self._pairs[:size] += leaving.pairs

    def scatter(self) -> tuple[Scatter, Scatter]:
        """Return how much neighbouring blocks differ: of all pairs, and of the pair before each recent block."""
        size = len(self)
        recent = pair_scatter(self.recent[..., 0].astype(np.float64))
        known = Scatter(
            self._scatter[:size, :, 0] + recent.observed.sum(axis=1),
            self._scatter[:size, :, 1] + recent.expected.sum(axis=1),
            self._pairs[:size, 0] + recent.pairs.sum(axis=1),
        )
        # The block before the first recent one is among those before, and cannot be taken out.
        spared = Scatter(*(np.concatenate([np.zeros_like(one[:, :1]), one], axis=1) for one in recent))
        return known, spared

    @property
    def open(self) -> Counts:
        """The counts of the block that is open, shape (series, categories, 2)."""
        return np.array(self._counts, dtype=np.int64).reshape(len(self), CATEGORIES, 2)

    @property
    def nbytes(self) -> int:
        """Size of the arrays, room for further series included."""
        return sum(one.nbytes for one in (self._before, self._recent, self._scatter, self._pairs))

    @property
    def recent(self) -> Counts:
        """The latest blocks, oldest first, shape (series, blocks, categories, 2)."""
        return self._recent[: len(self), : self.filled]

    def splits(self) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
        """Return queries by category before and from each recent block on, and how many these are.

        Returns
        -------
        before, after : ndarray, shape (series, blocks, categories)
        sizes : tuple of ndarray, shape (series, blocks)
            Their sums over categories.
        """
        queries = self.recent[..., 0].astype(np.float64)
        sums = np.cumsum(queries, axis=1)
        sums += self._before[: len(self), None, :, 0]
        before, whole = sums - queries, sums[:, -1:]
        # Whole numbers: their sums are exact in any order, and adding up short rows costs more than all else here.
        size_before = np.add.reduce(before, axis=-1)
        return before, whole - before, (size_before, np.add.reduce(whole, axis=-1) - size_before)

    def part(self, block: int) -> tuple[Counts, Counts]:
        """Return the counts before a recent block and from it on, shape (series, categories, 2) each."""
        recent = self.recent
        return self._before[: len(self)] + recent[:, :block].sum(axis=1), recent[:, block:].sum(axis=1)

    def begin_with(self, counts: Counts) -> None:
        """Forget all blocks, and let these counts be what was before; shape (series, categories, 2)."""
        self._before[:] = 0
        self._before[: len(counts)] = counts
        self._recent[:] = 0
        self.filled = 0

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        size = len(self)
        return {
            "series": [list(one) for one in self.series],
            "categories": self.categories,
            "filled": self.filled,
            "before": pack(self._before[:size]),
            "recent": pack(self._recent[:size]),
            "open": pack(self.open),
            "scatter": pack(self._scatter[:size]),
            "pairs": pack(self._pairs[:size]),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        for trait, segment, value in state["series"]:
            self._new(Series(trait, segment, value))
        self.categories = [list(names) for names in state["categories"]]
        self.filled = state["filled"]
        size = len(self)
        self._places = [{name: at for at, name in enumerate(names)} for names in self.categories]
        for name, array in (("before", self._before), ("recent", self._recent)):
            array[:size] = unpack(state[name], array[:size])
        self._counts = unpack(state["open"], self._before[:size]).reshape(size, 2 * CATEGORIES).tolist()
        self._scatter[:size] = unpack(state["scatter"], self._scatter[:size])
        self._pairs[:size] = unpack(state["pairs"], self._pairs[:size])
