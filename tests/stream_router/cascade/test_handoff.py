"""Where an answer is cut to be handed over: never inside what belongs together, and always at a beginning of it."""

from __future__ import annotations

import json
import re
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.basis import Granularity, Handoff
from stream_router.cascade.handoff import handed_over
from stream_router.ports import TokenMark

CUT = 0.9
BY_FIELD, BY_TOKEN = Handoff(margin=CUT), Handoff(margin=CUT, granularity="token")

values = st.none() | st.text(max_size=8) | st.integers() | st.lists(st.none() | st.text(max_size=4), max_size=3)
entities = st.dictionaries(st.text(min_size=1, max_size=6), values, max_size=5)
PAIR = r"\\u[dD][89abAB]..\\u[dD][c-fC-F].."
#: What is never cut: escapes, surrogate pairs of them, numbers and literals. Strings are cut between characters.
LEXEMES = re.compile(rf"{PAIR}|\\u....|\\.|-?\d+|null|.", re.DOTALL)


#: An answer and its tokens.
Marked = tuple[str, list[TokenMark]]


@st.composite
def answers(draw: st.DrawFn) -> str:
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" , ", " : ")]))
    indent = draw(st.sampled_from([None, 1]))
    text = json.dumps(draw(entities), ensure_ascii=draw(st.booleans()), separators=separators, indent=indent)
    return draw(st.sampled_from(["", " ", "\n"])) + text


@st.composite
def marked(draw: st.DrawFn) -> Marked:
    """Draw an answer and its tokens: cut anywhere, inside escapes and numbers too, as a tokenizer does."""
    text = draw(answers())
    starts = sorted({0, *draw(st.lists(st.integers(0, len(text)), max_size=12))})
    margins = draw(st.lists(st.floats(0.0, 1.0), min_size=len(starts), max_size=len(starts)))
    return text, list(map(TokenMark, starts, margins))


@given(marked(), st.sampled_from([BY_FIELD, BY_TOKEN]))
def test_what_is_handed_over_is_certain_and_still_open(case: Marked, handoff: Handoff) -> None:
    """It begins the answer, ends before the first unsure token, and leaves the object for the large model to end."""
    text, marks = case
    part = handed_over(text, marks, handoff)
    assert text.startswith(part)
    assert len(part) <= next((mark.start for mark in marks if mark.margin < CUT), len(text))
    assert not part[-1:].isspace()
    with pytest.raises(ValueError, match=r"Expect|Unterminated|Invalid"):
        json.loads(part)


@given(marked())
def test_whole_fields_alone_are_handed_over_by_field(case: Marked) -> None:
    """Closed behind its last comma, the part is an object of the answer's first fields, as they are."""
    text, marks = case
    part = handed_over(text, marks, BY_FIELD)
    if part:
        assert part.endswith(",")
        fields, given_fields = json.loads(text), json.loads(part[:-1] + "}")
        assert list(given_fields.items()) == list(fields.items())[: len(given_fields)]
        assert 0 < len(given_fields) < len(fields)


@given(marked())
@example(('{"a": null, "b": null}', [TokenMark(0, 1.0)]))
def test_no_token_is_cut_by_field(case: Marked) -> None:
    """Half a token is read as another one, after which the large model has never seen an answer go on."""
    text, marks = case
    assert len(handed_over(text, marks, BY_FIELD)) in {0, len(text), *(mark.start for mark in marks)}


@given(marked())
def test_no_escape_number_or_literal_is_cut_by_token(case: Marked) -> None:
    """The part ends where one lexeme of the whole answer ends; the lexemes are found here anew."""
    text, marks = case
    ends = {0, *accumulate(len(lexeme) for lexeme in LEXEMES.findall(text))}
    assert len(handed_over(text, marks, BY_TOKEN)) in ends


