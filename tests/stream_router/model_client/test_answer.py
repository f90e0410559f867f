"""From a model's text to entities: what is an answer and what is not, and how sure the model was of each field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from schemas.entities import MAX_VALUE_CHARS, MAX_VALUES, Entities
from stream_router.model_client.answer import (
    MAX_ANSWER_CHARS,
    InvalidAnswerError,
    field_margins,
    parse_answer,
    read_entities,
)
from stream_router.ports import Reply, TokenMark

FIELDS = ("camera", "iso")
ENTITIES = TypeAdapter(Entities)


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ('{"camera": "X100", "iso": "400"}', {"camera": "X100", "iso": "400"}),
        (' \n{"camera":"X"}\t\r\n', {"camera": "X", "iso": None}),
        ("{}", {"camera": None, "iso": None}),
        ('{"camera": "", "iso": null}', {"camera": None, "iso": None}),
        ('{"camera": " "}', {"camera": " ", "iso": None}),
        ('{"iso": 400}', {"camera": None, "iso": "400"}),
        ('{"iso": 2.80}', {"camera": None, "iso": "2.80"}),
        ('{"iso": 1E5}', {"camera": None, "iso": "1E5"}),
        ('{"iso": -0}', {"camera": None, "iso": "-0"}),
        ('{"iso": 123456789012345678901234567890}', {"camera": None, "iso": "123456789012345678901234567890"}),
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
        ('{"iso": Infinity}', "Infinity is not JSON"),
        ('{"iso": [["1"]]}', "iso: the list holds"),
        ('{"iso": [false]}', "iso: the list holds"),
        ('{"iso": "\\ud83d"}', "surrogate"),
        ('{"iso": "' + "x" * (MAX_VALUE_CHARS + 1) + '"}', "characters"),
        ('{"iso": [' + ",".join(['"x"'] * (MAX_VALUES + 1)) + "]}", "values"),
        ('{"iso":' * 100_000, "nested too deeply"),
    ],
)
def test_anything_else_is_invalid_and_says_why(text: str, why: str) -> None:
    with pytest.raises(InvalidAnswerError, match=why):
        read_entities(text, FIELDS)


@given(st.text() | st.from_regex(r'\{"(iso|camera)": ?[\[\]\{\}",:0-9a-z ]*\}'))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        entities = read_entities(text, FIELDS)
    except InvalidAnswerError:
        return
    assert tuple(entities) == FIELDS


VALUES: st.SearchStrategy[Any] = (
    st.none() | st.text() | st.lists(st.text(), max_size=4) | st.integers() | st.booleans() | st.just({})
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "mood"]), VALUES))
def test_parsed_answer_fits_the_contract(document: dict[str, Any]) -> None:
    """Whatever is read fits the contract and has every field."""
    run = parse_answer("m", Reply(json.dumps(document), "stop", 3, 0.5), FIELDS, 0.1)
    assert run.valid is (run.error is None) is (run.entities is not None)
    if run.entities is not None:
        assert tuple(run.entities) == FIELDS
        ENTITIES.validate_python(run.entities)
        json.loads(run.model_dump_json())


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply('{"iso": "1"}', "length", 3, 0.5), "the answer was cut (finish_reason length)"),
        (Reply('{"iso": "1"}', None, 3, 0.5), "the answer was cut (finish_reason None)"),
        (Reply('{"iso": "1"}', "stop", 0, None), "the reply holds no token probabilities"),
        (Reply("{}" + " " * MAX_ANSWER_CHARS, "stop", 3, 0.5), "characters"),
        (Reply("no", "stop", 3, 0.5), "not one JSON object"),
    ],
)
def test_unusable_answer_has_no_entities_nor_u(reply: Reply, error: str) -> None:
    run = parse_answer("m", reply, FIELDS, 0.1)
    assert (run.valid, run.entities, run.uncertainty) == (False, None, None)
    assert error in (run.error or "")
    assert run.raw == reply.text[:MAX_ANSWER_CHARS]
    assert (run.finish_reason, run.completion_tokens) == (reply.finish_reason, reply.completion_tokens)


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


@pytest.mark.parametrize(
    ("reply", "with_margins", "known"),
    [
        (Reply('{"lens": null}', "stop", 1, 0.5, marks=(TokenMark(0, 0.5),)), True, {"lens": 0.5}),
        (Reply('{"lens": null}', "stop", 1, 0.5, marks=(TokenMark(0, 0.5),)), False, None),
        (Reply('{"lens": null}', "stop", 1, 0.5), True, None),
        (Reply('{"lens": 1', "stop", 1, 0.5, marks=(TokenMark(0, 0.5),)), True, None),
        (Reply("{}", "stop", 1, 0.5, marks=(TokenMark(0, 0.5),)), True, None),
    ],
    ids=["streamed", "not asked for", "not streamed", "not valid", "no field named"],
)
def test_a_run_says_margins_where_they_are_known(
    reply: Reply, with_margins: bool, known: dict[str, float] | None
) -> None:
    run = parse_answer("small", reply, NAMED, 0.1, with_margins=with_margins)
    assert run.field_margins == known
    assert (b"field_margins" in run.model_dump_json().encode()) == (known is not None)
