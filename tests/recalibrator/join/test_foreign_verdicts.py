"""A gateway key judges what it asked, and nothing that another key did, whichever gateway it says so to."""

from __future__ import annotations

import pytest

from recalibrator.join.query_state import NOTHING_KNOWN, Joined, take_feedback, take_result
from schemas.feedback import FeedbackEvent
from tests.support.recalibrator_events import PHOTO, START, routed

RULES = {"photo": PHOTO}


def said(labeler: str, caller: str | None, *, is_early: bool) -> list[Joined]:
    """Return what follows from a verdict and from the result of a query of ``caller``, in either order."""
    verdict = FeedbackEvent(query_id="q-1", verdict="wrong", labeler=labeler, labelled_at=START)
    result = routed(1).model_copy(update={"caller": caller})
    first = (
        take_feedback(NOTHING_KNOWN, verdict, START, RULES) if is_early else take_result(NOTHING_KNOWN, result, RULES)
    )
    state = first.state
    second = take_result(state, result, RULES) if is_early else take_feedback(state, verdict, START, RULES)
    return [first, second]


@pytest.mark.parametrize("is_early", [False, True])
def test_a_gateway_key_judged_the_query_of_another(is_early: bool) -> None:
    found = said("gateway:mallory", "shop", is_early=is_early)
    assert [one.example for one in found] == [None, None]
    if is_early:
        assert found[1].notes == ("foreign_verdict",)
    else:
        assert found[1].refusal is not None
        assert found[1].refusal.reason == "foreign_verdict"
        assert "'gateway:mallory'" in found[1].refusal.error


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize(("labeler", "caller"), [("gateway:shop", "shop"), ("gateway:shop", None), ("ann", "shop")])
def test_verdicts_of_who_asked_and_of_people_count(labeler: str, caller: str | None, is_early: bool) -> None:
    example = said(labeler, caller, is_early=is_early)[1].example
    assert example is not None
    assert (example.verdict, example.labeler) == ("wrong", labeler)
