"""Texts of several kinds, with what the demo's small model answers to them, live.

Recorded texts are clean, with typos, or with names that the models never saw. The others are made of clean ones: in
capitals, in a German frame, with a paragraph around them; or of another domain altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.handoff.models import Answer, LiveModel
from stream_router.model_client.answer import EntityAnswer, InvalidAnswerError, read_entities
from stream_router.model_client.field_margins import field_margins
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import OFFLINE_EXAMPLES, load_traffic

FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
Kind = Literal["clean", "typos", "new_names", "capitals", "german", "cyrillic", "recipes", "long"]

_FRAMES = (
    "suche fotos mit {}",
    "zeige alle aufnahmen mit der {}",
    "{} bei nacht und im regen",
    "wo ist ein foto von {}",
    "nicht alle bilder für {} aus der sammlung",
)
_RUSSIAN = ("фото снятые на {}", "найти снимки {} ночью", "все кадры с {} без вспышки")
_PARAGRAPH = (
    "looking for {} from the trip that we made last summer with the whole family and friends, preferably the shots "
    "taken in the evening by the water with a tripod"
)
_DISHES = ("soup", "stew", "curry", "risotto", "pancakes", "lasagne", "goulash", "ramen", "paella", "dumplings")
_INGREDIENTS = (
    "lentils",
    "tomatoes",
    "chickpeas",
    "mushrooms",
    "spinach",
    "salmon",
    "tofu",
    "pumpkin",
    "leek",
    "basil",
)
_RECIPES = (
    "how to cook {} with {}",
    "quick vegan {} and {}",
    "{} recipe without {}",
    "gluten free {} {} oven",
    "best {} {}",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One text and what the small model said.

    Parameters
    ----------
    text : str
    entities : dict or None
        None where the answer is not valid.
    uncertainty : float or None
        u = 1 - mean(p1 - p2) over its tokens.
    margins : dict
        The mean of p1 - p2 over the tokens of each field's value.
    """

    text: str
    entities: EntityAnswer | None
    uncertainty: float | None
    margins: dict[str, float] = field(default_factory=dict)


def _recipes(texts: Sequence[str]) -> list[str]:
    rng = np.random.default_rng(5)
    return [_RECIPES[rng.integers(len(_RECIPES))].format(rng.choice(_DISHES), rng.choice(_INGREDIENTS)) for _ in texts]


def _framed(texts: Sequence[str], frames: Sequence[str]) -> list[str]:
    return [frames[number % len(frames)].format(text) for number, text in enumerate(texts)]


_MADE: dict[Kind, Callable[[Sequence[str]], list[str]]] = {
    "capitals": lambda texts: [text.upper() for text in texts],
    "german": lambda texts: _framed(texts, _FRAMES),
    "cyrillic": lambda texts: _framed(texts, _RUSSIAN),
    "recipes": _recipes,
    "long": lambda texts: [_PARAGRAPH.format(text) for text in texts],
}


@cache
def asked(kind: Kind, count: int) -> tuple[Asked, ...]:
    """Return texts of a kind with their answers, each computed once."""
    recorded = {"clean": "none", "typos": "typos", "new_names": "new_names"}.get(kind)
    clean = [query.text for query in load_traffic()[OFFLINE_EXAMPLES:] if query.shift == "none"]
    if recorded is None:
        texts = _MADE[kind](clean[:count])
    elif recorded == "none":
        texts = clean[-count:]
    else:
        texts = [query.text for query in load_traffic() if query.shift == recorded][:count]
    with threadpool_limits(1):
        answers = _model().answers([PROMPT.replace("{text}", text) for text in texts])
    return tuple(_asked(text, answer) for text, answer in zip(texts, answers, strict=True))


@cache
def _model() -> LiveModel:
    return LiveModel("small")


def _asked(text: str, answer: Answer) -> Asked:
    try:
        entities = read_entities(answer.text, FIELDS) if answer.is_whole else None
    except InvalidAnswerError:
        entities = None
    if entities is None:
        return Asked(text, None, None)
    margins = [mark.margin for mark in answer.marks]
    uncertainty = min(1.0, max(0.0, 1.0 - sum(margins) / len(margins)))
    return Asked(text, entities, uncertainty, field_margins(answer.text, answer.marks, FIELDS))
