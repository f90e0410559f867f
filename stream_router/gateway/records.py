"""What the gateway writes for a query: a result, or a dead letter that holds the query as its topic would. Pure."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from schemas.query import QueryEvent
from schemas.routed import RoutedEvent
from schemas.topics import DEAD_LETTERS, QUERIES, RESULTS
from schemas.wire_format import framed
from ucci_runtime.broker import dead_letters
from ucci_runtime.broker.records import Header, Input, OutputRecord, Record

STAGE = "gateway"
NOWHERE = -1
"""The partition and offset of a query that never stood in its topic."""


class GatewayTopics(NamedTuple):
    """The topics by full name, and the schema id in front of results, if there is one.

    ``queries`` is where a dead letter would be replayed to.
    """

    results: str
    dead_letters: str
    queries: str
    schema_id: int | None = None

    @classmethod
    def of(cls, prefix: str, schema_id: int | None = None) -> GatewayTopics:
        """Return the topics of a prefix."""
        return cls(RESULTS.name(prefix), DEAD_LETTERS.name(prefix), QUERIES.name(prefix), schema_id)

    def result(self, query: QueryEvent, routed: RoutedEvent, trace: tuple[Header, ...] = ()) -> OutputRecord:
        """Return the result's record, keyed by query_id as a router's is, so that it meets its label in the join.

        One that is too large for its topic becomes a dead letter.
        """
        value = routed.to_json()
        if self.schema_id is not None:
            value = framed(self.schema_id, value)
        instead = partial(self._too_large, query, len(value))
        return OutputRecord(self.results, routed.query_id.encode(), value, trace, instead)

    def dead_letter(self, query: QueryEvent, reason: str, error: str) -> OutputRecord:
        """Return the dead letter of a query; replayed, it is answered by a router."""
        source = Record(Input(self.queries, NOWHERE), NOWHERE, query.query_id.encode(), query.to_json())
        return dead_letters.dead_letter(self.dead_letters, source, stage=STAGE, reason=reason, error=error)

    def _too_large(self, query: QueryEvent, size_bytes: int, limit_bytes: int) -> OutputRecord:
        error = f"the result of {size_bytes} bytes exceeds what a record may hold ({limit_bytes} bytes): ask for less"
        return self.dead_letter(query, TOO_LARGE, error)


TOO_LARGE = "too_large"


def fitting(record: OutputRecord, limit_bytes: int) -> OutputRecord:
    """Return the record, or what it names to be written instead where it is larger than the topics take."""
    while record.size_bytes > limit_bytes and record.instead is not None:
        smaller = record.instead(limit_bytes)
        if smaller == record:
            return record
        record = smaller
    return record
