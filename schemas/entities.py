"""Entities: what a model extracts and a labeler confirms; normalised, compared and counted here and nowhere else.

Comparison leaves out characters that Unicode calls default-ignorable, since nobody sees them, and is after NFKC, case
folding and white-space folding; a missing field equals null.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from schemas.event import Many, Members

MAX_VALUE_CHARS = 4_096
MAX_VALUES = 256
MAX_FIELDS = 256


class _OneMessage:
    """Reports a faulty value once, rather than once for each type that it might have had."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        message = (
            f"must be null, text of at most {MAX_VALUE_CHARS} characters or a list of at most {MAX_VALUES} such texts"
        )
        return core_schema.custom_error_schema(handler(source), "entity_value", custom_error_message=message)


EntityText = Annotated[str, Field(max_length=MAX_VALUE_CHARS)]
EntityValue = Annotated[EntityText | Annotated[Many[EntityText], Field(max_length=MAX_VALUES)] | None, _OneMessage()]
#: ``{field: text | [text, ...] | null}``.
Entities = Annotated[Members[Annotated[str, Field(max_length=255)], EntityValue], Field(max_length=MAX_FIELDS)]

EntityMapping = Mapping[str, str | tuple[str, ...] | list[str] | None]


class PairCounts(NamedTuple):
    """Counts of (field, value) pairs of one answer against the gold ones."""

    true_positives: int
    predicted: int
    gold: int


#: The code points of Unicode's property Default_Ignorable_Code_Point, first and last of each range: soft hyphen,
#: joiners, marks of direction, zero-width space, byte order mark, fillers of Hangul, variation selectors, tags. From
#: DerivedCoreProperties.txt of Unicode 17.0; the property reserves whole ranges, so that it hardly ever changes.
_IGNORABLE_RANGES = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
#: What stands in a text and shows nothing.
IGNORABLE = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _IGNORABLE_RANGES) + "]+")


def normalise(text: str) -> str:
    r"""Fold a value to the form in which values are compared.

    Examples
    --------
    >>> normalise("  Canon   EOS\u00a05D ") == normalise("canon eos 5d") == normalise("\u200bcanon eos\ufeff 5\u00add")
    True
    """
    if text.isascii():
        return " ".join(text.lower().split())
    text = IGNORABLE.sub("", text)
    # Case folding can undo NFKC (U+0345), so that the composition is applied once more after it.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def field_values(value: str | Iterable[str] | None) -> frozenset[str]:
    """Return the distinct non-empty normalised values of one field.

    Examples
    --------
    >>> sorted(field_values(["ISO 100", "iso  100", ""]))
    ['iso 100']
    """
    if value is None:
        return _NO_VALUES
    if isinstance(value, str):
        return _values_of_short(value) if len(value) <= _SHORT_CHARS else _values_of(value)
    return frozenset(folded for text in value if (folded := normalise(text)))


def _values_of(text: str) -> frozenset[str]:
    folded = normalise(text)
    return frozenset((folded,)) if folded else _NO_VALUES


_NO_VALUES: frozenset[str] = frozenset()
_SHORT_CHARS = 64
# A join compares the same few values again and again: each answer with the other and with the label, as a whole and
# field by field.
_values_of_short = lru_cache(maxsize=1_024)(_values_of)


#: Texts, as :func:`normalise` gives them, by which programs write that there is no value: ``str()`` of Python, data
#: frames, spreadsheets, SQL and JavaScript.
_SPELT_NOTHINGS = frozenset(
    {
        *("none", "null", "nil", "nan", "-nan", "nat", "na", "undefined", "<na>", "<n/a>", "<none>", "<null>", "<nan>"),
        *(
            "n/a",
            "n.a.",
            "n. a.",
            "#n/a",
            "#n/a n/a",
            "#na",
            "(none)",
            "(null)",
            "[null]",
            "\\n",
            "[]",
            "{}",
            '""',
            "''",
        ),
        *("-", "--", "---", "\u2013", "\u2014"),
    }
)
#: Characters of a text that may stand for null. The join keeps longer values as digests, which tell nothing.
MAX_NULL_CHARS = 32


