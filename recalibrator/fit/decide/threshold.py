"""The threshold rule: by expected scores over u, the cheapest threshold that meets a target of any form.

A target is one micro-F1, or several, under a cap on escalation or within a budget. All thresholds are compared: none of
the sets that meet a target need be an interval. Where many queries share a value of u, no threshold parts them, and
which of them are kept is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats
from recalibrator.fit.estimate.estimate import Estimate
from schemas.calibration import BUDGET, CAP, ESCALATE_ALL, ESCALATE_NONE, QUALITY, Atom, CalibrationVersion, Target

_FEW_LABELS, _MANY_LABELS = 300.0, 4_000.0
"""The margin of n labels is wider by ``_FEW_LABELS`` / n, less what that is of many, from which on it is as configured:
measured on cold starts with 8, 2 and .5% of queries labelled (docs/method.md)."""


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

    ``edges`` are the upper edges of all cells but the last, ``target`` is τ, ``exploration`` the share of the kept
    queries that the large model answers all the same, and of an ``atom`` a share escalates by draw.
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
        explored[np.searchsorted(edges, atom.most)] = 1.0 - (1.0 - exploration) * atom.keep_probability
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


def escalation_rate(estimate: Estimate, edges: Floats, atom: Atom | None) -> Floats:
    """Return the share of queries that each threshold escalates, exploration left out, those drawn of an atom included.

    Added up from the right: 0 where nothing is left.
    """
    shares, drawn = estimate.traffic, 0.0
    if atom is not None:
        cell = int(np.searchsorted(edges, atom.most))
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


_USUAL, _MOST = 0.9, 0.99
_LEAST_SIZE = 1e-9
_ROUNDING = 1e-12
"""Of a share that is added up over all cells."""


class Affordable(NamedTuple):
    """Largest share of queries that the large model may answer: of the next ones, and by the budget in the long run."""

    now: float
    ever: float


def large_rate(policies: Policies, exploration: float) -> Floats:
    """Return the share of queries that the large model answers under each policy, shape (cells + 1,).

    Of the kept queries a share explores, in [0, 1]. It never rises with the threshold.
    """
    return exploration + (1.0 - exploration) * policies.escalation_rate


def choose_for_all(promised: Mapping[str, Policies], safety: float, gain_least: float = 0.0) -> Choice:
    """Choose the largest threshold that meets every one of several targets with a margin, in standard errors.

    It is the largest in the intersection of all feasible sets. Where that is empty, the threshold whose scarcest target
    is nearest to its margin; where none is even expected to meet all (infeasible), the one that falls short the least.
    As with one target, the largest within ``gain_least`` of it, in micro-F1. ``binds`` is the target that the next
    larger threshold misses by most, or the scarcest one of the chosen threshold where none meets all.
    """
    if len(promised) == 1:
        ((name, policies),) = promised.items()
        choice = choose(policies, safety, gain_least)
        return replace(choice, binds=_binding({name: _slack(policies, safety)}, choice.index))
    secured = {name: _slack(policies, safety) for name, policies in promised.items()}
    expected = {name: _slack(policies, 0.0) for name, policies in promised.items()}
    scarcest = np.min(list(secured.values()), axis=0)
    met = np.flatnonzero(scarcest >= 0.0)
    if len(met):
        index = int(met[-1])
        return Choice(index, feasible=True, binds=_binding(secured, index))
    hoped = np.min(list(expected.values()), axis=0)
    feasible = bool(hoped.max() >= 0.0)
    score, slack = (scarcest, secured) if feasible else (hoped, expected)
    index = int(np.flatnonzero(score >= score.max() - gain_least)[-1])
    return Choice(index, feasible=feasible, binds=min(slack, key=lambda name: slack[name][index]))


def _slack(policies: Policies, safety: float) -> Floats:
    """Return by how much each policy exceeds its target with the margin, in micro-F1: (F - k·SE) / E[d]."""
    has_pairs = policies.size > _LEAST_SIZE
    slack = (policies.value - safety * policies.error) / np.where(has_pairs, policies.size, 1.0)
    # Where nothing is predicted and nothing is to be found, micro-F1 is 1.
    return np.where(has_pairs, slack, 1.0 - policies.target)


def _binding(slack: Mapping[str, Floats], index: int) -> str | None:
    """Return what keeps a policy that meets all from being the next cheaper one; None where it is the cheapest."""
    after = index + 1
    if after >= len(next(iter(slack.values()))):
        return None
    return min(slack, key=lambda name: slack[name][after])


def choose_within(policies: Policies, rate_most: float, exploration: float, gain_least: float = 0.0) -> Choice:
    """Choose the threshold of the best micro-F1 among those for which a share of large calls is enough.

    The share, below 0 where not even none is affordable, is used up, unless using less is expected to serve better by
    more than ``gain_least``. Where even the largest threshold takes more, that one, and it is not feasible.
    """
    rates = large_rate(policies, exploration)
    within = np.flatnonzero(rates <= rate_most + _ROUNDING)
    if not len(within):
        return Choice(len(rates) - 1, feasible=False, binds=BUDGET)
    first = int(within[0])
    quality = policies.micro_f1[first:]
    if quality.max() > quality[0] + gain_least:
        return Choice(first + int(np.flatnonzero(quality == quality.max())[-1]), feasible=True)
    return Choice(first, feasible=True, binds=BUDGET if first else None)


def capped(choice: Choice, policies: Policies, most: float, exploration: float) -> Choice:
    """Return the choice, or the smallest threshold under a cap on large calls where the choice escalates more.

    ``most`` is a share of queries, exploration included; ``wanted`` is the threshold that the cap takes the place of.
    Where even the largest threshold escalates more (failed small answers always do), that one.
    """
    rates = large_rate(policies, exploration)
    index = min(int(np.count_nonzero(rates > most + _ROUNDING)), len(rates) - 1)
    if index <= choice.index:
        return choice
    return replace(choice, index=index, binds=CAP, wanted=choice.index)


def choose_for(
    target: Target,
    promised: Mapping[str, Policies],
    affordable: Affordable | None,
    exploration: float,
    gain_least: float,
) -> Choice:
    """Choose the threshold for a target of any form.

    ``promised`` are, under ``micro_f1``, the policies weighed for all fields together, which a budget is spent by as
    well, and, under ``fields.NAME``, those weighed for the target of one field. ``affordable`` is None without a
    budget, and where the costs of calls are not known yet.
    """
    overall = promised[QUALITY]
    if target.is_plain:
        return choose(overall, target.safety, gain_least)
    if target.cost is not None:
        # While it is not known what a call costs, as few are made as can be.
        now, ever = affordable or Affordable(0.0, 0.0)
        choice = choose_within(overall, now, exploration, gain_least)
        # What was overdrawn is saved for a while; only a budget below what is paid anyway is out of reach.
        choice = replace(choice, feasible=bool(large_rate(overall, exploration)[-1] <= ever + _ROUNDING))
    else:
        held = {name: one for name, one in promised.items() if name != QUALITY or target.micro_f1 is not None}
        choice = choose_for_all(held, target.safety, gain_least)
    if target.max_escalation is None:
        return choice
    return capped(choice, overall, target.max_escalation, exploration)


def reference(target: Target, current: CalibrationVersion | None) -> float:
    """Return τ, by which answers are scored: the target, or without one about what is served.

    micro-F1 is τ + E[z] / E[d] for any τ. Its standard error by the delta method is that of z at τ = micro-F1, so that
    without a target τ follows the estimate of the version in force.
    """
    if target.micro_f1 is not None:
        return target.micro_f1
    known = None if current is None else current.evidence.micro_f1
    return _USUAL if known is None else min(_MOST, max(1.0 - _MOST, round(known.estimate, 2)))


ATOM_SHARE = 0.05
"""Share of the current queries in one cell of u from which it counts as an atom; cells are .04 wide in logit(u), and no
continuous u puts as many into one."""


def atom_of(traffic: Floats, edges: Floats) -> Atom | None:
    """Return the cell of u that holds the most of the current queries, where it is an atom; all of it is kept.

    ``traffic`` are the shares of queries by cell, ``edges`` the upper edges of all cells but the last.

    Examples
    --------
    >>> atom_of(np.array([0.3, 0.04, 0.66]), np.array([0.1, 0.2])).most
    1.0
    """
    cell = int(np.argmax(traffic))
    if traffic[cell] < ATOM_SHARE:
        return None
    above = float(edges[cell - 1]) if cell else ESCALATE_ALL
    return Atom(above=above, most=float(edges[cell]) if cell < len(edges) else 1.0, keep_probability=1.0)
