"""Feedback says one thing: what is right, or whether the served answer was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.errors import DecodeError
from schemas.feedback import FeedbackEvent

#: What was said, the reason, the field, and what the line tells.
NOT_ONE_THING: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "missing_field", "entities", "or a verdict"),
    ({"verdict": None}, "missing_field", "entities", "or a verdict"),
    ({"verdict": "right", "entities": {}}, "invalid_field", "verdict", "'right' is given beside entities: send one"),
    ({"verdict": "good"}, "invalid_field", "verdict", "'right' or 'wrong' (got 'good')"),
    ({"verdict": True}, "invalid_field", "verdict", "'right' or 'wrong' (got True)"),
]


def of_query(said: dict[str, Any]) -> str:
    return json.dumps({"query_id": "q-1", **said})


def test_a_reader_of_entities_alone_takes_no_verdict_for_a_skip() -> None:
    assert "entities" not in json.loads(FeedbackEvent(query_id="q-1", verdict="right").to_json())
    assert "verdict" not in json.loads(FeedbackEvent(query_id="q-1", entities=None).to_json())


@pytest.mark.parametrize(("said", "reason", "field", "line"), NOT_ONE_THING)
def test_neither_or_both_are_refused(said: dict[str, Any], reason: str, field: str, line: str) -> None:
    with pytest.raises(DecodeError) as found:
        FeedbackEvent.from_json(of_query(said))
    assert (found.value.reason, found.value.field) == (reason, field)
    assert line in str(found.value)


def test_a_verdict_a_skip_and_its_opposite_have_ids_of_their_own() -> None:
    said: list[dict[str, Any]] = [{"entities": None}, {"verdict": "right"}, {"verdict": "wrong"}]
    assert len({FeedbackEvent.model_validate({"query_id": "q-1", **one}).identity() for one in said}) == len(said)