def spells_nothing(text: str) -> bool:
    """Return whether a text looks like a null that some program wrote out; such a text counts as a value.

    Examples
    --------
    >>> [spells_nothing(text) for text in ("None", " n/a ", "NaN", "<NA>", "-", "nonesuch", "")]
    [True, True, True, True, True, False, False]
    """
    return text[:1] not in _NEVER_FIRST and len(text) <= MAX_NULL_CHARS and normalise(text) in _SPELT_NOTHINGS


#: Characters that no spelt nothing begins with, however it is written. Most values begin with one, and the join looks
#: at every value of every answer.
_NEVER_FIRST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") - {
    letter for text in _SPELT_NOTHINGS for letter in (text[0].lower(), text[0].upper())
}


def spells_any_nothing(entities: EntityMapping | None, null_texts: Collection[str] = ()) -> bool:
    """Return whether a value spells nothing; as :func:`spelt_nothings`, in less time."""
    for value in (entities or {}).values():
        if isinstance(value, str):
            if value[:1] not in _NEVER_FIRST and spells_nothing(value) and normalise(value) not in null_texts:
                return True
        elif value and any(spells_nothing(text) and normalise(text) not in null_texts for text in value):
            return True
    return False


def spelt_nothings(entities: EntityMapping | None, null_texts: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield each field and value that spells nothing.

    ``null_texts``: the workload's, in normal form; they are null already.

    Examples
    --------
    >>> list(spelt_nothings({"iso": "None", "lens": ("50 mm", "n/a"), "camera": "null"}, {"null"}))
    [('iso', 'None'), ('lens', 'n/a')]
    """
    for field, value in (entities or {}).items():
        for text in (value,) if isinstance(value, str) else value or ():
            if spells_nothing(text) and normalise(text) not in null_texts:
                yield field, text


def with_nulls(entities: EntityMapping, null_texts: Collection[str]) -> dict[str, str | tuple[str, ...] | None]:
    """Return the entities with null in place of each value whose normal form is one of ``null_texts``.

    Examples
    --------
    >>> with_nulls({"iso": "N/A", "lens": ["50 mm", "n/a"], "camera": ["n/a"]}, {"n/a"})
    {'iso': None, 'lens': ('50 mm',), 'camera': None}
    """
    return {field: _without(value, null_texts) for field, value in entities.items()}


def _without(value: str | Iterable[str] | None, null_texts: Collection[str]) -> str | tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return None if value is not None and normalise(value) in null_texts else value
    kept = tuple(text for text in value if normalise(text) not in null_texts)
    return kept or None


def count_pairs(
    answer: EntityMapping | None, gold: EntityMapping | None, fields: Iterable[str] | None = None
) -> PairCounts:
    """Count the (field, value) pairs of which micro-F1 is ``2 * sum(true_positives) / (sum(predicted) + sum(gold))``.

    ``answer``, ``gold``: None counts as no entity at all. ``fields``: the workload's, others are ignored; by default
    every field named on either side counts.

    Examples
    --------
    >>> count_pairs({"iso": "100", "lens": "50 mm"}, {"iso": " 100", "camera": "X"})
    PairCounts(true_positives=1, predicted=2, gold=2)
    """
    answer, gold = answer or {}, gold or {}
    true_positives = predicted = wanted = 0
    for field in dict.fromkeys((*answer, *gold)) if fields is None else fields:
        found, right = field_values(answer.get(field)), field_values(gold.get(field))
        true_positives += len(found & right)
        predicted += len(found)
        wanted += len(right)
    return PairCounts(true_positives, predicted, wanted)


def equal(first: EntityMapping | None, second: EntityMapping | None, fields: Iterable[str] | None = None) -> bool:
    """Return whether all fields hold the same values, by the comparison above."""
    counts = count_pairs(first, second, fields)
    return counts.true_positives == counts.predicted == counts.gold
