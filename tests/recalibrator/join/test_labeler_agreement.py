"""What is counted of labelers: once for each opinion that meets its result, whichever of them comes first."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.joining import add, count_agreement
from recalibrator.join.query_state import NOTHING_KNOWN, LabelRules, QueryState, take_feedback, take_result
from schemas.feedback import FeedbackEvent
from schemas.routed import RoutedEvent
from schemas.status import LabelerCounts
from tests.support.recalibrator_events import FIELDS, START, entities, feedback, routed

WORKLOADS = {"photo": LabelRules(FIELDS)}


def counted(events: list[RoutedEvent | FeedbackEvent]) -> dict[str | None, LabelerCounts]:
    state: QueryState = NOTHING_KNOWN
    found: dict[str | None, LabelerCounts] = {}
    for event in events:
        before = state
        if isinstance(event, RoutedEvent):
            state = take_result(state, event, WORKLOADS).state
        else:
            state = take_feedback(state, event, START, WORKLOADS).state
        for labeler, counts in count_agreement(before, state, WORKLOADS):
            found[labeler] = add(found.get(labeler), counts)
    return found


def said(labeler: str, *, wrong: bool = False, revision: int = 1) -> FeedbackEvent:
    gold = entities("q-0", wrong=wrong)
    return feedback(0, gold, revision=revision).model_copy(update={"labeler": labeler, "feedback_id": None})


def test_labelers_are_compared_with_those_before_them() -> None:
    found = counted([routed(0), said("ann"), said("bob", wrong=True), said("cleo")])

    assert (found["ann"].labels, found["ann"].compared) == (1, 0)
    assert (found["bob"].compared, found["bob"].agreeing) == (1, 0)
    assert (found["cleo"].compared, found["cleo"].agreeing) == (1, 0)


def test_a_label_is_held_against_what_both_models_say() -> None:
    result = routed(0)
    assert result.small is not None
    both = result.model_copy(update={"large": result.small})
    answer = result.small.entities

    agreeing = FeedbackEvent(query_id=result.query_id, entities=answer, labeler="ann")
    differing = FeedbackEvent(query_id=result.query_id, entities={FIELDS[0]: "something else"}, labeler="bob")
    found = counted([both, agreeing, differing])

    assert (found["ann"].unanimous, found["ann"].confirmed) == (1, 1)
    assert (found["bob"].unanimous, found["bob"].confirmed) == (1, 0)


def test_an_answer_that_is_skipped_or_withdrawn_is_no_label() -> None:
    skip = FeedbackEvent(query_id=routed(0).query_id, entities=None, labeler="ann")

    assert counted([routed(0), skip])["ann"] == LabelerCounts(skipped=1, last_at=START)


@given(order=st.permutations(range(4)))
def test_the_result_may_come_at_any_time(order: list[int]) -> None:
    events: list[RoutedEvent | FeedbackEvent] = [routed(0), said("ann"), said("bob", wrong=True), said("cleo")]
    found = counted([events[index] for index in order])
    total = reduce(add, found.values(), LabelerCounts())

    assert set(found) == {"ann", "bob", "cleo"}
    assert (total.labels, total.compared) == (3, 2)


def test_what_comes_twice_is_counted_once() -> None:
    assert counted([routed(0), said("ann"), said("ann")])["ann"].labels == 1
