"""Labels of queries that another labeler has labelled again later: kept, in case the later one cannot be believed.

Of several labelers' opinions on a query the latest counts. A single labeler could therefore overrule all others; where
one is set aside, what they had overruled has to stand again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Floats, pack, unpack
from recalibrator.fit.data.label_columns import COLUMNS, LABELER, REVISION


class Contribution(NamedTuple):
    """One label as the window keeps it: its row of the table, and its counts by field."""

    row: Floats
    per_field: NDArray[np.int32]

    @property
    def labeler(self) -> float:
        """The labeler's number."""
        return float(self.row[LABELER])

    @property
    def revision(self) -> float:
        """Its place among the query's labels."""
        return float(self.row[REVISION])


class Overruled:
    """The latest label of each query that another labeler's label stands before.

    Parameters
    ----------
    fields : int
        Of the workload.
    """

    def __init__(self, fields: int) -> None:
        self._fields = fields
        self._by_query: dict[str, Contribution] = {}

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

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        per_field = [label.per_field for label in self._by_query.values()]
        return {
            "ids": list(self._by_query),
            "rows": pack(self.rows()),
            "per_field": pack(np.stack(per_field) if per_field else np.zeros((0, self._fields, 3), dtype=np.int32)),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        ids = state["ids"]
        rows = unpack(state["rows"], np.zeros((len(ids), COLUMNS)))
        per_field = unpack(state["per_field"], np.zeros((len(ids), self._fields, 3), dtype=np.int32))
        self._by_query = {one: Contribution(*kept) for one, *kept in zip(ids, rows, per_field, strict=True)}
