"""Pairs of samples of results whose difference is known: texts of others, answers that are made of them.

What the models say depends on the text, as it does in life: fields are what patterns find in it, u grows with its
length and with what the models do not know. So a change of texts moves fields, u, agreement and escalation as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from schemas.costs import QueryCost
from schemas.entities import Entities
from schemas.routed import Decision, LabelRequest, ModelRun, RoutedEvent

START = datetime(2026, 1, 1, tzinfo=UTC)
SHARES = (0.15, 0.4, 0.8)
_FIELDS = {
    "number": r"\d+",
    "quoted": r"['\"`]\w[^'\"`]*['\"`]",
    "name": r"\b[A-Z]\w+",
    "option": r"(?<!\w)-{1,2}\w+|%\w",
    "bracket": r"\([^)]*\)",
}
_NAMES = ("Zorblatt 9000", "Quixplane", "Vandermeer-Kolb")
_SOURCES = ("web", "app", "partner")


@dataclass(frozen=True)
class Query:
    """What is drawn of a query before anything moves."""

    text: str
    source: str
    small: str = "small-4b"
    large: str = "large-12b"
    basis: str = "0123456789abcdef"
    failed: bool = False
    lost: tuple[str, ...] = ()
    surer: float = 1.0
    differs: float = 0.08
    slower: float = 1.0


@dataclass(frozen=True)
class Case:
    """Two samples, and what has to be named first: any of these; nothing where nothing moved."""

    name: str
    share: float
    right: tuple[str, ...]
    before: list[RoutedEvent]
    after: list[RoutedEvent]


Change = Callable[[Query, np.random.Generator], dict[str, Any]]


def cases(
    english: dict[str, list[str]], others: dict[str, list[str]], seed: int, queries: int, rounds: int
) -> Iterator[Case]:
    """Yield every change in every share, with texts of each kind in turn."""
    rng = np.random.default_rng(seed)
    kinds = sorted(english)
    for number in range(rounds):
        for place, (name, right, change) in enumerate(_changes(english, others, kinds, number)):
            kind = kinds[(number + place) % len(kinds)]
            for share in SHARES:
                before = _drawn(rng, english[kind], queries)
                after = [
                    _changed(one, change(one, rng)) if rng.random() < share else one
                    for one in _drawn(rng, english[kind], queries)
                ]
                yield Case(name, share, right, _results(rng, before, 0), _results(rng, after, 1))


def quiet(english: dict[str, list[str]], seed: int, queries: int, pairs: int) -> Iterator[Case]:
    """Yield pairs of samples of the same texts: as drawn, in bursts of eight, of two kinds of text, and small ones."""
    rng = np.random.default_rng(seed)
    kinds = sorted(english)
    mixed = [text for kind in kinds for text in english[kind][:5_000]]
    for number in range(pairs):
        texts = english[kinds[number // 4 % len(kinds)]]
        name = ("as drawn", "in bursts", "of all kinds", "150 queries")[number % 4]
        size = 150 if name == "150 queries" else queries
        burst = 8 if name == "in bursts" else 1
        sides = [_drawn(rng, mixed if name == "of all kinds" else texts, size, burst) for _ in range(2)]
        yield Case(name, 0.0, (), _results(rng, sides[0], 0), _results(rng, sides[1], 1))


def _changes(
    english: dict[str, list[str]], others: dict[str, list[str]], kinds: list[str], number: int
) -> Iterator[tuple[str, tuple[str, ...], Change]]:
    """Yield each change: its name, what is right, and what it does to a query."""
    languages = sorted(others)
    for place in range(min(3, len(languages))):
        language = languages[(3 * number + place) % len(languages)]
        yield f"texts in {language}", ("language",), _other_text(others[language])
    source = english[kinds[(number + 1) % len(kinds)]]
    yield "texts on something else", ("words",), _like(source)
    yield "typing errors", ("words",), lambda one, rng: {"text": _mistyped(one.text, rng)}
    yield "a new name", ("words",), lambda one, rng: {"text": f"{one.text} {rng.choice(_NAMES)}"}
    yield "capitals", ("capitals",), lambda one, _: {"text": one.text.upper()}
    yield "long texts", ("length of texts",), lambda one, rng: {"text": f"{one.text} {rng.choice(source)}"}
    yield "short texts", ("length of texts",), lambda one, _: {"text": one.text[: len(one.text) // 3]}
    yield "a new source", ("metadata source",), lambda _one, _rng: {"source": "batch"}
    if languages:
        foreign = others[languages[number % len(languages)]]
        yield (
            "a new source in another language",
            ("metadata source", "language"),
            lambda _one, rng: {"source": "batch", "text": str(rng.choice(foreign))},
        )
    yield "a field goes missing", ("field name",), lambda _one, _rng: {"lost": ("name",)}
    yield "the small model fails", ("small model's calls",), lambda _one, _rng: {"failed": True}
    yield "another small model", ("small model",), lambda _one, _rng: {"small": "small-4b-v2", "surer": 1.5}
    yield "another large model", ("large model",), lambda _one, _rng: {"large": "large-12b-v2", "differs": 0.3}
    yield "another prompt", ("prompt, fields and models",), lambda _one, _rng: {"basis": "f" * 16, "lost": ("option",)}
    yield "a surer small model", ("u",), lambda _one, _rng: {"surer": 4.0}
    yield "models disagree", ("agreement",), lambda _one, _rng: {"differs": 0.8}
    yield "a slower small model", ("small model's latency",), lambda _one, _rng: {"slower": 4.0}


def _changed(query: Query, changes: dict[str, Any]) -> Query:
    return Query(**(query.__dict__ | changes))


def _other_text(texts: list[str]) -> Change:
    return lambda _one, rng: {"text": str(rng.choice(texts))}


def _like(texts: list[str]) -> Change:
    """Return what takes a text about as long from elsewhere."""
    ordered = sorted(texts, key=len)
    lengths = np.array([len(text) for text in ordered])

    def change(query: Query, rng: np.random.Generator) -> dict[str, Any]:
        place = int(np.searchsorted(lengths, len(query.text)) + rng.integers(-25, 25))
        return {"text": ordered[min(max(place, 0), len(ordered) - 1)]}

    return change


def _mistyped(text: str, rng: np.random.Generator) -> str:
    letters = list(text)
    for place in np.flatnonzero(rng.random(len(letters) - 1) < 0.08).tolist():
        letters[place], letters[place + 1] = letters[place + 1], letters[place]
    return "".join(letters)


def _drawn(rng: np.random.Generator, texts: list[str], queries: int, burst: int = 1) -> list[Query]:
    """Draw queries; those of a burst come from one source, and from neighbours in length."""
    ordered = sorted(texts, key=len) if burst > 1 else texts
    found = []
    for _ in range(-(-queries // burst)):
        first, source = int(rng.integers(len(ordered))), str(rng.choice(_SOURCES, p=(0.6, 0.3, 0.1)))
        found += [Query(ordered[(first + place) % len(ordered)], source) for place in range(burst)]
    return found[:queries]


def _results(rng: np.random.Generator, queries: list[Query], side: int) -> list[RoutedEvent]:
    draws = rng.random((len(queries), 4))
    return [_result(f"{side}-{number}", one, draws[number], number) for number, one in enumerate(queries)]


def _result(query_id: str, query: Query, draws: np.ndarray[Any, np.dtype[np.float64]], number: int) -> RoutedEvent:
    entities: Entities = {
        field: None if field in query.lost or (hit := re.search(pattern, query.text)) is None else hit.group()
        for field, pattern in _FIELDS.items()
    }
    strange = sum(not one.isascii() or one.isupper() for one in query.text) / len(query.text)
    level = min(0.95, len(query.text) / 800 + strange / 2)
    u = float(np.clip(0.6 * level + 0.5 * draws[0] ** 2, 0.0, 1.0) ** query.surer)
    escalated = u > 0.4 or query.failed
    small = ModelRun(
        model=query.small,
        entities=None if query.failed else entities,
        valid=not query.failed,
        uncertainty=None if query.failed else u,
        latency_s=float((0.05 + 0.1 * draws[1] ** 4) * query.slower),
        error="timed out" if query.failed else None,
    )
    other = entities | {"number": "42"} if draws[2] < query.differs * (0.5 + u) else entities
    large = ModelRun(model=query.large, entities=other, valid=True, latency_s=0.2) if escalated else None
    return RoutedEvent(
        query_id=query_id,
        workload="texts",
        text=query.text,
        entities=other if escalated else entities,
        answered_by="large" if escalated else "small",
        decision=Decision(
            escalated=escalated,
            reason="small_failed" if query.failed else "threshold",
            uncertainty=small.uncertainty,
            large_probability=1.0 if escalated else 0.02,
        ),
        small=small,
        large=large,
        cost=QueryCost(sequential=1.0, paper=1.0),
        label=LabelRequest(requested=False, probability=0.01),
        routed_at=START + timedelta(seconds=number),
        routed_by="router-0",
        metadata={"source": query.source, "session": query_id},
        basis=query.basis,
    )