@given(marked(), st.sampled_from(["field", "token"]))
@example(('{"a": null, "b": null}', [TokenMark(0, 1.0)]), "field")
def test_a_lower_cut_hands_over_at_least_as_much(case: Marked, granularity: Granularity) -> None:
    text, marks = case
    parts = [handed_over(text, marks, Handoff(margin=cut, granularity=granularity)) for cut in (0.2, 0.5, 0.8, 1.0)]
    assert all(len(low) >= len(high) for low, high in pairwise(parts))
    assert len(handed_over(text, marks, BY_FIELD)) <= len(handed_over(text, marks, BY_TOKEN))


@pytest.mark.parametrize(
    "text",
    [
        'Sure! {"iso": "100", "lens": null}',
        '["iso", "lens", "camera"]',
        '{"iso": {"value": "100", "unit": null}, "lens": null}',
        '{"iso": [["100"], "200"], "lens": null}',
        '{"iso": "100", "lens": null} and more, I think',
        '{"iso" "100", "lens": null}',
        '{"iso": 01, "lens": null}',
        '{"iso": NaN, "lens": null}',
        '{"iso": "a\nb", "lens": null}',
        '{"iso": "\\ud83d", "lens": null}',
        '{"iso": "100",, "lens": null}',
        '{"iso": "\ud83d", "lens": null}',
        '{"iso": "100"], "lens": null}',
        "",
    ],
)
def test_what_is_no_answer_hands_nothing_over(text: str) -> None:
    """Not by token either, as long as what is wrong with it lies in the certain part."""
    assert [handed_over(text, [TokenMark(0, 1.0)], how) for how in (BY_FIELD, BY_TOKEN)] == ["", ""]


@pytest.mark.parametrize(
    ("unsure_at", "by_field", "by_token"),
    [
        ("100", "", '{"iso": "'),
        ("50mm", '{"iso": "100",', '{"iso": "100", "lens": "'),
        ("f/4", '{"iso": "100",', '{"iso": "100", "lens": "50mm'),
    ],
)
def test_the_part_ends_before_the_first_unsure_token(unsure_at: str, by_field: str, by_token: str) -> None:
    """A character that is not whole counts as unsure: its bytes may belong to another one."""
    text = '{"iso": "100", "lens": "50mm\N{REPLACEMENT CHARACTER}", "aperture": "f/4"}'
    broken = TokenMark(text.index("\N{REPLACEMENT CHARACTER}"), 1.0)
    sure = [TokenMark(0, 1.0), TokenMark(text.index(' "lens'), 1.0), broken]
    marks = sorted([*sure, TokenMark(text.index(unsure_at), 0.1)])
    assert (handed_over(text, marks, BY_FIELD), handed_over(text, marks, BY_TOKEN)) == (by_field, by_token)


def test_an_answer_without_a_doubt_is_left_open() -> None:
    text = '{"iso": "100", "lens": null}'
    marks = [TokenMark(0, 1.0), TokenMark(text.index(' "lens'), 1.0), TokenMark(len(text) - 1, 1.0)]
    assert handed_over(text, marks, BY_TOKEN) == '{"iso": "100", "lens": null'
    assert handed_over(text, marks, BY_FIELD) == '{"iso": "100",'


def test_a_cut_answer_without_a_doubt_is_handed_over_whole() -> None:
    """It ends where its last token does, though the place of the next one is not known."""
    text = '{"iso": "100", "len'
    assert handed_over(text, [TokenMark(0, 1.0), TokenMark(text.index("len"), 1.0)], BY_TOKEN) == text


@pytest.mark.parametrize("last", ['"}', 'mm"}', ' "50mm"}'])
def test_a_cut_inside_a_token_led_the_large_model_astray(last: str) -> None:
    """An answer that was certain to its end was cut before its brace, though one token may hold more than that."""
    text = '{"iso": "100", "lens": "50mm"}'
    marks = [TokenMark(0, 1.0), TokenMark(text.index(last), 1.0)]
    assert handed_over(text, marks, BY_TOKEN) == text.removesuffix(last)
