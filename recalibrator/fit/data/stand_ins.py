"""Recent traffic where small calls are stopped early: who was not seen is stood for by who is alike.

The u of a stopped query is not known. It is distributed like that of the *spared* ones: queries that would have been
stopped, and were drawn to run in full. How many there are of both is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Floats, Ints

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StandIns:
    """Queries, those that stand for others among them; what follows of them is computed when it is asked for.

    Parameters
    ----------
    known, spared : ndarray of int, shape (cells,)
        Queries of known u by cell, and the spared ones of these.
    sums : mapping
        Of the same traffic: ``queries``, ``stopped``, ``small_failed``, ``spared_failed`` and ``spared_kept``.
    """

    known: Counts
    spared: Counts
    sums: Mapping[str, float]

    @property
    def _spared(self) -> float:
        return float(self.spared.sum()) + self.sums["spared_failed"]

    @property
    def weight(self) -> float:
        """How many queries each spared one stands for; at least 1.

        A ratio of what was counted, with less noise than one over the share that is drawn to run in full.
        """
        stopped = self.sums["stopped"]
        return 1.0 + stopped / spared if stopped > 0.0 and (spared := self._spared) > 0.0 else 1.0

    @property
    def by_cell(self) -> Floats:
        """Queries by their u, shape (cells,)."""
        counted: Floats = self.known.astype(np.float64)
        if (weight := self.weight) > 1.0:
            counted += (weight - 1.0) * self.spared
        return counted

    @property
    def effective_queries(self) -> float:
        """How many queries of known u would show as much: (Σw)² / Σw² (Kish, 1965)."""
        queries, weight = self.sums["queries"], self.weight
        if weight == 1.0:
            return queries
        spared = self._spared
        squares = queries - self.sums["stopped"] - spared + weight * weight * spared
        return min(queries, queries * queries / squares)

    @property
    def failed_share(self) -> float:
        """Share of queries whose small answer failed, or would have, in [0, 1]."""
        failed = self.sums["small_failed"] + (self.weight - 1.0) * self.sums["spared_failed"]
        queries = self.sums["queries"]
        return min(1.0, max(0.0, failed / queries)) if queries > 0.0 else 0.0

    @property
    def needless_share(self) -> float | None:
        """Share of queries that escalated only as they were stopped, in [0, 1]; None while none was spared."""
        if self.sums["queries"] <= 0.0 or self._spared <= 0.0:
            return None
        return min(1.0, (self.weight - 1.0) * self.sums["spared_kept"] / self.sums["queries"])

    def spread(self, cell: Ints, others: StandIns) -> tuple[Ints, Floats]:
        """Return how the u of some other queries is distributed, whose stand-ins are few.

        Spared ones count where they are. Stopped ones count by their number, spread over the cells as all stand-ins
        here are: a detector must take neither few spared queries for many, nor chance among them for a change.

        Parameters
        ----------
        cell : ndarray of int, shape (filled,)
            Cells of the others.
        others : StandIns
            Of these cells alone.

        Returns
        -------
        ndarray of int, ndarray of float
            Cells and queries in them, equal shapes.
        """
        counted = others.known.astype(np.float64)
        if self.weight == 1.0:
            return cell, counted
        queries = self.spared.astype(np.float64) * (others.sums["stopped"] / self._spared)
        queries[cell] += counted
        return np.arange(len(queries)), queries
