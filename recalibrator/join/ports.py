"""The store that the join needs: rows of queries with the offsets up to which they are complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from recalibrator.join.query_state import QueryState
from schemas.status import LabelerCounts, LabelerStatus, LabelsWithoutResult
from ucci_runtime.broker.records import Input


class StoredRow(NamedTuple):
    """What the join keeps of one query."""

    state: QueryState
    touched_ms: int


class StoreSize(NamedTuple):
    """How much is stored."""

    rows: int
    bytes: int


#: What is counted of each labeler.
LABELER_COUNTS = tuple(name for name in LabelerCounts.model_fields if name != "last_at")


class WaitingLabels(NamedTuple):
    """The labels of a query whose result has not come."""

    home: int
    query_id: str
    state: QueryState


class LabelerKey(NamedTuple):
    """Whose counts, and at which home."""

    partition: int
    workload: str
    labeler: str | None


class RequestKey(NamedTuple):
    """An open label request."""

    partition: int
    query_id: str
    workload: str


class JoinStore(Protocol):
    """Rows and offsets, stored together."""

    def load(self, partition: int, query_ids: Iterable[str]) -> dict[str, QueryState]:
        """Return the stored states of those queries that have one."""

    def offsets(self) -> dict[Input, int]:
        """Return the offsets up to which the rows are complete."""

    def commit(
        self,
        rows: Mapping[tuple[int, str], StoredRow],
        offsets: Mapping[Input, int],
        agreement: Mapping[LabelerKey, LabelerCounts],
    ) -> None:
        """Store rows, whose time of touch never goes back, and offsets, and add to the labelers' counts, at once."""

    def labelers(self, partitions: Collection[int]) -> Mapping[str, tuple[LabelerStatus, ...]]:
        """Return the busiest labelers of these partitions, by workload."""

    def expire(
        self,
        before_ms: int,
        most: int,
        *,
        spared: Collection[int],
        set_aside: Callable[[Sequence[WaitingLabels]], None],
    ) -> Mapping[str, int]:
        """Delete rows not touched since, then rows above the bounds, ``most`` of each; return how many, by kind.

        ``spared``: homes whose labels without a result stay. ``set_aside``: called with the others before they are
        deleted; where it raises, nothing is.
        """

    def labels_without_result(self, homes: Collection[int], since_ms: int, until_ms: int) -> LabelsWithoutResult:
        """Return what waits at these homes for its result; ``last_hour`` are those that came between these times.

        The labels of the last hour are not counted here.
        """

    def expire_labelers(self, before_ms: int) -> None:
        """Forget the counts of labelers who have been silent since."""

    def overdue_requests(self, partitions: Iterable[int], before_ms: int, most: int) -> Sequence[RequestKey]:
        """Return open label requests that are older, beyond so many of a workload, or without their row."""

    def close_requests(self, keys: Iterable[RequestKey]) -> None:
        """Forget these label requests."""

    @property
    def open_requests(self) -> Mapping[str, int]:
        """Number of open label requests, by workload."""

    @property
    def size(self) -> StoreSize:
        """Number of rows stored, and the bytes that they take."""

    def close(self) -> None:
        """Close the file."""
