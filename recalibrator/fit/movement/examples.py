"""Queries as examples of what was before and what is after, by id: texts stay where they are, in the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recalibrator.fit.movement.vocabulary import Vocabulary
from schemas.movement import MovedTrait
from schemas.traffic import SEGMENT, SampledQuery

KEPT_SAMPLES = 96
SHOWN = 3


class _Sample(NamedTuple):
    at_us: int
    query_id: str
    traits: dict[str, str]


class Samples:
    """The latest samples of a workload; once something moved, those from before it and from after it apart."""

    def __init__(self) -> None:
        self._before: list[_Sample] = []
        self._after: list[_Sample] | None = None

    def take(self, samples: Sequence[SampledQuery], at_us: int, vocabulary: Vocabulary) -> None:
        """Keep samples of a summary whose last query was routed at a time."""
        found = [
            _Sample(at_us, one.query_id, {**one.traits, "words": vocabulary.strangeness(one.word)}) for one in samples
        ]
        if self._after is None:
            self._before = [*self._before, *found][-KEPT_SAMPLES:]
        else:
            self._after = [*self._after, *found][-KEPT_SAMPLES:]

    def split(self, since_us: int) -> None:
        """Keep samples of before and of after apart from now on."""
        self._after = [one for one in self._before if one.at_us >= since_us]
        self._before = [one for one in self._before if one.at_us < since_us]

    def join(self) -> None:
        """Take what was after as what is before the next movement."""
        self._before, self._after = self._after or [], None

    def examples(self, trait: MovedTrait) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return ids of queries before that lack what moved, and of queries after that have it.

        Where something became rarer, those before have it and those after lack it.
        """
        said = trait.categories[0]
        risen = said.after > said.before
        key = f"{SEGMENT}{trait.segment}"

        def fits(sample: _Sample, *, having: bool) -> bool:
            inside = trait.segment is None or sample.traits.get(key) == trait.value
            return inside and (sample.traits.get(trait.trait) == said.category) is having

        before = [one.query_id for one in self._before if fits(one, having=not risen)]
        after = [one.query_id for one in self._after or () if fits(one, having=risen)]
        return tuple(before[-SHOWN:]), tuple(after[-SHOWN:])

    def state(self) -> list[Any]:
        """Return everything as JSON values."""
        return [list(map(list, self._before)), None if self._after is None else list(map(list, self._after))]

    def load(self, state: list[Any]) -> None:
        """Take a former :meth:`state` back."""
        before, after = state
        self._before = [_Sample(*one) for one in before]
        self._after = None if after is None else [_Sample(*one) for one in after]
