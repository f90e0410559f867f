"""Where a drift's harm lies: two sets of conditions flow in, points of micro-F1 at the old threshold flow out.

Real drift and synthetic drift of the same size differ in this: what agreement tells needs no label.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.oracle import TARGET
from benchmarks.drift.world import Conditions, chances, difficulty, draw

Floats = NDArray[np.float64]

_BINS = 60


class Harm(NamedTuple):
    """Points of micro-F1 by what changed, one after the other in this order.

    Parameters
    ----------
    shape : float
        u's distribution.
    agreement : float
        P(both models agree | u).
    alike, apart : float
        What is served is worth less, given u and that both agree; and that they do not.
    """

    shape: float
    agreement: float
    alike: float
    apart: float

    @property
    def by_agreement(self) -> float:
        """The share of all harm that agreement tells."""
        return self.agreement / sum(self)


class _World(NamedTuple):
    u: Floats
    agree: NDArray[np.bool_]
    gold: Floats
    small: Floats
    large: Floats


def _drawn(queries: int, seed: int, changed: dict[str, float]) -> _World:
    conditions = Conditions.of(queries, **{name: np.full(queries, value) for name, value in changed.items()})
    rng = np.random.default_rng(seed)
    place = difficulty(rng, conditions)
    answers = draw(rng, chances(place, conditions))
    seen = place * np.exp(conditions.stretch) + conditions.offset
    return _World(
        seen, answers.agree, *(np.asarray(one, float) for one in (answers.gold, answers.small, answers.large))
    )


def harm(changed: dict[str, float], queries: int = 400_000, seed: int = 0) -> Harm:
    """Draw the recorded world and a changed one, and take the difference apart.

    Parameters
    ----------
    changed : dict
        Conditions by name, as they are after the change.
    queries : int
        Drawn of each world; both are drawn by the same chance.
    seed : int

    Examples
    --------
    >>> harm({"alike": 0.9}, 40_000).alike < -0.01
    True
    """
    before, after = (_drawn(queries, seed, one) for one in ({}, changed))
    order = np.argsort(before.u)
    hits = np.cumsum(before.small[order]) + before.large.sum() - np.cumsum(before.large[order])
    threshold = before.u[order][np.flatnonzero(hits >= TARGET * before.gold.sum())[-1]]
    edges = np.unique(np.append(np.quantile(before.u, np.arange(1, _BINS) / _BINS), threshold))
    parts = [_binned(one, edges, threshold) for one in (before, after)]
    (share, agree, alike, apart), new = parts
    gold = 2.0 * after.gold.mean()

    def value(share: Floats, agree: Floats, alike: Floats, apart: Floats) -> float:
        return float((share * (agree * alike + (1.0 - agree) * apart)).sum() / gold)

    steps = [value(*new[:place], *(share, agree, alike, apart)[place:]) for place in range(5)]
    return Harm(*np.diff(steps).tolist())


def _binned(world: _World, edges: Floats, threshold: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return by bin of u: its share, P(agree), and E[z of what is served] where both agree and where they do not."""
    place = np.searchsorted(edges, world.u)
    z = 2.0 * (np.where(world.u > threshold, world.large, world.small) - TARGET * world.gold)

    def total(weight: Floats) -> Floats:
        return np.bincount(place, weight, len(edges) + 1)

    count, agreeing = total(np.ones(len(z))), total(world.agree.astype(float))
    alike, apart = total(z * world.agree), total(z * ~world.agree)
    ratio = [top / np.maximum(bottom, 1.0) for top, bottom in ((alike, agreeing), (apart, count - agreeing))]
    return count / len(z), agreeing / np.maximum(count, 1.0), ratio[0], ratio[1]
