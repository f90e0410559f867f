"""How entities are compared and counted, against a reference that spells every pair out."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.entities import count_pairs, equal, normalise

quick = settings(max_examples=80)
# Few letters in many disguises, so that values meet: case, full width, ligatures, spaces of all kinds.
disguised = st.text(alphabet="aAａﬁFIßẞ \u00a0\u2003\t1¹Å\u212b\u0345ͅιΙ", max_size=4)
value = st.none() | disguised | st.lists(disguised, max_size=3)
answers = st.none() | st.dictionaries(st.sampled_from(["iso", "lens", "camera"]), value, max_size=3)


def spelled_out(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text)
    while (again := unicodedata.normalize("NFKC", folded.casefold())) != folded:
        folded = again
    return " ".join(folded.split())


def pairs(answer: dict[str, Any] | None, fields: list[str]) -> set[tuple[str, str]]:
    found = set()
    for field in fields:
        raw = (answer or {}).get(field)
        for text in [raw] if isinstance(raw, str) else raw or []:
            if folded := spelled_out(text):
                found.add((field, folded))
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
@given(text=st.text(alphabet=st.characters(max_codepoint=127), max_size=20) | st.text(max_size=12) | disguised)
@example(text="ＩＳＯ\u3000 １００ STRAßE").via("full width, spaces of all kinds, a letter that folds to two")
def test_normalise_folds_as_unicode_spells_out(text: str) -> None:
    """Plain text takes a shorter way to the same form; a form stays as it is."""
    assert normalise(text) == spelled_out(text)
    assert normalise(normalise(unicodedata.normalize("NFD", text))) == normalise(text)


def test_fields_that_the_workload_does_not_have_do_not_count() -> None:
    assert count_pairs({"iso": "100", "other": "x"}, {"iso": "100", "else": "y"}, ["iso"]) == (1, 1, 1)
