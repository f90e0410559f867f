"""Label requests follow from a query's state before and after one event."""

from __future__ import annotations

from recalibrator.join.joining import closing_records, request_change
from recalibrator.join.ports import RequestKey
from recalibrator.join.query_state import NOTHING_KNOWN, LabelRules, QueryState, take_feedback, take_result
from schemas.event import MAX_RECORD_BYTES
from schemas.label_requested import LabelRequested
from tests.support.recalibrator_events import FIELDS, START, feedback, routed
from ucci_runtime.broker.records import OutputRecord

RULES = {"photo": LabelRules(FIELDS)}
ASKED = take_result(NOTHING_KNOWN, routed(1), RULES).state
LABELLED = take_feedback(ASKED, feedback(1), START, RULES).state


def change(
    before: QueryState, after: QueryState, most: int = MAX_RECORD_BYTES
) -> tuple[str, OutputRecord | None] | None:
    found = request_change("requests", before, after, most)
    return None if found is None else (found.outcome, found.record)


def test_a_requested_result_opens_a_request_by_query() -> None:
    request = LabelRequested.from_result(routed(1)).to_json()
    assert change(NOTHING_KNOWN, ASKED) == ("opened", OutputRecord("requests", b"q-1", request))


def test_a_label_ends_the_request_with_a_record_without_value() -> None:
    assert change(ASKED, LABELLED) == ("answered", OutputRecord("requests", b"q-1", None))
    assert closing_records("requests", [RequestKey(0, "q-1", "photo")]) == [OutputRecord("requests", b"q-1", None)]


def test_nothing_changes_while_the_label_is_awaited_or_there() -> None:
    assert change(ASKED, ASKED) is None
    assert change(LABELLED, LABELLED) is None


def test_a_request_larger_than_the_topic_takes_has_no_record() -> None:
    assert change(NOTHING_KNOWN, ASKED, most=50) == ("too_large", None)
