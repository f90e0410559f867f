"""Where a drift's harm lies: changed conditions flow in, points of micro-F1 at the old threshold flow out.

Real and synthetic drift of one size differ in this: what agreement tells needs no label.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.drift.oracle import TARGET
from research.drift.world import Answers, Conditions, chances, difficulty, draw

Floats = NDArray[np.float64]

_BINS = 60


class Harm(NamedTuple):
    """Micro-F1 by what changed, one after the other in this order.

    ``shape``: u's distribution. ``agreement``: P(both models agree | u). ``alike``, ``apart``: what is served is worth
    less, given u and that both agree; and that they do not.
    """

    shape: float
    agreement: float
    alike: float
    apart: float

    @property
    def by_agreement(self) -> float:
        """The share of all harm that agreement tells."""
        return self.agreement / sum(self)


def harm(changed: dict[str, float], queries: int = 400_000, seed: int = 0) -> Harm:
    """Draw the recorded world and a changed one by the same chance, and take the difference apart.

    Examples
    --------
    >>> harm({"alike": 0.9}, 40_000).alike < -0.01
    True
    """
    (u, before), (moved_u, after) = (_drawn(queries, seed, one) for one in ({}, changed))
    order = np.argsort(u)
    hits = np.cumsum(before.small[order]) + before.large.sum() - np.cumsum(before.large[order])
    threshold = u[order][np.flatnonzero(hits >= TARGET * before.gold.sum())[-1]]
    edges = np.unique(np.append(np.quantile(u, np.arange(1, _BINS) / _BINS), threshold))
    old = _binned(np.searchsorted(edges, u), before, u > threshold, len(edges) + 1)
    new = _binned(np.searchsorted(edges, moved_u), after, moved_u > threshold, len(edges) + 1)
    values = []
    for place in range(len(old) + 1):
        share, agree, alike, apart = *new[:place], *old[place:]
        values.append((share * (agree * alike + (1.0 - agree) * apart)).sum() / after.gold.mean())
    return Harm(*np.diff(values).tolist())


def _drawn(queries: int, seed: int, changed: dict[str, float]) -> tuple[Floats, Answers]:
    conditions = Conditions.of(queries, **{name: np.full(queries, value) for name, value in changed.items()})
    rng = np.random.default_rng(seed)
    place = difficulty(rng, conditions)
    return place * np.exp(conditions.stretch) + conditions.offset, draw(rng, chances(place, conditions))


def _binned(place: NDArray[np.intp], answers: Answers, escalated: NDArray[np.bool_], bins: int) -> list[Floats]:
    """Return by bin of u its share, P(agree), and what is served less the target where both agree and do not."""
    z, agree = np.where(escalated, answers.large, answers.small) - TARGET * answers.gold, answers.agree
    count, agreeing, alike, apart = (
        np.bincount(place, weight, bins) for weight in (np.ones(len(z)), 1.0 * agree, z * agree, z * ~agree)
    )
    return [
        count / len(z),
        agreeing / np.maximum(count, 1.0),
        alike / np.maximum(agreeing, 1.0),
        apart / np.maximum(count - agreeing, 1.0),
    ]
