"""The recorded pool: what each pair answered under each shift, and which kinds of drift methods are tuned on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from research.answers.shifts import CLEAN
from research.recorded.stream import Integers, Outcomes

POOL = Path(__file__).parent / "pool.npz"
COLUMNS = (
    "base",
    "u",
    "small_hits",
    "small_named",
    "large_hits",
    "large_named",
    "gold",
    "exact",
    "agree",
    "small_tokens",
    "large_tokens",
)
KINDS = {
    "tuning": ("typos", "new_names", "small_quantised", "small_better", "large_worse", "clipped"),
    "unseen": ("longer", "upper", "mix", "prompt", "small_worse", "cut_short"),
}
"""Drawn once, as a test repeats, and fixed: a kind that is added later changes no half."""


@dataclass(frozen=True)
class Answers:
    """What one pair answered.

    ``by_shift``: kind and grade → its queries; ``recording`` is their place in the pool. ``base``: by place in the
    pool: the clean query that the text was made from, -1 for none.
    """

    by_shift: dict[str, Outcomes]
    base: Integers

    @property
    def clean(self) -> Outcomes:
        """All clean queries."""
        return self.by_shift[f"{CLEAN}/base"]

    def without(self, shift: str, bases: Integers) -> Outcomes:
        """Return a shift's queries but those that were made from some clean ones."""
        found = self.by_shift[shift]
        return found.take(np.flatnonzero(~np.isin(self.base[found.recording], bases)))


@cache
def load_pool(path: Path = POOL) -> dict[str, Answers]:
    """Read what ``python -m research.answers record`` wrote, by pair."""
    with np.load(path) as packed:
        columns = {name: packed[name] for name in packed.files}
    base = columns["base"].astype(np.int64)
    outcomes = Outcomes(
        uncertainty=columns["u"].astype(np.float64),
        **{name: columns[name].astype(np.int64) for name in ("small_hits", "small_named", "large_hits", "large_named")},
        gold=columns["gold"].astype(np.int64),
        exact=columns["exact"],
        agree=columns["agree"],
        recording=np.arange(len(base)),
    )

    def some(which: NDArray[np.bool_]) -> Outcomes:
        return outcomes.take(np.flatnonzero(which))

    return {
        str(pair): Answers(
            {
                str(shift): some((columns["pair"] == pair) & (columns["shift"] == shift))
                for shift in np.unique(columns["shift"][columns["pair"] == pair])
            },
            base,
        )
        for pair in np.unique(columns["pair"])
    }
