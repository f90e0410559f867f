"""From a model's text to entities: what is an answer and what is not, and how sure the model was of each field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.entities import MAX_VALUE_CHARS, MAX_VALUES
from stream_router.model_client.answer import (
    InvalidAnswerError,
    field_margins,
    read_entities,
)
from stream_router.ports import TokenMark

FIELDS = ("camera", "iso")


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ('{"camera": "X100", "iso": "400"}', {"camera": "X100", "iso": "400"}),
        (' \n{"camera":"X"}\t\r\n', {"camera": "X", "iso": None}),
        ("{}", {"camera": None, "iso": None}),
        ('{"camera": "", "iso": null}', {"camera": None, "iso": None}),
        ('{"iso": 400}', {"camera": None, "iso": "400"}),
        ('{"iso": 2.80}', {"camera": None, "iso": "2.80"}),
        ('{"camera": ["A", "", "B", null, 3]}', {"camera": ("A", "B", "3"), "iso": None}),
        ('{"camera": [], "iso": [""]}', {"camera": None, "iso": None}),
        ('{"mood": {"deep": [true]}, "iso": "1"}', {"camera": None, "iso": "1"}),
        ('{"iso": "1", "iso": "2"}', {"camera": None, "iso": "2"}),
        ('{"iso": "\\u0000"}', {"camera": None, "iso": "\0"}),
    ],
)
def test_an_answer_is_one_json_object_with_the_workloads_fields(text: str, entities: dict[str, Any]) -> None:
    assert read_entities(text, FIELDS) == entities


NO_JSON = (
    *("", "The camera is an X100", "{'iso': '1'}", '{"iso": "1"', '\ufeff{"iso": "1"}', '\u00a0{"iso": "1"}'),
    *('Here: {"iso": "1"}', '{"iso": "1"} Done.', '{"iso": "1"}{"iso": "2"}', '```json\n{"iso": "1"}\n```'),
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "not one JSON object") for text in NO_JSON),
        *((text, "not an object") for text in ("[]", '"text"', "null", "400")),
        ('{"iso": {"value": 1}}', "iso: is a dict"),
        ('{"iso": true}', "iso: is a bool"),
        ('{"iso": NaN}', "NaN is not JSON"),
        ('{"iso": [["1"]]}', "iso: the list holds"),
        ('{"iso": "\\ud83d"}', "surrogate"),
        ('{"iso": "' + "x" * (MAX_VALUE_CHARS + 1) + '"}', "characters"),
        ('{"iso": [' + ",".join(['"x"'] * (MAX_VALUES + 1)) + "]}", "values"),
        ('{"iso":' * 100_000, "nested too deeply"),
    ],
)
def test_anything_else_is_invalid_and_says_why(text: str, why: str) -> None:
    with pytest.raises(InvalidAnswerError, match=why):
        read_entities(text, FIELDS)


NAMED = ("camera", "lens")


def marks_of(parts: list[tuple[str, float]]) -> tuple[str, tuple[TokenMark, ...]]:
    """Return the text of some tokens, and where each begins."""
    text, marks = "", []
    for part, margin in parts:
        marks.append(TokenMark(len(text), margin))
        text += part
    return text, tuple(marks)


def test_the_token_that_opens_a_value_belongs_to_it() -> None:
    """It may hold the key's end as well, and decides between a value and null."""
    camera = [('{"', 1.0), ("camera", 0.9), ('":', 0.8), (" null", 0.4), (', "', 0.8)]
    lens = [("lens", 1.0), ('": "', 0.3), ("50", 0.5), ("mm", 0.7), ('"}', 0.9)]
    text, marks = marks_of([*camera, *lens])
    assert json.loads(text) == {"camera": None, "lens": "50mm"}
    assert field_margins(text, marks, NAMED) == {"lens": 0.6, "camera": 0.6}


def test_tokens_that_came_together_all_count() -> None:
    """Of several tokens with one start nobody knows which holds the value."""
    text = '{"lens": "50mm"}'
    marks = (TokenMark(0, 1.0), TokenMark(8, 0.2), TokenMark(8, 0.6), TokenMark(16, 0.5))
    assert field_margins(text, marks, NAMED) == {"lens": 0.4}


@given(st.text(max_size=12), st.lists(st.text(max_size=4), max_size=3))
def test_no_value_passes_for_a_key(value: str, others: list[str]) -> None:
    """Whatever a text holds, quotes, colons and escapes included, the next field's tokens are found behind it."""
    text = json.dumps({"camera": [value, '": "lens": ', *others], "lens": "50mm"})
    begins = text.rindex('"lens": ') + len('"lens": ')
    marks = tuple(TokenMark(at, 0.25 if at >= begins else 1.0) for at in range(len(text)))
    assert field_margins(text, marks, NAMED)["lens"] == 0.25
    assert field_margins(text, marks, NAMED)["camera"] == 1.0
