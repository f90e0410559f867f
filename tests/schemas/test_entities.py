"""How entities are compared and counted, against a reference that spells every pair out."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.entities import (
    _SPELT_NOTHINGS,
    count_pairs,
    equal,
    normalise,
    spells_any_nothing,
    spells_nothing,
    spelt_nothings,
    with_nulls,
)

quick = settings(max_examples=80)
# Few letters in many disguises, so that values meet: case, full width, ligatures, spaces of all kinds, and what nobody
# sees: zero-width space, joiner, byte order mark, soft hyphen, variation selector, tag, filler of Hangul.
unseen = "\u200b\u200d\ufeff\u00ad\ufe0f\U000e0041\u3164"
disguised = st.text(alphabet="aAａﬁFIßẞ \u00a0\u2003\t1¹Å\u212b\u0345ͅιΙ" + unseen, max_size=4)
value = st.none() | disguised | st.lists(disguised, max_size=3)
answers = st.none() | st.dictionaries(st.sampled_from(["iso", "lens", "camera"]), value, max_size=3)


# As the annex on Unicode's character database defines the property: format characters and variation selectors, and some
# named one by one, but for those that are seen.
NAMED = {
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x3164,
    0xFFA0,
    0x2065,
    *range(0xFFF0, 0xFFF9),
    *range(0xE0000, 0xE1000),
}
SEEN = {*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}
SEEN |= {*range(0xFFF9, 0xFFFC), *range(0x13430, 0x13460)}
SELECTORS = {*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10)}
IGNORABLE = NAMED | SELECTORS | {n for n in range(0x110000) if unicodedata.category(chr(n)) == "Cf"} - SEEN


def spelled_out(text: str) -> str:
    folded = unicodedata.normalize("NFKC", "".join(character for character in text if ord(character) not in IGNORABLE))
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


def test_no_ignorable_character_tells_values_apart() -> None:
    """Each character that Unicode calls default-ignorable, within a value and alone, where it is null; no other one."""
    told = {n for n in range(0x110000) if not 0xD800 <= n < 0xE000 and normalise(f"a{chr(n)}b") == "ab"}
    assert told == IGNORABLE
    assert len(IGNORABLE) == 4_174
    assert equal({"camera": "\u200bab\ufeff"}, {"camera": "ab"})
    assert equal({"camera": "".join(map(chr, sorted(IGNORABLE)[:99]))}, {"camera": None})


def test_nulls_stand_for_null_texts_alone() -> None:
    """Compared as values are; a value that only holds such a text stays, and a field that is left with none is null."""
    given = {"iso": "N\u2060/A", "lens": ("50 mm", "n/a"), "camera": ["ｎ／ａ"], "mount": "n/a or ef", "flash": None}
    wanted = {"iso": None, "lens": ("50 mm",), "camera": None, "mount": "n/a or ef", "flash": None}
    assert with_nulls(given, {"n/a"}) == wanted
    assert with_nulls(wanted, ()) == wanted
    assert list(spelt_nothings(given, ())) == [("iso", "N\u2060/A"), ("lens", "n/a"), ("camera", "ｎ／ａ")]
    assert not list(spelt_nothings(given, {"n/a"}))


def test_fields_that_the_workload_does_not_have_do_not_count() -> None:
    assert count_pairs({"iso": "100", "other": "x"}, {"iso": "100", "else": "y"}, ["iso"]) == (1, 1, 1)


nothings = st.builds(
    lambda before, text, shape: before + shape(text),
    st.sampled_from(("", " ", "\u200b", "\t")),
    st.sampled_from(sorted(_SPELT_NOTHINGS)),
    st.sampled_from((str.lower, str.upper, str.title)),
)
values = nothings | st.sampled_from(("100", "canon", "nikon", "ultra")) | st.text(max_size=4)


@given(values)
def test_a_text_spells_nothing_however_it_is_written(text: str) -> None:
    """The first character alone rules out most texts; it never rules out one that counts."""
    assert spells_nothing(text) == (normalise(text) in _SPELT_NOTHINGS)


@given(st.dictionaries(st.sampled_from("abc"), st.none() | values | st.lists(values, max_size=2)), st.booleans())
def test_whether_any_value_spells_nothing_is_told_alike(entities: Any, is_null: bool) -> None:
    """The quick answer of the join is that of the list which people are shown."""
    nulls = {"none"} if is_null else set()
    assert spells_any_nothing(entities, nulls) == bool(list(spelt_nothings(entities, nulls)))
