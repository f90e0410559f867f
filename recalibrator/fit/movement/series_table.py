"""Counts of many series, by block: the latest blocks one by one, and all before them together.

A series is a trait of the queries of one segment, or of all; its numbers are queries, and escalated ones, by category.
All series lie in one array, so that a test of all of them is a few operations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Floats, pack, unpack

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
        self._open = np.zeros((_ROOM, CATEGORIES, 2), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.series)

    def add(self, series: Series, category: str, queries: int, escalated: int) -> None:
        """Count queries of a category in the block that is open."""
        at = self._index.get(series)
        if at is None:
            if len(self.series) >= MOST_SERIES:
                return
            at = self._new(series)
        place = self._place(at, category)
        queries = min(queries, _COUNT_MOST)
        self._open[at, place, 0] += queries
        self._open[at, place, 1] += min(escalated, queries)

    def _new(self, series: Series) -> int:
        at = self._index[series] = len(self.series)
        self.series.append(series)
        self.categories.append([])
        if at == len(self._open):
            for name in ("_before", "_recent", "_open"):
                grown = getattr(self, name)
                setattr(self, name, np.concatenate([grown, np.zeros_like(grown)]))
        return at

    def _place(self, at: int, category: str) -> int:
        known = self.categories[at]
        if category in known:
            return known.index(category)
        if len(known) < CATEGORIES - 1 or (category == OTHER and len(known) < CATEGORIES):
            known.append(category)
            return len(known) - 1
        if OTHER not in known:
            known.append(OTHER)
        return known.index(OTHER)

    def close_block(self) -> None:
        """Make the open block the latest; the oldest recent one joins those before."""
        if self.filled == RECENT_BLOCKS:
            self._before += self._recent[:, 0]
            self._recent[:, :-1] = self._recent[:, 1:]
            heavy = self._before[:, :, 0].sum(axis=1) > _REFERENCE_MOST
            self._before[heavy] //= 2
            self.filled -= 1
        self._recent[:, self.filled] = self._open
        self.filled += 1
        self._open[:] = 0

    @property
    def arrays(self) -> tuple[Counts, Counts, Counts]:
        """All counts: before the recent blocks, in them, and in the open one; rows beyond the last series are room."""
        return self._before, self._recent, self._open

    @property
    def recent(self) -> Counts:
        """The latest blocks, oldest first, shape (series, blocks, categories, 2)."""
        return self._recent[: len(self), : self.filled]

    def splits(self) -> tuple[Floats, Floats]:
        """Return queries by category before and from each recent block on, shape (series, blocks, categories) each."""
        queries = self.recent[..., 0].astype(np.float64)
        sums = np.cumsum(queries, axis=1)
        before = self._before[: len(self), None, :, 0] + sums - queries
        return before, sums[:, -1:] - sums + queries

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
            "open": pack(self._open[:size]),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        for trait, segment, value in state["series"]:
            self._new(Series(trait, segment, value))
        self.categories = [list(names) for names in state["categories"]]
        self.filled = state["filled"]
        size = len(self)
        for name, array in (("before", self._before), ("recent", self._recent), ("open", self._open)):
            array[:size] = unpack(state[name], array[:size])
