"""How entities are compared and counted, against a reference that spells every pair out."""

from __future__ import annotations

import unicodedata
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.entities import count_pairs, equal, normalise

quick = settings(max_examples=80)
# Few letters in many disguises, so that values meet: case, full width, ligatures, spaces of all kinds.
disguised = st.text(alphabet="aAａﬁFIßẞ \u00a0\u2003\t1¹Å\u212b\u0345ͅιΙ", max_size=4)
value = st.none() | disguised | st.lists(disguised, max_size=3)
answers = st.none() | st.dictionaries(st.sampled_from(["iso", "lens", "camera"]), value, max_size=3)


def pairs(answer: dict[str, Any] | None, fields: list[str]) -> set[tuple[str, str]]:
    found = set()
    for field in fields:
        raw = (answer or {}).get(field)
        for text in [raw] if isinstance(raw, str) else raw or []:
            folded = unicodedata.normalize("NFKC", text)
            while (again := unicodedata.normalize("NFKC", folded.casefold())) != folded:
                folded = again
            if folded.split():
                found.add((field, " ".join(folded.split())))
    return found


@quick
@given(answer=answers, gold=answers)
def test_counts_are_those_of_the_sets_of_pairs(answer: dict[str, Any] | None, gold: dict[str, Any] | None) -> None:
    fields = ["iso", "lens", "camera"]
    ours, right = pairs(answer, fields), pairs(gold, fields)
    counted = count_pairs(answer, gold, fields)
    assert counted == (len(ours & right), len(ours), len(right))
    assert count_pairs(answer, gold) == counted
    assert equal(answer, gold) == (ours == right)


@quick
@given(rows=st.lists(st.tuples(answers, answers), min_size=1, max_size=5))
def test_micro_f1_pools_precision_and_recall(rows: list[tuple[Any, Any]]) -> None:
    fields = ["iso", "lens", "camera"]
    pooled = [count_pairs(answer, gold, fields) for answer, gold in rows]
    ours = {(n, *pair) for n, (answer, _) in enumerate(rows) for pair in pairs(answer, fields)}
    right = {(n, *pair) for n, (_, gold) in enumerate(rows) for pair in pairs(gold, fields)}
    hits = sum(one == other for one, other in product(ours, right))
    assert sum(counts.true_positives for counts in pooled) == hits
    if hits:
        precision, recall = hits / len(ours), hits / len(right)
        both = sum(counts.predicted + counts.gold for counts in pooled)
        assert 2 * hits / both == pytest.approx(2 * precision * recall / (precision + recall))


@quick
@given(text=st.text(max_size=12) | disguised)
def test_normalise_is_idempotent_and_folds_variants(text: str) -> None:
    """Normalising is idempotent and ignores case, Unicode form and outer spacing."""
    folded = normalise(text)
    assert normalise(folded) == folded
    assert normalise(f" \t{text}\u00a0") == folded
    assert normalise(unicodedata.normalize("NFD", text)) == folded
    assert normalise(text.casefold()) == folded


@quick
@given(text=st.text(alphabet=st.characters(max_codepoint=127), max_size=20))
def test_plain_text_takes_a_shorter_way_to_the_same_form(text: str) -> None:
    spelled_out = unicodedata.normalize("NFKC", text).casefold()
    assert normalise(text) == " ".join(spelled_out.split())


@quick
@given(first=answers, second=answers)
def test_equality_is_symmetric_and_ignores_order_and_repetition(first: Any, second: Any) -> None:
    assert equal(first, second) == equal(second, first)
    assert equal(first, first)
    turned = {
        field: [*reversed(found), *found] if isinstance(found, list) else found
        for field, found in reversed((first or {}).items())
    }
    assert equal(first, turned)


@pytest.mark.parametrize(
    ("answer", "gold", "same"),
    [
        ({"iso": None}, {}, True),
        ({"iso": ""}, {}, True),
        ({"iso": " "}, {"iso": []}, True),
        ({"iso": "100"}, {"iso": ["100"]}, True),
        ({"iso": "ＩＳＯ １００"}, {"iso": "iso 100"}, True),
        ({"lens": "STRASSE"}, {"lens": "straße"}, True),
        ({"iso": "100"}, {"lens": "100"}, False),
        ({"iso": "100"}, {"iso": "1 00"}, False),
    ],
)
def test_answers_that_a_person_would_call_the_same_are(answer: Any, gold: Any, same: bool) -> None:
    assert equal(answer, gold) is same


def test_fields_that_the_workload_does_not_have_do_not_count() -> None:
    assert count_pairs({"iso": "100", "other": "x"}, {"iso": "100", "else": "y"}, ["iso"]) == (1, 1, 1)
