"""A movement in one sentence for operators: what moved, since when, by how much, in which segment, what it explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from recalibrator.fit.movement.causes import OF_LABELS
from schemas.movement import MovedTrait, RateChange
from schemas.traffic import ANSWERS, FIELD, MARGIN, SEGMENT

_HARDLY = 0.1
_LANGUAGES = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
    "none": "no recognized language",
}
_CASES = {
    "lower": "queries without capitals",
    "upper": "queries in capitals",
    "mixed": "queries with some capitals",
    "none": "queries without letters",
}


def say(
    traits: tuple[MovedTrait, ...], escalation: RateChange, since: datetime, micro_f1: RateChange | None = None
) -> str:
    """Return the sentence.

    Parameters
    ----------
    traits : tuple of MovedTrait
        At least one.
    escalation : RateChange
    since : datetime
    micro_f1 : RateChange, optional

    Examples
    --------
    >>> from datetime import UTC
    >>> from schemas.movement import MovedCategory
    >>> moved = MovedTrait(
    ...     trait="field:camera",
    ...     segment="source",
    ...     value="web",
    ...     categories=(MovedCategory(category="missing", before=0.31, after=0.52),),
    ...     information=0.1,
    ... )
    >>> say((moved,), RateChange(before=0.2, after=0.3), datetime(2026, 1, 31, 2, 10, tzinfo=UTC))
    'camera is missing more often since 02:10 UTC on 31 Jan (31 % → 52 % of queries), mainly where source is web.'
    """
    first = traits[0]
    said = first.categories[0]
    category, before, after = said.category, said.before, said.after
    if first.trait == "words" and category == "none":
        # That fewer queries are of usual words alone is better said of the others.
        category, before, after = "any", 1.0 - before, 1.0 - after
    what = _subject(first.trait, category, more=after > before)
    where = f"{first.segment} is {first.value}"
    change = f"{_percent(before)} → {_percent(after)} {_unit(first.trait)}{' there' if first.is_confined else ''}"
    found = f"{what} since {since:%H:%M} UTC on {since:%d %b} ({change})"
    if first.segment is not None:
        found += f", only where {where}" if first.is_confined else f", mainly where {where}"
    parts = (
        _explains(first.escalation_explained, "escalation", escalation, _percent),
        _explains(first.micro_f1_explained, "micro-F1", micro_f1, "{:.3f}".format),
    )
    if any(parts):
        found += f"; explains {' and '.join(part for part in parts if part)}"
    others = [name_of(one.trait) for one in traits[1:3]]
    return found + (f"; {' and '.join(others)} moved too." if others else ".")


def _explains(share: float | None, name: str, rate: RateChange | None, written: Callable[[float], str]) -> str:
    """Say how much of a rate's change is explained; nothing where that is hardly any of it."""
    if share is None or rate is None or share < _HARDLY:
        return ""
    way = "rise" if rate.after > rate.before else "fall"
    part = "all" if share >= 1.0 else _percent(share)
    return f"{part} of the {way} in {name} ({written(rate.before)} → {written(rate.after)})"


def name_of(trait: str) -> str:
    """Return a trait as people call it.

    Examples
    --------
    >>> name_of("field:camera"), name_of("words"), name_of("margin:lens")
    ('camera', 'rare words', 'the margin of lens')
    """
    if trait.startswith(MARGIN):
        return f"the margin of {trait.removeprefix(MARGIN).replace('_', ' ')}"
    return _NAMES.get(trait) or trait.removeprefix(FIELD).removeprefix(SEGMENT).replace("_", " ")


_PRESENCE = {"missing": "is missing", "given": "is given", "no_answer": "has no valid answer"}
_STRANGE = {
    "any": "queries with rare or new words",
    "none": "queries of usual words alone",
    "few": "queries with a few rare or new words",
    "some": "queries with many rare or new words",
    "most": "queries of mostly rare or new words",
}
_MARGINS = {"0": "below 0.8", "0.8": "from 0.8 to 0.9", "0.9": "from 0.9 to 0.99", "0.99": "of at least 0.99"}
_ANSWERS = {"right": "right answers", "partly": "partly right answers", "wrong": "wrong answers"}
_NAMES = {"words": "rare words", "latency": "the small model's latency", "labeler": "labelers"}


def _subject(trait: str, category: str, *, more: bool) -> str:
    often = "more often" if more else "less often"
    many = "are more frequent" if more else "are less frequent"
    if trait.startswith(FIELD):
        state = {"missing": "is missing", "given": "is given", "no_answer": "has no valid answer"}.get(
            category, category
        )
        return f"{name_of(trait)} {state} {often}"
    if trait.startswith(MARGIN):
        field = trait.removeprefix(MARGIN).replace("_", " ")
        return f"answers with a margin of {field} {_MARGINS.get(category, category)} {many}"
    if trait.startswith(SEGMENT):
        return f"queries with {name_of(trait)} {category} {many}"
    return f"{_NOUNS[trait](category)} {many}" if trait in _NOUNS else f"{trait} {category} {many}"


def _sizes(category: str) -> str:
    return f"{int(category) // 2 + 1} to {category}" if category.isdigit() else category


_NOUNS: Mapping[str, Callable[[str], str]] = {
    "words": lambda category: _STRANGE.get(category, f"{category} words"),
    "language": lambda category: f"queries in {_LANGUAGES.get(category, category)}",
    "script": lambda category: f"queries in {category.capitalize()} script" if category != "none" else _CASES["none"],
    "letter_case": lambda category: _CASES.get(category, category),
    "text_length": lambda category: f"texts of {_sizes(category)} characters",
    "latency": lambda category: f"small answers that take {_sizes(category)} ms",
    ANSWERS: lambda category: _ANSWERS.get(category, f"{category} answers"),
    "labeler": lambda category: f"labels by {category}",
    "label_delay": lambda category: f"labels that come after {_sizes(category)} s",
}


def _unit(trait: str) -> str:
    return "of labels" if trait in OF_LABELS else "of queries"


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
