"""What moved between two samples of results, with the cause first."""

from __future__ import annotations

import random
from typing import Any

import pytest

from recalibrator.movement import Movement, movements
from schemas.draws import uniform
from schemas.entities import Entities
from schemas.routed import RoutedEvent
from tests.support.recalibrator_events import routed

_WORDS = ("red", "night", "street", "tripod", "fast", "old", "portrait", "rain", "bridge", "snow", "forest", "tram")


def result(number: int, *, lens: str | None = "50mm", text: str | None = None, **changes: Any) -> RoutedEvent:
    """Return a result whose small model said which lens it is, of a text of a few words."""
    draw = random.Random(number)
    one = routed(number, text=text or " ".join(draw.choices(_WORDS, k=draw.randint(4, 12))), **changes)
    assert one.small is not None
    answer: Entities = {"camera": "5D", "lens": lens if draw.random() < 0.9 else None}
    return one.model_copy(update={"small": one.small.model_copy(update={"entities": answer})})


def sample(first: int, size: int = 500, **changes: Any) -> list[RoutedEvent]:
    return [result(number, **changes) for number in range(first, first + size)]


def moved(before: list[RoutedEvent], after: list[RoutedEvent]) -> list[Movement]:
    return movements(before, after, lambda text: "de" if text.startswith("das") else "en")


def test_nothing_is_named_where_nothing_moved() -> None:
    assert [moved(sample(2_000 * place), sample(2_000 * place + 1_000)) for place in range(10)] == [[]] * 10


def test_another_language_is_named_before_what_it_moves() -> None:
    german = [result(number, lens=None, text="das schnelle Objektiv am Abend") for number in range(900, 1_200)]
    found = moved(sample(0), sample(600, 300) + german)
    assert found[0].what == "language"
    assert found[0].follows is None
    assert (found[0].before["de"], found[0].after["de"]) == (0.0, 0.5)
    field = next(one for one in found if one.what == "field lens")
    assert field.follows in {"language", "words", "length of texts"}
    assert {int(one.removeprefix("q-")) for one in found[0].examples} <= set(range(900, 1_200))


def test_a_source_is_named_before_its_texts() -> None:
    web, app = {"source": "web", "user": "u"}, {"source": "app", "user": "u"}
    before = sample(0, 400, metadata=web) + sample(400, 100, metadata=app, text="das ist neu")
    after = sample(600, 200, metadata=web) + sample(800, 300, metadata=app, text="das ist neu")
    found = moved(before, after)
    assert (found[0].what, found[0].follows) == ("metadata source", None)
    assert next(one for one in found if one.what == "language").follows == "metadata source"
    assert "metadata user" not in {one.what for one in found}


@pytest.mark.parametrize("what", ["small model", "small model's calls", "u"])
def test_what_the_small_model_does_is_named(what: str) -> None:
    def change(one: RoutedEvent) -> RoutedEvent:
        assert one.small is not None
        if what == "u":
            lower = {"uncertainty": (one.decision.uncertainty or 0.0) / 4.0}
            return one.model_copy(update={"decision": one.decision.model_copy(update=lower)})
        failed: dict[str, Any] = {"valid": False, "entities": None, "error": "timed out"}
        changes = {"model": "other"} if what == "small model" else failed
        return one.model_copy(update={"small": one.small.model_copy(update=changes)})

    assert moved(sample(0), [change(one) for one in sample(600)])[0].what == what


def test_bursts_of_one_kind_are_no_movement() -> None:
    """Ten queries in turn have one source: 500 of them say as much as 50."""

    def bursts(first: int) -> list[RoutedEvent]:
        return [
            result(number, metadata={"source": "web" if uniform(str(number // 10), "source") < 0.5 else "app"})
            for number in range(first, first + 500)
        ]

    found = [one for place in range(10) for one in moved(bursts(2_000 * place), bursts(2_000 * place + 1_000))]
    assert found == []
