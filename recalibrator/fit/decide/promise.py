"""The threshold for a whole target: of several qualities at once, under a cap on escalation, or within a budget.

A micro-F1 alone is chosen by :func:`~recalibrator.fit.decide.threshold.choose`; here stands what else can be promised.
All thresholds are compared, as there: none of these sets need be an interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.decide.threshold import Choice, Policies, choose
from schemas.calibration import BUDGET, CAP, QUALITY, CalibrationVersion, Target

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

    Parameters
    ----------
    promised : mapping of name to Policies
        Under ``micro_f1`` the policies weighed for all fields together, which a budget is spent by as well; under
        ``fields.NAME`` those weighed for the target of one field.
    affordable : Affordable or None
        Within the budget; None without one, and where the costs of calls are not known yet.
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
