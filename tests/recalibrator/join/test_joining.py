"""What follows from one event: outputs, counts and the state, from the event and the state alone."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.joining import Consequences, Event, Joining, JoinTopics, add
from recalibrator.join.query_state import NOTHING_KNOWN, QueryState
from schemas.errors import DecodeError
from schemas.event import MAX_RECORD_BYTES
from schemas.feedback import FeedbackEvent
from schemas.routed import ModelRun, RoutedEvent
from schemas.status import LabelerCounts
from tests.support.cores import present
from tests.support.recalibrator_events import FIELDS, PHOTO, START, entities, feedback, routed
from ucci_runtime.broker.records import Input, Record

NOW_MS = int(START.timestamp() * 1_000)
TOPICS = JoinTopics("results", "feedback", "repartition", "observations", "dead-letters", "label-requests")
JOINING = Joining({"photo": PHOTO}, TOPICS, MAX_RECORD_BYTES)


def record_of(event: Event) -> Record:
    topic = TOPICS.results if isinstance(event, RoutedEvent) else TOPICS.feedback
    return Record(Input(topic, 0), 0, b"q-1", event.to_json(), NOW_MS)


def follow(state: QueryState, event: Event, *, joining: Joining = JOINING, is_live: bool = True) -> Consequences:
    return joining.join(state, joining.read(record_of(event)), NOW_MS, is_live=is_live)


def topics_of(found: Consequences) -> list[str]:
    return [record.topic for record in found.outputs]


def test_fields_with_targets_are_counted_for_both_models() -> None:
    """Where the large answer was served, an example says what the small one gave in fields with targets alone."""
    target = {"target": PHOTO.target.model_copy(update={"fields": {"lens": 0.9}})}
    joining = Joining({"photo": PHOTO.model_copy(update=target)}, TOPICS, MAX_RECORD_BYTES)
    errs = ModelRun(model="small", entities=entities("q-1", wrong=True), valid=True, uncertainty=0.9)
    for rules, noted in ((JOINING, None), (joining, {"lens": {"true_positives": 0, "predicted": 1}})):
        state = follow(NOTHING_KNOWN, routed(1, small=errs), joining=rules).state
        (example,) = (one for one in follow(state, feedback(1), joining=rules).outputs if one.value)
        assert json.loads(example.value or b"").get("small_per_field") == noted


def test_without_a_topic_of_requests_nobody_is_asked() -> None:
    joining = Joining({"photo": PHOTO}, JoinTopics("results", "feedback", "r", "o", "d", None), MAX_RECORD_BYTES)
    assert follow(NOTHING_KNOWN, routed(1), joining=joining).outputs == ()


def test_a_conflicting_result_ends_the_request_and_is_told() -> None:
    """The label that stood is taken out, and the dead letter names who sent the second result; once for each id."""
    other = routed(1).model_copy(update={"text": "x", "caller": "shop"})
    known = follow(NOTHING_KNOWN, routed(1)).state
    found = follow(known, other)
    assert topics_of(found) == ["label-requests", "dead-letters"]
    assert b"'shop'" in (dict(found.outputs[1].headers)["dlq.error"] or b"")
    assert topics_of(follow(found.state, other)) == []
    example, letter = follow(follow(known, feedback(1)).state, other).outputs
    assert (json.loads(example.value or b"")["retracted"], letter.topic) == (True, "dead-letters")
    late = follow(found.state, feedback(1))
    assert (late.outputs, late.agreement) == ((), ())


@pytest.mark.parametrize(("by_broker", "is_live", "age_h"), [(False, True, 0), (False, False, 2), (True, True, 2)])
def test_a_row_is_fresh_as_of_its_record(by_broker: bool, is_live: bool, age_h: int) -> None:
    """Only a producer's stamp of the past is not believed, and only while outputs go out."""
    stamp_ms = NOW_MS - int(timedelta(hours=2).total_seconds() * 1_000)
    record = record_of(feedback(1))._replace(timestamp_ms=stamp_ms, by_broker=by_broker)
    found = JOINING.join(NOTHING_KNOWN, JOINING.read(record), NOW_MS, is_live=is_live)
    assert NOW_MS - found.touched_ms == age_h * 3_600_000


def test_feedback_with_a_header_that_is_no_text_vanishes() -> None:
    """Nobody who reads its topic sees its headers, so that it is set aside, as a query is."""
    found = JOINING.read(record_of(feedback(1))._replace(headers_fault="a header's key is not UTF-8")).event
    assert isinstance(found, DecodeError)
    assert found.reason == "bad_headers"


def counted(*events: Event) -> dict[str | None, LabelerCounts]:
    state, found = NOTHING_KNOWN, dict[str | None, LabelerCounts]()
    for event in events:
        following = follow(state, event)
        state = following.state
        found |= {labeler: add(found.get(labeler), counts) for labeler, counts in following.agreement}
    return found


def said(labeler: str, *, wrong: bool = False) -> FeedbackEvent:
    return feedback(0, entities("q-0", wrong=wrong), labeler=labeler)


def test_labelers_are_compared_with_those_before_and_the_models() -> None:
    found = counted(routed(0), said("ann"), said("bob", wrong=True), said("cleo"))
    told = {name: (one.labels, one.compared, one.agreeing) for name, one in found.items()}
    assert told == {"ann": (1, 0, 0), "bob": (1, 1, 0), "cleo": (1, 1, 0)}
    small = present(routed(0).small)
    differing = feedback(0, {FIELDS[0]: "something else"}, labeler="bob")
    found = counted(routed(0, large=small), feedback(0, small.entities, labeler="ann"), differing)
    assert {name: (one.unanimous, one.confirmed) for name, one in found.items()} == {"ann": (1, 1), "bob": (1, 0)}
    skip = FeedbackEvent(query_id=routed(0).query_id, entities=None, labeler="ann")
    assert counted(routed(0), skip)["ann"] == LabelerCounts(skipped=1, last_at=START)


@given(order=st.permutations(range(4)))
def test_the_result_may_come_at_any_time(order: list[int]) -> None:
    events: list[Event] = [routed(0), said("ann"), said("bob", wrong=True), said("cleo")]
    found = counted(*(events[index] for index in order))
    total = reduce(add, found.values(), LabelerCounts())
    assert set(found) == {"ann", "bob", "cleo"}
    assert (total.labels, total.compared) == (3, 2)
