"""Paired differences: what a variant of ours does otherwise than ours, stream by stream, and how sure that is.

Two policies on one stream share all chance of it, so that the difference varies far less than either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from research.drift.policies import OURS
from research.drift.summary import Row, names, of

PRICE = 1.1
"""Of regret against compliance: .011 of blocks on target are worth 1 % of cost."""


class Difference(NamedTuple):
    """A mean over (family, seed) pairs and half its 95 % interval (Student's t; None with one pair)."""

    mean: float
    half: float | None

    @property
    def verdict(self) -> str:
        """In words what the interval says."""
        if self.half is None:
            return "one pair"
        if abs(self.mean) <= self.half:
            return "inside the noise"
        return "better" if self.mean > 0.0 else "worse"


class Paired(NamedTuple):
    """One policy less ours, over the streams that both have walked."""

    policy: str
    families: tuple[str, ...]
    pairs: int
    pol: Difference
    regret: Difference
    score: Difference

    def as_row(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        found: dict[str, Any] = {"policy": self.policy, "families": list(self.families), "pairs": self.pairs}
        for name in ("pol", "regret", "score"):
            difference = getattr(self, name)
            found |= {name: difference.mean, f"{name}_half": difference.half}
        return found


def score_of(row: Row) -> float:
    """Return one number for both: compliance less 1.1 of regret.

    Examples
    --------
    >>> round(score_of({"pol": 0.95, "regret": 0.05}), 3)
    0.895
    """
    return float(row["pol"] - PRICE * row["regret"])


def paired(rows: list[Row]) -> list[Paired]:
    """Return every variant of ours against ours, in order of appearance."""
    base = {(row["family"], row["seed"]): row for row in of(rows, policy=OURS)}
    found = []
    for policy in (name for name in names(rows, "policy") if name.startswith(OURS) and name != OURS):
        pairs = [
            (row, base[row["family"], row["seed"]])
            for row in of(rows, policy=policy)
            if (row["family"], row["seed"]) in base
        ]
        if pairs:
            pol, regret = (_difference(pairs, lambda row, key=key: float(row[key])) for key in ("pol", "regret"))
            families = tuple(names([row for row, _ in pairs], "family"))
            found.append(Paired(policy, families, len(pairs), pol, regret, _difference(pairs, score_of)))
    return found


def _difference(pairs: list[tuple[Row, Row]], value: Callable[[Row], float]) -> Difference:
    return difference([value(row) - value(ours) for row, ours in pairs])


def difference(found: list[float]) -> Difference:
    """Return the mean of differences, and half its 95 % interval.

    Examples
    --------
    >>> difference([0.25])
    Difference(mean=0.25, half=None)
    """
    gaps, half = np.array(found), None
    if len(gaps) > 1:
        half = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return Difference(float(gaps.mean()), half)
