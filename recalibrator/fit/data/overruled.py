"""Labels of queries that another labeler has labelled again later: kept, in case the later one cannot be believed.

Of several labelers' opinions on a query the latest counts. A single labeler could therefore outvote all others; where
one is set aside, the labels they had superseded have to count again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats, Numbers
from recalibrator.fit.codec import Kept
from recalibrator.fit.data.label_columns import COLUMNS, LABELER, REVISION


class Contribution(NamedTuple):
    """One label as the window keeps it: its row of the table, and its counts by field."""

    row: Floats
    per_field: Numbers

    @property
    def labeler(self) -> float:
        """The labeler's number."""
        return float(self.row[LABELER])

    @property
    def revision(self) -> float:
        """Its place among the query's labels."""
        return float(self.row[REVISION])


class Overruled:
    """The latest label of each query that another labeler's label stands before."""

    _by_query: Kept[dict[str, Contribution]]

    def __init__(self) -> None:
        self._by_query = {}

    def put(self, query_id: str, label: Contribution) -> None:
        """Keep one label, instead of an earlier one."""
        kept = self._by_query.get(query_id)
        if kept is None or kept.revision < label.revision:
            self._by_query[query_id] = label

    def get(self, query_id: str) -> Contribution | None:
        """Return what is kept of a query."""
        return self._by_query.get(query_id)

    def drop(self, query_id: str) -> None:
        """Keep nothing of a query."""
        self._by_query.pop(query_id, None)

    def replace(self, query_id: str, label: Contribution) -> None:
        """Keep this label, whatever was kept."""
        self._by_query[query_id] = label

    def keep_only(self, query_ids: dict[str, int]) -> None:
        """Keep nothing of other queries than these."""
        self._by_query = {query_id: kept for query_id, kept in self._by_query.items() if query_id in query_ids}

    def queries(self) -> list[str]:
        """Return the queries of which something is kept."""
        return list(self._by_query)

    def rows(self) -> Floats:
        """Return all rows, shape (labels, ``COLUMNS``)."""
        if not self._by_query:
            return np.zeros((0, COLUMNS))
        return np.stack([label.row for label in self._by_query.values()])

    def convert(self, counts: Callable[[Numbers], Numbers]) -> None:
        """Keep other counts by field from now on."""
        self._by_query = {one: Contribution(row, counts(held)) for one, (row, held) in self._by_query.items()}
