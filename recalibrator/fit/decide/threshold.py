"""The threshold rule: by expected scores over u, the cheapest threshold that meets the target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.estimate.estimate import Estimate
from schemas.calibration import ESCALATE_ALL, ESCALATE_NONE, Atom

_FEW_LABELS, _MANY_LABELS = 300.0, 4_000.0
"""The margin of n labels is wider by ``_FEW_LABELS`` / n, less what that is of many, from which on it is as configured:
measured on cold starts with 8, 2 and .5 % of queries labelled (docs/method.md)."""


@dataclass(frozen=True)
class Policies:
    """Every threshold policy "escalate u above t" at once, t at the cells' edges: shape (cells + 1,) each.

    Index 0 escalates all, index k keeps the cells below k, the last index keeps all that have a u.
    """

    #: On u.
    thresholds: Floats
    #: ``value`` and ``error``: F(t) = E[z] of what is served, and its standard error.
    value: Floats
    error: Floats
    #: E[d].
    size: Floats
    #: Share of queries for which the large model runs, exploration left out.
    escalation_rate: Floats
    target: float

    @cached_property
    def micro_f1(self) -> Floats:
        """Expected micro-F1 of each policy, τ + E[z] / E[d]; where there is nothing to find, it is 1.

        With a = 2·TP and d = predicted + gold, micro-F1 of many answers is Σa / Σd, and z = a - τ·d has Σz ≥ 0 exactly
        when micro-F1 ≥ τ: the target on a ratio is one on a mean of scores.
        """
        safe = np.where(self.size > 0.0, self.size, 1.0)
        return np.where(self.size > 0.0, np.clip(self.target + self.value / safe, 0.0, 1.0), 1.0)

    def bound(self, index: int, errors: float) -> float:
        """Return a policy's micro-F1 moved by a number of standard errors (ratio of means, by the delta method)."""
        value, error, size = (part.item(index) for part in (self.value, self.error, self.size))
        return min(1.0, max(0.0, self.target + (value + errors * error) / size)) if size > 0.0 else 1.0

    def index(self, threshold: float) -> int:
        """Return the policy whose threshold is nearest above the one given."""
        return min(int(np.searchsorted(self.thresholds, threshold - 1e-15)), len(self.thresholds) - 1)


@dataclass(frozen=True, slots=True)
class Choice:
    """The policy chosen: its index, and whether it is expected to meet the target at all.

    ``binds`` names what keeps it from being cheaper, or dearer under a limit; ``wanted`` is the index that the target
    would take without the cap, where that binds.
    """

    index: int
    feasible: bool
    binds: str | None = None
    wanted: int | None = None


def weigh(
    estimate: Estimate, edges: Floats, target: float, exploration: float = 0.0, atom: Atom | None = None
) -> Policies:
    """Weigh all thresholds by the current traffic.

    F(t) = E[z_small; u ≤ t] + E[z_large; u > t], the failed small answers and the explored queries among the latter.
    The standard error holds the curves' noise, that of both corrections, and that of the traffic as a sample.

    Parameters
    ----------
    edges : ndarray, shape (cells - 1,)
        Upper edges of all cells but the last.
    target : float
        τ.
    exploration : float
        Share of the kept queries that the large model answers all the same.
    atom : Atom, optional
        Queries of which a share escalates by draw.
    """
    shares, kept, escalated, failed = estimate.traffic, estimate.kept, estimate.escalated, estimate.failed
    small, large = estimate.shift.jacobian
    # Each policy keeps one cell more than the one before it: what changes there, added up, is what all of them expect.
    sums = np.empty((7, len(shares) + 1))
    sums[:, 0] = (
        shares.dot(escalated.value) + failed.share * failed.value,
        shares.dot(escalated.size) + failed.share * failed.size,
        shares.dot(np.square(escalated.value)) + failed.share * failed.value**2,
        *large.dot(shares).tolist(),
        np.add.reduce(escalated.spread) + failed.share**2 * failed.variance,
        0.0,
    )
    gains = sums[:, 1:]
    explored: float | Floats = exploration
    if atom is not None:
        explored = np.full(len(shares), exploration)
        explored[_cell(edges, atom)] = 1.0 - (1.0 - exploration) * atom.keep_probability
    # Of the kept queries a share gets the large model's answer all the same.
    np.multiply(kept.value - escalated.value, 1.0 - explored, out=gains[0])
    np.multiply(kept.size - escalated.size, 1.0 - explored, out=gains[1])
    np.multiply(gains[0] + 2.0 * escalated.value, gains[0], out=gains[2])  # a² - b² = (a - b)(a - b + 2b)
    np.subtract(small, large, out=gains[3:5])
    gains[:5] *= shares
    gains[5] = (1.0 - explored) ** 2 * kept.spread - (1.0 - explored**2) * escalated.spread
    gains[6] = shares
    np.add.accumulate(sums, axis=1, out=sums)
    value, size, square, level, slope, variance, below = sums
    # Where the largest is left of large numbers, rounding must not make it negative.
    variance = np.maximum(variance, 0.0) + _correction_variance(estimate, level, slope, below)
    variance += np.maximum(square - value * value, 0.0) / estimate.traffic_queries
    return Policies(
        thresholds=_thresholds(edges.tobytes()),
        value=value,
        error=np.sqrt(variance),
        size=np.maximum(size, 0.0),
        escalation_rate=escalation_rate(estimate, edges, atom),
        target=target,
    )


