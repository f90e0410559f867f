"""Label requests: when a query's label is requested of people, and when the request ends.

A request is open while its label is awaited; the records of its topic follow from the query's state alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from recalibrator.join.ports import RequestKey
from recalibrator.join.query_state import QueryState
from schemas.label_requested import LabelRequested
from ucci_runtime.broker.records import OutputRecord

Outcome = Literal["opened", "answered", "too_large"]


class RequestChange(NamedTuple):
    """Outcome of a label request; no record where it is too large for the topic and nobody can be asked."""

    outcome: Outcome
    workload: str
    record: OutputRecord | None


def request_change(topic: str, before: QueryState, after: QueryState, max_record_bytes: int) -> RequestChange | None:
    """Return what an event changed about a query's label request, or None."""
    if before.awaits_label == after.awaits_label:
        return None
    routed = after.routed
    assert routed is not None
    key = routed.query_id.encode()
    if not after.awaits_label:
        return RequestChange("answered", routed.workload, OutputRecord(topic, key, None))
    record = OutputRecord(topic, key, LabelRequested.from_result(routed).to_json())
    if record.size_bytes > max_record_bytes:
        return RequestChange("too_large", routed.workload, None)
    return RequestChange("opened", routed.workload, record)


def closing_records(topic: str, keys: Iterable[RequestKey]) -> list[OutputRecord]:
    """Return the records that end these requests."""
    return [OutputRecord(topic, key.query_id.encode(), None) for key in keys]
