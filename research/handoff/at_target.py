"""The target held under one handoff: a pool and a mix of texts flow in, the cheapest threshold flows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.handoff.experiment import LARGE_TOKEN, Floats
from research.handoff.pool import HANDOFFS, MARGINS, OFF, Pool
from schemas.basis import Granularity

TARGET = 0.91
FIXED = 0.9
"""The margin that settings name by default."""

NAMES = list(HANDOFFS)


def ladder(granularity: Granularity) -> list[str]:
    """Return the handoffs of a granularity, from none to the boldest."""
    return [OFF, *(f"{granularity}@{margin:g}" for margin in MARGINS)]


@dataclass(frozen=True, slots=True)
class Held:
    """The target held under one handoff.

    ``cost``: of a query, in tokens of the small model. ``escalated``: share of the queries. ``above``: ndarray of bool,
    shape (queries,); which ones. ``met``: false where the large model would have to answer queries that it was not
    asked.
    """

    cost: float
    escalated: float
    above: np.ndarray[Any, np.dtype[np.bool_]]
    met: bool


def hold(pool: Pool, name: str, weights: Floats) -> Held:
    """Find the cheapest threshold that meets the target, as often as each query is drawn.

    ``name``: of a handoff. ``weights``: ndarray, shape (queries,); not negative.
    """
    large = pool.large[NAMES.index(name)]
    order = np.argsort(-pool.u, kind="stable")
    order = order[~np.isnan(large[order, 0])]
    gain = weights[order, None] * (large[order, :2] - pool.small[order, :2])
    sums = weights @ pool.small[:, :2] + np.concatenate((np.zeros((1, 2)), np.cumsum(gain, axis=0)))
    met = np.flatnonzero(sums[:, 0] >= TARGET * sums[:, 1])
    count = int(met[0]) if len(met) else len(order)
    above = np.zeros(len(pool.u), dtype=bool)
    above[order[:count]] = True
    tokens = weights @ pool.small[:, 2] + LARGE_TOKEN * (weights[above] @ large[above, 2])
    total = weights.sum()
    return Held(float(tokens / total), float(weights[above].sum() / total), above, bool(len(met)))


def weights_of(pool: Pool, mix: Sequence[float], drawn: Floats | None = None) -> Floats:
    """Return how much each query of the pool counts in a mix of texts, in the sample that is drawn."""
    counts = np.ones(len(pool.u)) if drawn is None else drawn
    shares = np.array([share / max(1.0, counts[pool.text == text].sum()) for text, share in enumerate(mix)])
    return np.asarray(counts * shares[pool.text])


def loss(pool: Pool, name: str, weights: Floats) -> float:
    """Return micro-F1 of the large model alone less that with a handoff."""
    asked = weights > 0.0
    hits = [weights[asked] @ pool.large[NAMES.index(one), asked, :2] for one in (OFF, name)]
    return float(hits[0][0] / hits[0][1] - hits[1][0] / hits[1][1])
