"""Real kinds of drift, each in graded sizes: of the texts, the prompt, the weights, the answers, the probabilities.

Pure: a query, weights or an answer in, the shifted one out. :mod:`research.answers.record` asks the models.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.answers.pairs import Pair
from research.answers.queries import Query, with_typos

Weights = dict[str, NDArray[np.float32]]
Floats = NDArray[np.float64]
Change = Callable[[Weights], Weights]
CLEAN = "clean"


@dataclass(frozen=True)
class Shift:
    """One kind of drift at one size; what is None stays as it is.

    ``queries``: pair and draw → the queries to draw from. ``prompt``: name of another wording of the pair's prompt.
    ``small``, ``large``: change of the model's weights. ``promoted``: whether the (changed) large checkpoint answers in
    the small one's place. ``cut``: tokens after which the small answer ends; what is whole before is read, as tolerant
    servers do. ``seen``: token margins → those that the server reports.
    """

    kind: str
    grade: str
    queries: Callable[[Pair, random.Random], list[Query]] | None = None
    prompt: str | None = None
    small: Change | None = None
    large: Change | None = None
    promoted: bool = False
    cut: int | None = None
    seen: Callable[[Floats], Floats] | None = None

    @property
    def name(self) -> str:
        """Kind and grade."""
        return f"{self.kind}/{self.grade}"


def _typos(rate: float) -> Callable[[Pair, random.Random], list[Query]]:
    return lambda pair, draw: [one._replace(text=with_typos(one.text, rate, draw)) for one in pair.queries()]


def _longer(fillers: int) -> Callable[[Pair, random.Random], list[Query]]:
    def queries(pair: Pair, draw: random.Random) -> list[Query]:
        clean = pair.queries()
        plain = [one.text for one in clean if not one.named]
        return [one._replace(text=" ".join(_around(one.text, draw.choices(plain, k=fillers), draw))) for one in clean]

    return queries


def _around(text: str, fillers: list[str], draw: random.Random) -> list[str]:
    before = draw.randint(0, len(fillers))
    return [*fillers[:before], text, *fillers[before:]]


def _mix(named: Callable[[Pair, Query], bool]) -> Callable[[Pair, random.Random], list[Query]]:
    return lambda pair, _: [one for one in pair.queries() if named(pair, one)]


def _renamed(grade: str) -> Callable[[Pair, random.Random], list[Query]]:
    return lambda pair, draw: pair.renamed[grade](draw)


def rounded(levels: int) -> Change:
    """Round each row of each matrix to so many levels on either side of 0, as a quantised checkpoint has them."""

    def change(weights: Weights) -> Weights:
        return {name: _rounded(one, levels) if one.ndim > 1 else one for name, one in weights.items()}

    return change


def _rounded(matrix: NDArray[np.float32], levels: int) -> NDArray[np.float32]:
    scale = np.abs(matrix).max(axis=1, keepdims=True) / levels + 1e-12
    return (np.rint(matrix / scale) * scale).astype(np.float32)


def noisy(share: float, seed: int = 3) -> Change:
    """Add to each matrix noise of a share of its own standard deviation: a checkpoint that was trained less well."""

    def change(weights: Weights) -> Weights:
        rng = np.random.default_rng(seed)
        return {
            name: (one + share * one.std() * rng.standard_normal(one.shape)).astype(np.float32) if one.ndim > 1 else one
            for name, one in weights.items()
        }

    return change


def cut_short(text: str, fields: Sequence[str]) -> str:
    """Return the fields of a broken answer that are whole; the others are null."""
    pairs = dict(re.findall(r'"(\w+)": ("(?:[^"\\]|\\.)*"|null)', text))
    return json.dumps({field: json.loads(pairs.get(field, "null")) for field in fields})


SHIFTS = (
    Shift(CLEAN, "base"),
    *(Shift("typos", str(rate), queries=_typos(rate)) for rate in (0.02, 0.05, 0.12)),
    *(Shift("new_names", grade, queries=_renamed(grade)) for grade in ("numbers", "names")),
    *(Shift("longer", str(fillers), queries=_longer(fillers)) for fillers in (1, 3)),
    Shift("upper", "all", queries=lambda pair, _: [one._replace(text=one.text.upper()) for one in pair.queries()]),
    Shift("mix", "rich", queries=_mix(lambda _, one: one.named >= 3)),
    Shift("mix", "poor", queries=_mix(lambda _, one: one.named <= 1)),
    Shift("mix", "hard", queries=_mix(lambda pair, one: one.gold[pair.hard_field] is not None)),
    *(Shift("prompt", grade, prompt=grade) for grade in ("polite", "last", "quoted")),
    *(Shift("small_quantised", str(levels), small=rounded(levels)) for levels in (15, 7, 5)),
    *(Shift("small_worse", str(share), small=noisy(share)) for share in (0.05, 0.1, 0.15)),
    *(Shift("small_better", str(share), large=noisy(share), promoted=True) for share in (0.25, 0.35, 0.4)),
    *(Shift("large_worse", str(share), large=noisy(share)) for share in (0.3, 0.35, 0.4)),
    *(Shift("cut_short", str(tokens), cut=tokens) for tokens in (48, 42, 36)),
    *(Shift("clipped", str(most), seen=lambda margins, most=most: np.minimum(margins, most)) for most in (0.99, 0.9)),
    Shift("clipped", "one", seen=np.ones_like),
)
