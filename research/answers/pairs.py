"""The pairs of models that are recorded: a small and a large one each, with their task's texts and gold entities."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from research.answers.listings import FIELDS as LISTING_FIELDS
from research.answers.listings import PROMPT as LISTING_PROMPT
from research.answers.listings import listings
from research.answers.queries import Query
from research.handoff.experiment import FIELDS as PHOTO_FIELDS
from ucci_demo.model_server import PROMPT as PHOTO_PROMPT
from ucci_demo.model_server.checkpoint import MODELS
from ucci_demo.recorded.traffic import load_traffic


@dataclass(frozen=True)
class Pair:
    """Two checkpoints for one task.

    ``folders``: of the small and the large checkpoint. ``prompt``: as in training; ``{text}`` stands for the query.
    ``prompts``: other wordings by grade. ``target``: micro-F1, between what the two models reach on clean queries.
    ``hard_field``: queries that name it are one of the other mixes. ``queries``: gives the clean queries. ``renamed``:
    by grade, queries with names that the models never saw.
    """

    name: str
    fields: tuple[str, ...]
    folders: tuple[Path, Path]
    prompt: str
    prompts: dict[str, str]
    target: float
    hard_field: str
    queries: Callable[[], list[Query]]
    renamed: dict[str, Callable[[random.Random], list[Query]]]


def photo_queries() -> list[Query]:
    """Return the demo's clean photo searches."""
    clean = [query for query in load_traffic() if query.shift == "none"]
    return [Query(query.text, query.gold, place) for place, query in enumerate(clean)]


def _new_cameras(_: random.Random) -> list[Query]:
    return [Query(query.text, query.gold) for query in load_traffic() if query.shift == "new_names"]


def _renumbered_cameras(draw: random.Random) -> list[Query]:
    """Return queries whose camera has another number, as a new model of a known series would."""
    found = []
    for query in photo_queries():
        camera = query.gold["camera"] or ""
        # A number that the text holds twice could be the aperture's or the lens's.
        numbers = [number for number in re.findall(r"\d+", camera) if _occurrences(number, query.text) == 1]
        if numbers:
            other = str(draw.randint(10 ** (len(numbers[-1]) - 1), 10 ** len(numbers[-1]) - 1))
            gold = {**query.gold, "camera": _replaced(numbers[-1], other, camera)}
            found.append(Query(_replaced(numbers[-1], other, query.text), gold, query.base))
    return found


def _occurrences(number: str, text: str) -> int:
    return len(re.findall(rf"(?<!\d){number}(?!\d)", text))


def _replaced(number: str, other: str, text: str) -> str:
    return re.sub(rf"(?<!\d){number}(?!\d)", other, text)


TRAINED = Path(__file__).parent
PHOTO = Pair(
    name="photo",
    fields=PHOTO_FIELDS,
    folders=(MODELS / "photo_small", MODELS / "photo_large"),
    prompt=PHOTO_PROMPT,
    prompts={
        "polite": PHOTO_PROMPT.replace("Query: ", "Query: please: "),
        "quoted": PHOTO_PROMPT.replace("{text}", '"{text}"'),
        "last": PHOTO_PROMPT.replace("{text}\n", "{text}.\n"),
    },
    target=0.91,
    hard_field="lens",
    queries=photo_queries,
    renamed={"numbers": _renumbered_cameras, "names": _new_cameras},
)
LISTINGS = Pair(
    name="listings",
    fields=LISTING_FIELDS,
    folders=(TRAINED / "listings_small", TRAINED / "listings_large"),
    prompt=LISTING_PROMPT,
    prompts={
        "polite": LISTING_PROMPT.replace("Job: ", "Job: please: "),
        "last": LISTING_PROMPT.replace("{text}", "{text}."),
        "quoted": LISTING_PROMPT.replace("{text}", '"{text}"'),
    },
    target=0.952,
    hard_field="company",
    queries=lambda: listings(8_000, 1),
    renamed={
        "numbers": lambda _: listings(2_000, 2, cities=True),
        "names": lambda _: listings(2_000, 3, companies=True),
    },
)
PAIRS = {pair.name: pair for pair in (PHOTO, LISTINGS)}


def trained() -> tuple[str, ...]:
    """Return the pairs whose checkpoints are here; :mod:`research.answers.train` makes those of the listings."""
    return tuple(name for name, pair in PAIRS.items() if all(folder.is_dir() for folder in pair.folders))
