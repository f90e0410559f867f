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


def with_counts(packed: str, counts: int, like: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return packed counts by field in the shape of ``like``; those that the snapshot lacks are -1, not known.

    Parameters
    ----------
    packed : str
        From :func:`~recalibrator.fit.arrays.pack`.
    counts : int
        Of each field in it.
    like : ndarray of int, shape (labels, fields, counts)
    """
    labels, fields, wanted = like.shape
    held = unpack(packed, np.zeros((labels, fields, counts), dtype=np.int32))
    found = np.full_like(like, -1)
    kept = min(counts, wanted)
    found[:, :, :kept] = held[:, :, :kept]
    return found


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
    counts : int
        Of each field.
    """

    def __init__(self, fields: int, counts: int = 3) -> None:
        self._fields, self._counts = fields, counts
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
            "per_field": pack(np.stack(per_field) if per_field else self._blank(0)),
        }

    def _blank(self, labels: int) -> NDArray[np.int32]:
        return np.zeros((labels, self._fields, self._counts), dtype=np.int32)

    def load(self, state: dict[str, Any], counts: int = 3) -> None:
        """Take a former :meth:`state` back, which held so many counts of each field."""
        ids = state["ids"]
        rows = unpack(state["rows"], np.zeros((len(ids), COLUMNS)))
        per_field = with_counts(state["per_field"], counts, self._blank(len(ids)))
        self._by_query = {one: Contribution(*kept) for one, *kept in zip(ids, rows, per_field, strict=True)}
