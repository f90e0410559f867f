"""How entities are compared and counted, against a reference that spells every pair out."""

from __future__ import annotations

import unicodedata
from typing import Any

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
@given(text=st.text(alphabet=st.characters(max_codepoint=127), max_size=20))
def test_plain_text_takes_a_shorter_way_to_the_same_form(text: str) -> None:
    spelled_out = unicodedata.normalize("NFKC", text).casefold()
    assert normalise(text) == " ".join(spelled_out.split())


def test_fields_that_the_workload_does_not_have_do_not_count() -> None:
    assert count_pairs({"iso": "100", "other": "x"}, {"iso": "100", "else": "y"}, ["iso"]) == (1, 1, 1)
