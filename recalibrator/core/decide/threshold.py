"""The threshold rule: expected scores over u flow in, the cheapest threshold that meets the target flows out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recalibrator.core.estimate.outlook import Expected, Outlook
from recalibrator.core.estimate.smooth import Floats
from recalibrator.core.observe.score import micro_f1
from schemas.calibration import ESCALATE_ALL, ESCALATE_NONE


@dataclass(frozen=True)
class Policies:
    """Every threshold policy "escalate u above t" at once, t at the cells' edges: shape (cells + 1,) each.

    Index 0 escalates all, index k keeps the cells below k, the last index keeps all that have a u.

    Parameters
    ----------
    thresholds : ndarray
        On u.
    value, error : ndarray
        F(t) = E[z] of what is served, and its standard error.
    size : ndarray
        E[d].
    escalation_rate : ndarray
        Share of queries for which the large model runs, exploration left out.
    """

    thresholds: Floats
    value: Floats
    error: Floats
    size: Floats
    escalation_rate: Floats
    target: float

    @cached_property
    def micro_f1(self) -> Floats:
        """Expected micro-F1 of each policy."""
        return micro_f1(self.value, self.size, self.target)

    def bound(self, errors: float) -> Floats:
        """Return expected micro-F1 moved by a number of standard errors (ratio of means, by the delta method)."""
        return micro_f1(self.value + errors * self.error, self.size, self.target)

    def index(self, threshold: float) -> int:
        """Return the policy whose threshold is nearest above the one given."""
        return min(int(np.searchsorted(self.thresholds, threshold - 1e-15)), len(self.thresholds) - 1)


@dataclass(frozen=True, slots=True)
class Choice:
    """The policy chosen: its index, and whether it is expected to meet the target at all."""

    index: int
    feasible: bool


def weigh(outlook: Outlook, edges: Floats, target: float, exploration: float = 0.0) -> Policies:
    """Weigh all thresholds by the current traffic.

    Parameters
    ----------
    outlook : Outlook
    edges : ndarray, shape (cells - 1,)
        Upper edges of all cells but the last.
    target : float
        τ.
    exploration : float
        Share of the kept queries that the large model answers all the same.

    Returns
    -------
    Policies
        F(t) = E[z_small; u ≤ t] + E[z_large; u > t], the failed small answers and the explored queries among the
        latter. The standard error holds the curves' noise, that of both corrections, and that of the traffic as a
        sample.
    """
    shares, escalated, failed = outlook.traffic, outlook.escalated, outlook.failed
    kept = _explored(outlook.kept, escalated, exploration)
    below = _from_left(shares * kept.value)
    above = _from_right(shares * escalated.value)
    value = below + above + failed.share * failed.value
    size = _from_left(shares * kept.size) + _from_right(shares * escalated.size) + failed.share * failed.size
    variance = _from_left(kept.spread) + _from_right(escalated.spread) + failed.share**2 * failed.variance
    variance = variance + _correction_variance(outlook)
    square = _from_left(shares * kept.value**2) + _from_right(shares * escalated.value**2)
    square = square + failed.share * failed.value**2
    variance = variance + np.maximum(square - value**2, 0.0) / outlook.traffic_queries
    return Policies(
        thresholds=np.concatenate(([ESCALATE_ALL], edges, [ESCALATE_NONE])),
        value=value,
        error=np.sqrt(variance),
        size=size,
        escalation_rate=np.clip(_from_right(shares) + failed.share, 0.0, 1.0),
        target=target,
    )


def _explored(kept: Expected, escalated: Expected, exploration: float) -> Expected:
    """Return what is expected of the kept queries when a share of them gets the large model's answer."""
    return Expected(
        (1.0 - exploration) * kept.value + exploration * escalated.value,
        (1.0 - exploration) * kept.size + exploration * escalated.size,
        (1.0 - exploration) ** 2 * kept.spread + exploration**2 * escalated.spread,
    )


def _correction_variance(outlook: Outlook) -> Floats:
    """Return what the rectifier and the agreement tilt add to Var F(t)."""
    shares, rectifier = outlook.traffic, outlook.rectifier
    near = np.where(np.arange(len(shares)) <= rectifier.split, shares, 0.0)
    far = shares - near
    (small_below, small_above), (large_below, large_above) = rectifier.variance
    variance = _from_left(near) ** 2 * small_below + _from_left(far) ** 2 * small_above
    variance = variance + _from_right(near) ** 2 * large_below + _from_right(far) ** 2 * large_above
    small, large = outlook.shift.jacobian
    slopes = np.stack([_from_left(shares * small[part]) + _from_right(shares * large[part]) for part in (0, 1)])
    return np.asarray(variance + np.einsum("ic,ij,jc->c", slopes, outlook.tilt.covariance, slopes))


def _from_left(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))


def _from_right(values: Floats) -> Floats:
    return np.concatenate((np.cumsum(values[::-1])[::-1], [0.0]))


def choose(policies: Policies, safety: float) -> Choice:
    """Choose the largest threshold that meets the target with a margin.

    Parameters
    ----------
    policies : Policies
    safety : float
        Margin, in standard errors of F.

    Returns
    -------
    Choice
        When none does with the margin, the one that comes nearest to it; when the best is not even expected to
        (infeasible), the one that gains most, which escalates where escalating helps.
    """
    secured = policies.value - safety * policies.error
    met = np.flatnonzero(secured >= 0.0)
    if len(met):
        return Choice(int(met[-1]), feasible=True)
    best = int(np.argmax(policies.value))
    if policies.value[best] >= 0.0:
        return Choice(int(np.argmax(secured)), feasible=True)
    return Choice(best, feasible=False)
