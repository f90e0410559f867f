"""What a routed query is like, in a few words of fixed vocabularies: its traits, and its words as hashes. Pure.

A trait has one category for each query. All are cheap: a scan of the text, and look-ups in what the router measured.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from schemas.routed import RoutedEvent
from schemas.traffic import FIELD, MARGIN, MAX_CATEGORY_CHARS, SEGMENT, WORD_BUCKETS

MAX_WORDS = 32
"""Of a query: the first ones say what it is about."""

MAX_FIELDS = 24
"""Fields whose presence is counted: those that the workload names first."""

NONE, OTHER = "none", "other"
_SCANNED_CHARS = 1_000
_LONGEST_CLASS, _LONGEST_LATENCY_CLASS = 12, 16
_MS = 1_000.0
_MARGIN_BOUNDS = (0.8, 0.9, 0.99)
MARGIN_CLASSES = ("0", "0.8", "0.9", "0.99")
"""Of a field's margin, by what it is at least."""

_SIZES = tuple(str(1 << power) for power in range(_LONGEST_LATENCY_CLASS + 1))
_UPPER_LEAST = 3

_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = {
    "en": "the and with for of at in on from any looking shots photos using by is to what where how show me taken",
    "de": "der die das und mit für von ein eine auf im bei nach zeige suche fotos aufnahmen nicht ist wie wo alle aus",
    "fr": "le les et avec pour une des du dans sur sans cherche photos prises quelles est au aux par ou tous montre",
    "es": "el los las y con para una del en sobre sin busco fotos tomadas cuáles es al por dónde todas muestra unas",
    "it": "il gli e con per una del della nel su senza cerco foto scattate quali è di da dove tutte mostra alle",
    "pt": "os as e com para uma do da no na em sem procuro fotos tiradas quais é ao por onde todas mostre umas",
    "nl": "het een en met voor van op in zonder zoek foto genomen welke is bij naar waar alle toon deze niet mijn",
}
_SCRIPTS = frozenset(
    {
        "LATIN",
        "CYRILLIC",
        "GREEK",
        "ARABIC",
        "HEBREW",
        "DEVANAGARI",
        "BENGALI",
        "TAMIL",
        "THAI",
        "CJK",
        "HIRAGANA",
        "KATAKANA",
        "HANGUL",
    }
)


