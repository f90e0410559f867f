"""A field's margin is that of its value's tokens, wherever they begin, and of nothing that looks like a key."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.answer import field_margins, parse_answer
from stream_router.ports import Reply, TokenMark

FIELDS = ("camera", "lens")


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
    assert field_margins(text, marks, FIELDS) == {"lens": 0.6, "camera": 0.6}


def test_tokens_that_came_together_all_count() -> None:
    """Of several tokens with one start nobody knows which holds the value."""
    text = '{"lens": "50mm"}'
    marks = (TokenMark(0, 1.0), TokenMark(8, 0.2), TokenMark(8, 0.6), TokenMark(16, 0.5))
    assert field_margins(text, marks, FIELDS) == {"lens": 0.4}


@given(st.text(max_size=12), st.lists(st.text(max_size=4), max_size=3))
def test_no_value_passes_for_a_key(value: str, others: list[str]) -> None:
    """Whatever a text holds, quotes, colons and escapes included, the next field's tokens are found behind it."""
    text = json.dumps({"camera": [value, '": "lens": ', *others], "lens": "50mm"})
    begins = text.rindex('"lens": ') + len('"lens": ')
    marks = tuple(TokenMark(at, 0.25 if at >= begins else 1.0) for at in range(len(text)))
    assert field_margins(text, marks, FIELDS)["lens"] == 0.25
    assert field_margins(text, marks, FIELDS)["camera"] == 1.0


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
    run = parse_answer("small", reply, FIELDS, 0.1, with_margins=with_margins)
    assert run.field_margins == known
    assert (b"field_margins" in run.model_dump_json().encode()) == (known is not None)
