"""What differs from a router where a gateway writes for a query: it was never a record of its topic. Pure."""

from __future__ import annotations

from schemas.query import QueryEvent
from schemas.topics import DEAD_LETTERS, QUERIES, RESULTS
from stream_router.commit.outcome import OutputTopics
from ucci_runtime.broker.records import Input, OutputRecord, Record

STAGE = "gateway"
#: The partition and offset of a query that never stood in its topic.
NOWHERE = -1


def gateway_topics(prefix: str, schema_id: int | None = None) -> OutputTopics:
    """Return the topics that a gateway writes to."""
    return OutputTopics(RESULTS.name(prefix), DEAD_LETTERS.name(prefix), schema_id, STAGE)


def as_record(query: QueryEvent, prefix: str) -> Record:
    """Return a query as its topic would hold it: its dead letter, replayed, is answered by a router."""
    return Record(Input(QUERIES.name(prefix), NOWHERE), NOWHERE, query.query_id.encode(), query.to_json())


def fitting(record: OutputRecord, limit_bytes: int) -> OutputRecord:
    """Return the record, or what it names to be written instead where it is larger than the topics take."""
    while record.size_bytes > limit_bytes and record.instead is not None:
        smaller = record.instead(limit_bytes)
        if smaller == record:
            return record
        record = smaller
    return record
