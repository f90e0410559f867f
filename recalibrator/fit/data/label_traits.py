"""What labelled queries are like: a row a label, a column a trait, categories as small numbers. Beside the label table.

A trait belongs to the query, not to what a labeler says of it: corrections leave it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Ints, pack, unpack

UNKNOWN = 0
"""The number of no category: the label does not say."""

MOST_CATEGORIES = 64
OTHER = "other"
"""Of a trait's categories, those beyond :data:`MOST_CATEGORIES`."""


class TraitColumn(NamedTuple):
    """One trait of all labels.

    Parameters
    ----------
    codes : ndarray of int, shape (labels,)
        ``UNKNOWN``, or one more than the index of the category.
    """

    codes: Ints
    categories: tuple[str, ...]


class LabelTraits:
    """The categories of labelled queries in some traits.

    Parameters
    ----------
    names : sequence of str
        Traits, such as ``language`` or ``segment:source``; without any nothing is kept.
    room : int
        Labels at most.
    """

    def __init__(self, names: Sequence[str], room: int) -> None:
        self.names = tuple(names)
        self._codes = np.zeros((room, len(self.names)), dtype=np.uint8)
        # A byte of a view is written in a third of the time that an element of an array takes.
        self._bytes = self._codes.data.cast("B") if self.names else memoryview(b"")
        self._numbers: list[dict[str, int]] = [{} for _ in self.names]

    def put(self, slot: int, traits: Mapping[str, str]) -> None:
        """Note one label's categories; a trait that is not among them stays as it was."""
        codes, at = self._bytes, slot * len(self.names)
        for place, (name, numbers) in enumerate(zip(self.names, self._numbers, strict=True)):
            category = traits.get(name)
            if category is not None:
                codes[at + place] = numbers.get(category) or self._number(numbers, category)

    def _number(self, numbers: dict[str, int], category: str) -> int:
        name = category if len(numbers) < MOST_CATEGORIES - 1 else OTHER
        return numbers.setdefault(name, len(numbers) + 1)

    def keep(self, kept: Ints) -> None:
        """Keep these rows alone, in this order."""
        self._codes[: len(kept)] = self._codes[kept]
        self._codes[len(kept) :] = UNKNOWN

    def column(self, name: str, labels: int) -> TraitColumn | None:
        """Return one trait of the first labels; None where it is not kept."""
        if name not in self.names:
            return None
        place = self.names.index(name)
        return TraitColumn(self._codes[:labels, place].astype(np.intp), tuple(self._numbers[place]))

    def state(self, labels: int) -> dict[str, Any]:
        """Return the rows of the first labels as JSON values, exact."""
        columns = {
            name: {"categories": list(numbers), "codes": pack(self._codes[:labels, place])}
            for place, (name, numbers) in enumerate(zip(self.names, self._numbers, strict=True))
        }
        return {"labels": labels, "columns": columns}

    def load(self, state: dict[str, Any] | None) -> None:
        """Take a former :meth:`state` back: of a trait that was not kept then, nothing is known."""
        if state is None:
            return
        labels: int = state["labels"]
        like: NDArray[np.uint8] = np.zeros(labels, dtype=np.uint8)
        for place, name in enumerate(self.names):
            kept = state["columns"].get(name)
            if kept is not None:
                self._numbers[place] = {one: number for number, one in enumerate(kept["categories"], start=1)}
                self._codes[:labels, place] = unpack(kept["codes"], like)
