"""What a text is like: bounded vocabularies, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.query_traits import (
    MAX_WORDS,
    QueryTraits,
    language,
    letter_case,
    script,
    segments_of,
    size_class,
    word_bucket,
    words_of,
)
from schemas.traffic import MAX_CATEGORY_CHARS, WORD_BUCKETS
from tests.support.recalibrator_events import FIELDS, routed

TRAITS = QueryTraits(FIELDS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("suche fotos mit der canon 5d", "de"),
        ("busco fotos con la canon 5d sin flash", "es"),
        ("cherche photos avec le canon 5d", "fr"),
        ("photos taken with the canon 5d", "en"),
        ("canon 5d 1/60", "none"),
    ],
)
def test_function_words_name_the_language(text: str, found: str) -> None:
    assert language(words_of(text)) == found


@given(st.text())
def test_any_text_has_one_category_in_each_trait(text: str) -> None:
    """Traits are few and short words for any text, and its words few and bounded hashes."""
    words = words_of(text)
    event = routed(1).model_copy(update={"text": text})
    traits = dict(TRAITS.of(event, words))
    assert set(traits) == {"script", "language", "letter_case", "text_length", "latency", "field:camera", "field:lens"}
    assert all(0 < len(category) <= MAX_CATEGORY_CHARS for category in traits.values())
    assert script(text) == traits["script"]
    assert letter_case(text) == traits["letter_case"]
    assert len(words) <= MAX_WORDS
    assert all(0 <= word_bucket(word) < WORD_BUCKETS for word in words)


@given(st.integers(0, 10**9))
def test_a_size_lies_in_its_class(size: int) -> None:
    upper = int(size_class(size))
    assert size <= upper or upper == 4_096
    assert upper == 1 or size > upper // 2


def test_fields_are_given_missing_or_without_answer() -> None:
    event = routed(1)
    assert event.small is not None
    half = event.small.model_copy(update={"entities": {"camera": "Z6", "lens": None}})
    failed = event.small.model_copy(update={"entities": None, "valid": False})
    found = [
        [dict(TRAITS.of(event.model_copy(update={"small": small}), ()))[f"field:{name}"] for name in FIELDS]
        for small in (half, failed)
    ]
    assert found == [["given", "missing"], ["no_answer", "no_answer"]]


def test_margins_of_fields_fall_into_a_few_classes() -> None:
    """A field that the answer does not name has none, nor one that the workload does not have, nor earlier results."""
    event = routed(1)
    assert event.small is not None
    margins = {"lens": 0.8999, "camera": 0.99, "mood": 0.1}
    sure = event.small.model_copy(update={"field_margins": margins})
    traits = dict(TRAITS.of(event.model_copy(update={"small": sure}), ()))
    found = {name: category for name, category in traits.items() if name.startswith("margin:")}
    assert found == {"margin:camera": "0.99", "margin:lens": "0.8"}
    assert not [name for name, _ in TRAITS.of(event, ()) if name.startswith("margin:")]


def test_a_segment_value_is_one_short_text() -> None:
    """Numbers and truth values become text, what is missing or empty is none, and the rest is other."""
    metadata = {"source": "w" * 100, "tier": 2, "beta": False, "tags": {}, "empty": ""}
    names = ("source", "tier", "beta", "tags", "empty", "absent")
    assert segments_of(metadata, names) == {
        "source": "w" * MAX_CATEGORY_CHARS,
        "tier": "2",
        "beta": "false",
        "tags": "other",
        "empty": "none",
        "absent": "none",
    }
    assert segments_of(None, ("source",)) == {"source": "none"}
