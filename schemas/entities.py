"""Entities: what a model extracts and a labeler confirms; normalised, compared and counted here and nowhere else.

Comparison is after Unicode NFKC, case folding and white-space folding; a missing field equals null.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
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


def normalise(text: str) -> str:
    r"""Fold a value to the form in which values are compared.

    Examples
    --------
    >>> normalise("  Canon   EOS\u00a05D ") == normalise("canon eos 5d")
    True
    """
    if text.isascii():
        return " ".join(text.lower().split())
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
