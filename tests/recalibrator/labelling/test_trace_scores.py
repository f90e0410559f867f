"""Scores on traces as feedback: who is a labeler, what is a verdict, what is a correction, and what is nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recalibrator.labelling.label_tool import Task
from recalibrator.labelling.trace_scores import OURS, Score, ScoredTrace, TraceLabel, TraceScoreReader
from schemas.feedback import FeedbackEvent

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
READER = TraceScoreReader("phoenix", "default", "correctness")


def score(**changes: Any) -> Score:
    base = Score("s:1", "correctness", None, None, {}, "ann", NOW)
    return base._replace(**changes)


def read(*scores: Score, query_id: str | None = "q-1") -> Task:
    return READER.task({"trace": ScoredTrace("0af7", query_id, scores), "now": NOW})


LEICA = {"camera": "leica", "lens": None}


@pytest.mark.parametrize(
    ("said", "verdict", "entities"),
    [
        ({"value": "Correct"}, "right", None),
        ({"value": 1.0}, "right", None),
        ({"value": "false", "comment": "the lens is missing"}, "wrong", None),
        # A correction.
        ({"comment": ' {"camera": "leica", "lens": null}'}, None, LEICA),
        ({"metadata": {"entities": LEICA}, "value": "incorrect"}, None, LEICA),
        ({"name": "output", "comment": '{"camera": "leica", "lens": null}'}, None, LEICA),
    ],
)
def test_a_score_says_right_or_wrong(said: dict[str, Any], verdict: str | None, entities: Any) -> None:
    """Or, with entities, what is right."""
    (one,) = read(score(**said)).annotations

    assert (one.event.verdict, one.event.entities, one.event.query_id) == (verdict, entities, "q-1")
    assert (one.event.labeler, one.event.source, one.key) == ("phoenix:ann", "phoenix", ("default", "s%3A1"))
    assert one.event.feedback_id == f"phoenix:default:s%3A1:{NOW.timestamp()}"


def test_other_scores_and_those_without_a_query_say_nothing() -> None:
    others = {"tone": "correct", OURS: "right", "output": None}
    for task in (
        *(read(score(name=name, value=value, comment="")) for name, value in others.items()),
        read(score(value="meh"), query_id=None),
    ):
        assert (task.annotations, task.faults) == ((), ())


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"value": "meh"}, "'meh' is neither right nor wrong"),
        ({"value": 0.7}, "'0.7' is neither right nor wrong"),
        ({}, "'None' is neither right nor wrong"),
        ({"name": "correction", "comment": "a leica"}, "must be an object of fields"),
        ({"comment": "{leica"}, "must be an object of fields"),
        ({"metadata": {"entities": ["leica"]}}, "must be an object of fields"),
        ({"metadata": {"entities": {"camera": 1}}}, "camera"),
    ],
)
def test_what_is_unclear_is_reported_and_not_guessed(said: dict[str, Any], fault: str) -> None:
    task = read(score(**said))

    assert (task.annotations, fault in task.faults[0], "trace 0af7" in task.faults[0]) == ((), True, True)


def test_of_one_author_what_is_right_outranks_a_verdict() -> None:
    right = {"entities": {"camera": "leica"}}
    later = NOW + timedelta(minutes=1)
    task = read(
        score(metadata=right), score(score_id="2", value=1, changed_at=later), score(author=None, score_id="3", value=1)
    )

    said = [(one.event.labeler, one.event.verdict) for one in task.annotations]
    assert said == [("phoenix:ann", None), ("phoenix:api", "right")]


def test_a_label_on_a_trace_says_what_was_said_and_by_whom() -> None:
    event = FeedbackEvent(query_id="q:1", entities={}, labeler="ann", source="page")

    assert TraceLabel("0af7", event).identifier == "ucci-label:q%3A1:ann"
    for changes, word in (
        ({}, "labelled"),
        ({"entities": None}, "skipped"),
        ({"entities": None, "verdict": "wrong"}, "wrong"),
        ({"entities": None, "retracted": True}, "withdrawn"),
    ):
        assert TraceLabel("0af7", event.model_copy(update=changes)).word == word