def _votes() -> dict[str, tuple[str, ...]]:
    """Return which languages each function word speaks for; what most of them share speaks for none."""
    found: dict[str, tuple[str, ...]] = {}
    for language, words in _FUNCTION_WORDS.items():
        for word in words.split():
            found[word] = (*found.get(word, ()), language)
    return {word: languages for word, languages in found.items() if len(languages) < len(_FUNCTION_WORDS) // 2}


_VOTES = _votes()


def words_of(text: str) -> list[str]:
    """Return the first words of a text, case folded; what holds no letter is none.

    Examples
    --------
    >>> words_of("Canon 5D with the 70-200 at f2.8")
    ['canon', '5d', 'with', 'the', 'at', 'f2']
    """
    found = _WORD.findall(text[:_SCANNED_CHARS].casefold())
    return [word for word in found if not word.isdecimal()][:MAX_WORDS]


def buckets_of(words: Sequence[str]) -> tuple[int, ...]:
    """Return the hashes of words, each once, increasing."""
    return tuple(sorted(set(map(word_bucket, words))))


@lru_cache(maxsize=8_192)
def word_bucket(word: str) -> int:
    """Return a word's hash, the same in every process; different words seldom share one."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % WORD_BUCKETS


def language(words: Sequence[str]) -> str:
    """Return the language that a text's function words speak for, ``none`` where they speak for none or for two.

    Examples
    --------
    >>> language(["shots", "with", "canon"]), language(["fotos", "mit", "der", "canon"]), language(["canon"])
    ('en', 'de', 'none')
    """
    votes: dict[str, int] = {}
    for word in words:
        if word in _VOTES:
            for one in _VOTES[word]:
                votes[one] = votes.get(one, 0) + 1
    if not votes:
        return NONE
    best = max(votes.values())
    leaders = [one for one, count in votes.items() if count == best]
    return leaders[0] if len(leaders) == 1 else NONE


def script(text: str) -> str:
    """Return the script of most of a text's letters, ``none`` where it holds no letter.

    Examples
    --------
    >>> script("canon 5d"), script("снимки canon ночью"), script("1/60")
    ('latin', 'cyrillic', 'none')
    """
    text = text[:_SCANNED_CHARS]
    if text.isascii():
        return "latin" if any(map(str.isalpha, text)) else NONE
    found = Counter(_script_of(letter) for letter in text if letter.isalpha())
    return max(found, key=lambda name: (found[name], name)) if found else NONE


@lru_cache(maxsize=4_096)
def _script_of(letter: str) -> str:
    name = unicodedata.name(letter, "").split(" ", 1)[0]
    return name.lower() if name in _SCRIPTS else OTHER


def letter_case(text: str) -> str:
    """Return how a text uses capitals: ``upper`` throughout, ``lower`` throughout, ``mixed``, or ``none``.

    Examples
    --------
    >>> letter_case("CANON 5D"), letter_case("canon 5d"), letter_case("Canon 5D"), letter_case("1/60")
    ('upper', 'lower', 'mixed', 'none')
    """
    text = text[:_SCANNED_CHARS]
    if text.islower():
        return "lower"
    if not text.isupper():
        return "mixed" if any(map(str.isalpha, text)) else NONE
    return "upper" if sum(map(str.isalpha, text)) >= _UPPER_LEAST else "mixed"


def size_class(size: int, longest: int = _LONGEST_CLASS) -> str:
    """Return the power of two up to which a size goes, as text.

    Examples
    --------
    >>> size_class(5), size_class(8), size_class(9), size_class(100_000)
    ('8', '8', '16', '4096')
    """
    return _SIZES[min(longest, max(0, size - 1).bit_length())]


def text_traits(text: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the traits of a text, each with its category, in the order of ``TEXT_TRAITS``.

    Parameters
    ----------
    text : str
    words : sequence of str
        From :func:`words_of`.
    """
    return [
        ("script", script(text)),
        ("language", language(words)),
        ("letter_case", letter_case(text)),
        ("text_length", size_class(len(text))),
    ]


def labelled_traits(
    text: str, words: Sequence[str], metadata: Mapping[str, Any] | None, segments: Sequence[str]
) -> dict[str, str]:
    """Return what a labelled query is like: its text's traits, and its segments as ``segment:NAME``.

    Without metadata, as in rows of earlier releases, nothing is known of its segments.

    Examples
    --------
    >>> labelled_traits("CANON 5D", ["canon", "5d"], {"source": "web"}, ("source",))["segment:source"]
    'web'
    """
    found = dict(text_traits(text, words))
    if metadata is not None:
        found |= {SEGMENT + name: value for name, value in segments_of(metadata, segments).items()}
    return found


class QueryTraits:
    """The category of a query in each trait.

    Parameters
    ----------
    fields : sequence of str
        The workload's.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        named = [(field, FIELD + field) for field in fields[:MAX_FIELDS]]
        self._fields = [(field, (trait, "missing"), (trait, "given")) for field, trait in named]
        self._margins = {field: tuple((MARGIN + field, category) for category in MARGIN_CLASSES) for field, _ in named}
        self._no_answer = [(trait, "no_answer") for _, trait in named]

    def of(self, routed: RoutedEvent, words: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return the traits of one query, each with its category, always in the same order.

        Parameters
        ----------
        routed : RoutedEvent
        words : sequence of str
            From :func:`words_of`.
        """
        traits = text_traits(routed.text, words)
        small = routed.small
        if small is not None:
            traits.append(("latency", size_class(round(small.latency_s * _MS), _LONGEST_LATENCY_CLASS)))
            if small.valid:
                answered = small.entities or {}
                traits += [missing if answered.get(field) is None else given for field, missing, given in self._fields]
                if small.field_margins:
                    traits += self._sure(small.field_margins)
            else:
                traits += self._no_answer
        return tuple(traits)

    def _sure(self, margins: Mapping[str, float]) -> list[tuple[str, str]]:
        """Return how sure the small model was of each field, by classes of its margin."""
        # In the order of the workload's fields, whatever order the answer had.
        known = ((keys, margins[field]) for field, keys in self._margins.items() if field in margins)
        return [keys[bisect_right(_MARGIN_BOUNDS, margin)] for keys, margin in known]


def segments_of(metadata: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, str]:
    """Return the value of each segment that a workload names: texts, numbers and truth values, cut to 64 characters.

    Examples
    --------
    >>> segments_of({"source": "web", "beta": True, "tags": ["a"]}, ("source", "beta", "tags", "tier"))
    {'source': 'web', 'beta': 'true', 'tags': 'other', 'tier': 'none'}
    """
    known = metadata or {}
    return {name: _value(known.get(name)) for name in names}


def _value(value: Any) -> str:
    if type(value) is str:
        return value[:MAX_CATEGORY_CHARS] or NONE
    if value is None:
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)[:MAX_CATEGORY_CHARS] if isinstance(value, int | float) else OTHER