@lru_cache(maxsize=8)
def _thresholds(edges: bytes) -> Floats:
    thresholds: Floats = np.concatenate(([ESCALATE_ALL], np.frombuffer(edges), [ESCALATE_NONE]))
    thresholds.flags.writeable = False
    return thresholds


def _correction_variance(estimate: Estimate, level: Floats, slope: Floats, below: Floats) -> Floats:
    """Return what the rectifier and the agreement tilt add to Var F(t) of each policy.

    ``level`` and ``slope`` say how F changes with the tilt's parameters, ``below`` is the share of queries kept.
    """
    rectifier, whole = estimate.rectifier, float(below[-1])
    near = float(below[rectifier.split + 1])
    near_kept = np.minimum(below, near)
    far_kept = below - near_kept
    (small_below, small_above), (large_below, large_above) = rectifier.variance.tolist()
    variance: Floats = np.square(near_kept) * small_below + np.square(far_kept) * small_above
    variance += np.square(near - near_kept) * large_below
    variance += np.square((whole - near) - far_kept) * large_above
    (level_variance, covariance), (_, slope_variance) = estimate.tilt.covariance.tolist()
    variance += level * (level_variance * level + (2.0 * covariance) * slope)
    variance += slope_variance * np.square(slope)
    return variance


def _cell(edges: Floats, atom: Atom) -> int:
    return int(np.searchsorted(edges, atom.most))


def escalation_rate(estimate: Estimate, edges: Floats, atom: Atom | None) -> Floats:
    """Return the share of queries that each threshold escalates, exploration left out, those drawn of an atom included.

    Added up from the right: 0 where nothing is left.
    """
    shares, drawn = estimate.traffic, 0.0
    if atom is not None:
        cell = _cell(edges, atom)
        drawn = shares.item(cell) * (1.0 - atom.keep_probability)
        shares = shares.copy()
        shares[cell] -= drawn
    rate = np.zeros(len(shares) + 1)
    np.add.accumulate(shares[::-1], out=rate[-2::-1])
    rate += drawn + estimate.failed.share
    return np.minimum(rate, 1.0)


def safety_of_few(safety: float, labels: float) -> float:
    """Return the margin in standard errors that keeps its meaning where few labels are known.

    A standard error made of few labels is itself uncertain, and of all thresholds that seem to meet the target the
    largest is the luckiest: the fewer labels, the more so.

    ``safety``: margin where labels are many.

    Examples
    --------
    >>> safety_of_few(1.0, 300.0), safety_of_few(1.0, 50_000.0)
    (1.925, 1.0)
    """
    return safety * (1.0 + max(0.0, _FEW_LABELS / max(labels, 1.0) - _FEW_LABELS / _MANY_LABELS))


def choose(policies: Policies, safety: float, gain_least: float = 0.0) -> Choice:
    """Choose the largest threshold that meets the target with a margin, in standard errors of F.

    When none does with the margin, the one that comes nearest to it; when the best is not even expected to
    (infeasible), the one that gains most, which escalates where escalating helps. In both cases the largest threshold
    within ``gain_least`` of it, in micro-F1: the top is flat, and calls that gain next to nothing are not paid for.
    """
    secured = policies.value - safety * policies.error
    met = np.flatnonzero(secured >= 0.0)
    if len(met):
        return Choice(int(met[-1]), feasible=True)
    feasible = bool(policies.value.max() >= 0.0)
    score = secured if feasible else policies.value
    near = np.flatnonzero(score >= score.max() - gain_least * policies.size[np.argmax(score)])
    return Choice(int(near[-1]), feasible=feasible)
