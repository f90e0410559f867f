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
    judge_answer,
    read_entities,
)
from stream_router.ports import Reply, TokenMark

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
        ('{"camera": [" ", "\u200bA"], "iso": "\ufeff "}', {"camera": ("\u200bA",), "iso": None}),
        ('{"mood": {"deep": [true]}, "iso": "1"}', {"camera": None, "iso": "1"}),
        ('{"iso": "1", "iso": "2"}', {"camera": None, "iso": "2"}),
        ('{"iso": "\\u0000"}', {"camera": None, "iso": "\0"}),
        ('\ufeff{"iso": "1"}', {"camera": None, "iso": "1"}),
        ('\n \ufeff {"iso": "1"}', {"camera": None, "iso": "1"}),
    ],
)
def test_an_answer_is_one_json_object_with_the_workloads_fields(text: str, entities: dict[str, Any]) -> None:
    assert read_entities(text, FIELDS) == entities


def test_null_texts_are_null_in_an_answer() -> None:
    reply = Reply('{"camera": "N/A", "iso": ["100", "none"]}', "stop", completion_tokens=5, uncertainty=0.1)
    plain, nulled = (judge_answer("small", reply, FIELDS, 0.1, nulls=nulls).run for nulls in ((), {"n/a", "none"}))
    assert plain.entities == {"camera": "N/A", "iso": ("100", "none")}
    assert nulled.entities == {"camera": None, "iso": ("100",)}


NO_JSON = (
    *("", "The camera is an X100", "{'iso': '1'}", '{"iso": "1"', '\u00a0{"iso": "1"}'),
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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"Camera": "z1", "ISO": "100"}', 'none of the fields; its keys: "Camera" (camera is meant?), "ISO" (iso is'),
        ('{"Camera": null}', 'its keys: "Camera" (camera is meant?)'),
        ('{"camera ": "z1"}', '"camera " (camera is meant?)'),
        ('{"iso_value": "100"}', '"iso_value"'),
        ('{"result": {"camera": "z1"}}', 'its keys: "result"'),
        ('{"": "z1"}', 'its keys: ""'),
        ('{"mood": {"deep": [true]}}', 'its keys: "mood"'),
        # One key is right, and the value of the other would be read as null.
        ('{"camera": "z1", "ISO": "100"}', 'under a key that is no field: "ISO" (iso is meant?)'),
        ('{"camera": "z1", "iso": null, "i-s-o": "100"}', '"i-s-o" (iso is meant?)'),
        ('{"camera": "z1", "\uff49so": ["100"]}', "(iso is meant?)"),
        ('{"camera": "z1", "ISO": "100", "Iso": "200"}', '"ISO" (iso is meant?), "Iso" (iso is meant?)'),
    ],
)
def test_keys_that_lose_a_value_make_no_answer(text: str, why: str) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        read_entities(text, FIELDS)
    assert why in str(caught.value)
    assert caught.value.fault == "keys"


@pytest.mark.parametrize(
    "more", ['"mood": "sad"', '"ISO": null', '"Iso": ""', '"iSO": []', '"Camera": "other"', '"serial": {"no": 7}']
)
def test_other_keys_are_dropped_where_no_value_is_lost(more: str) -> None:
    assert read_entities(f'{{"camera": "z1", {more}}}', FIELDS) == {"camera": "z1", "iso": None}


@given(st.dictionaries(st.text(max_size=60), st.text(max_size=5), min_size=1, max_size=40))
def test_an_answer_is_read_by_exact_keys_or_not_at_all(document: dict[str, str]) -> None:
    """Whatever the keys, and however many: the reason is one bounded line, and no value but a field's own is read."""
    run = judge_answer("small", reply_of(json.dumps(document), "stop"), FIELDS, 0.1).run
    if run.valid:
        assert run.entities == {field: document.get(field) or None for field in FIELDS}
        assert not document.keys().isdisjoint(FIELDS)
    else:
        assert run.error is not None
        assert len(run.error) <= 1_000
        assert run.error.isprintable()
        assert document.keys() - set(FIELDS)


def reply_of(text: str, finish_reason: str | None) -> Reply:
    return Reply(text, finish_reason, 5, 0.1)


@pytest.mark.parametrize(
    "reason", ["stop", "eos_token", "eos", "end", "stop_sequence", "tool_calls", "max_tokens", None]
)
def test_text_that_parses_is_whole_but_for_three_reasons(reason: str | None) -> None:
    assert judge_answer("small", reply_of('{"iso": "1"}', reason), FIELDS, 0.1).run.valid
    half = judge_answer("small", reply_of('{"iso": "1', reason), FIELDS, 0.1).run
    assert not half.valid
    assert reason in (None, "stop") or f"finish_reason {reason}" in str(half.error)


@pytest.mark.parametrize("reason", ["length", "content_filter", "abort", "LENGTH"])
def test_three_reasons_mean_a_cut_answer(reason: str) -> None:
    judged = judge_answer("small", reply_of('{"iso": "1"}', reason), FIELDS, 0.1)
    assert (judged.run.valid, judged.fault) == (False, "cut")
    assert judged.run.error == f"the answer was cut (finish_reason {reason})"


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
