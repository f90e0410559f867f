"""What labels buy, at any rate of labels: by the memory of the fit, as it would be once they have come for long.

The curves forget by labels: while nothing changes they are as certain with few labels as with many, only older. What
recent labels correct is forgotten by queries, so that its error, the margin and the cost fall with the rate of labels.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log

import numpy as np

from recalibrator.fit.codec import Floats
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.decide.candidate import Candidate, View
from recalibrator.fit.decide.threshold import Policies, choose, weigh
from recalibrator.fit.drift.detector import CusumRules
from recalibrator.fit.drift.monitors import ALIKE_RULES
from recalibrator.fit.estimate.rectifier import Rectifier
from recalibrator.fit.publish.measured_quality import measured
from recalibrator.fit.publish.versions import VersionRegistry
from schemas.calibration import Z95, Interval, LabelShares
from schemas.costs import expected_cost
from schemas.event import from_us, to_us
from schemas.status import LabelEffect, LabelOutlook, LabelPlan

LATEST = 100
"""How many of the newest labels are reported together: what they changed."""
_RATES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Labels a query that are compared with the present ones."""
_USUAL_SHARES = LabelShares(1.0, 2.0)
"""How a budget is spent: twice as often on escalated queries."""
FALL = 0.02
"""Of micro-F1, the fall that is spoken of."""
_FOUND = 0.5
_LATEST_FOUND = 10_000_000.0
_US_PER_DAY = 86_400e6
_DIGITS = 5


def steady_noise(spread: float | Floats, per_query: float | Floats, half_life: float) -> Floats:
    """Return the squared standard error of the mean of recent labels, once they have come at one rate for long.

    A label weighs 2^(-age / H). At λ labels a query Σw is λH / ln 2 and Σw² is λH / (2 ln 2), so that the mean has
    the variance σ² Σw² / (Σw)² = σ² ln 2 / (2 λH) (Kish, 1965). Infinite without labels; ``spread`` is σ², the variance
    of one label's residual, NaN where it is unknown, ``per_query`` λ in [0, 1], and ``half_life`` H in queries.

    Examples
    --------
    >>> steady_noise(1.0, np.array([0.0, 0.02, 0.08]), 15_000.0).round(6).tolist()
    [inf, 0.001155, 0.000289]
    """
    rate = np.asarray(per_query, dtype=np.float64)
    noise = np.asarray(spread) * log(2.0) / (2.0 * half_life * np.where(rate > 0.0, rate, 1.0))
    return np.asarray(np.where((rate > 0.0) & ~np.isnan(noise), noise, inf))


def left_unknown(noise: Floats, unseen: Floats) -> Floats:
    """Return the variance that a mean of labels leaves of a change: M² s² / (M² + s²), a normal posterior's.

    ``noise`` is s², infinite without labels, and ``unseen`` M² > 0.

    Examples
    --------
    >>> left_unknown(np.array([1.0, np.inf]), np.array([1.0, 1.0])).tolist()
    [0.5, 1.0]
    """
    return np.asarray(1.0 / (1.0 / noise + 1.0 / np.maximum(unseen, 1e-300)))


def found_after(per_query: float, believed: float, labels_half_life: float, queries_half_life: float) -> int | None:
    """Return the queries after which half of a lasting change stands in the estimate; None where it never does.

    Of a change that labels alone show the curves hold c = 1 - 2^(-λQ / h) after Q queries, the mean of recent labels
    f = 1 - 2^(-Q / H), and the estimate c + b·(f - c): b is the share of the residual that is believed, m² / (m² + s²).
    ``per_query`` is λ, ``believed`` b, both in [0, 1]; the half-lives are h, in labels, and H, in queries.

    Examples
    --------
    >>> found_after(0.08, 0.6, 4_000.0, 15_000.0), found_after(0.002, 0.1, 4_000.0, 15_000.0)
    (22892, 1696738)
    """
    queries = np.geomspace(1.0, _LATEST_FOUND, 2_000)
    curves = 1.0 - np.exp2(-per_query * queries / labels_half_life)
    recent = 1.0 - np.exp2(-queries / queries_half_life)
    stands = curves + believed * (recent - curves)
    place = int(np.searchsorted(stands, _FOUND))
    return None if place == len(queries) or per_query <= 0.0 else round(float(queries[place]))


def alarm_after(labels: float, before: float, after: float, rules: CusumRules) -> float:
    """Return the queries after which a CUSUM of labels comes to its bound: b / (λ·E[ln likelihood ratio]) (Page, 1954).

    ``labels`` is λ: labels a query that it listens to; ``before`` and ``after`` are chances of an error, in (0, 1).

    Examples
    --------
    >>> round(alarm_after(0.05, 0.05, 0.12, CusumRules(1.6, 5.0, both_ways=False)))
    3726
    """
    gain = log(rules.odds) * after - log(1.0 - before + rules.odds * before)
    return rules.bound / (labels * gain) if labels * gain > 0.0 else inf


def _alarm(candidate: Candidate, centres: Floats, per_query: float) -> float:
    """Return the queries to an alarm where both models fail alike, so that micro-F1 falls by 2 points."""
    estimate = candidate.estimate
    shares, given = estimate.traffic, estimate.support.error_given_agreement
    alike = float(shares @ estimate.shift.agreement)
    size = float(shares @ estimate.kept.size)
    deficit = 1.0 - candidate.policies.target - float(shares @ estimate.kept.value) / max(size, 1e-9)
    wrong = float(shares @ np.interp(centres, estimate.map.uncertainty, estimate.map.error_probability))
    if given is None or deficit <= 0.0 or alike <= 0.0:
        return inf
    # An error costs as much as errors do on average.
    after = min(0.99, given + FALL * wrong / (deficit * alike))
    return alarm_after(per_query * alike, given, after, ALIKE_RULES)


def label_plan(view: View, candidate: Candidate, published: VersionRegistry, now_us: int) -> LabelPlan | None:
    """Return what labels buy at several rates, and what the latest ones have changed; None before a first version."""
    traffic, current = view.traffic, view.current
    if current is None or traffic.first_us is None:
        return None
    escalated = traffic.escalation_rate or 0.0
    in_force = current.label_shares
    present = _per_query(in_force, escalated)
    ratio = in_force if present > 0.0 else _USUAL_SHARES
    rates = sorted({*_RATES, present})
    days = (now_us - traffic.first_us) / _US_PER_DAY
    a_day = traffic.total["queries"] / days if days > 0.0 else None
    outlooks = [_outlook(view, candidate, rate, _shares(ratio, rate, escalated), a_day) for rate in rates]
    return LabelPlan(now=rates.index(present), outlooks=outlooks, latest=_effect(view, candidate, published))


def _per_query(shares: LabelShares, escalated: float) -> float:
    return round((1.0 - escalated) * shares.kept + escalated * shares.escalated, _DIGITS)


def _shares(ratio: LabelShares, per_query: float, escalated: float) -> LabelShares:
    times = per_query / _per_query(ratio, escalated)
    return LabelShares(min(1.0, times * ratio.kept), min(1.0, times * ratio.escalated))


def _outlook(
    view: View, candidate: Candidate, per_query: float, shares: LabelShares, a_day: float | None
) -> LabelOutlook:
    estimate, constants = candidate.estimate, view.constants
    explored, rectifier = min(candidate.exploration, shares.kept), estimate.rectifier
    noise = _noise(rectifier, estimate.traffic, shares, explored, constants.half_life_fast)
    variance = left_unknown(noise, np.repeat(rectifier.expected[1][:, None], 2, axis=1))
    steady = replace(estimate, rectifier=replace(rectifier, variance=variance))
    policies = weigh(steady, view.labels.grid.edges, view.labels.target, explored)
    index, cost = candidate.choice.index, None
    if view.settings.target.is_plain:
        index = choose(policies, candidate.safety, constants.gain_least).index
        cost = _cost(view, policies, index, explored)
    alarm = _alarm(candidate, view.labels.grid.centres, per_query)
    believed = float(rectifier.expected[0][0] / (rectifier.expected[0][0] + noise[0, 0]))
    size = max(float(policies.size[index]), 1e-9)
    found = found_after(per_query, believed, constants.half_life_slow, constants.half_life_fast)
    soonest = min(inf if found is None else found, alarm)
    return LabelOutlook(
        per_query=per_query,
        per_day=None if a_day is None else round(per_query * a_day, 1),
        half_width=round(float(Z95 * policies.error[index] / size), _DIGITS),
        cost=cost,
        found_after=None if soonest > _LATEST_FOUND else round(soonest),
    )


def _noise(rectifier: Rectifier, traffic: Floats, shares: LabelShares, explored: float, half_life: float) -> Floats:
    """Return the steady noise of the small and the large model's labels, below and above the serving threshold."""
    below = float(traffic[: rectifier.split + 1].sum())
    above = float(traffic.sum()) - below
    kept, escalated = below * shares.kept, above * shares.escalated
    return steady_noise(rectifier.spread, np.array([[kept, escalated], [below * explored, escalated]]), half_life)


def _cost(view: View, policies: Policies, index: int, explored: float) -> float | None:
    if view.costs is None:
        return None
    return round(expected_cost(view.costs, float(policies.escalation_rate[index]), explored).sequential, _DIGITS)


def _effect(view: View, candidate: Candidate, published: VersionRegistry) -> LabelEffect | None:
    """Return what the latest labels have changed, by the versions that are known; None while there are too few."""
    table, current, policies = view.labels.table, view.current, candidate.policies
    routed_us = np.sort(table[table[:, at.STANDING] > 0.0, at.ROUTED_US])
    if len(routed_us) < 2 * LATEST or current is None:
        return None
    earlier_us, since_us = int(routed_us[-2 * LATEST]), int(routed_us[-LATEST])
    former = current
    while to_us(former.created_at) > since_us and (parent := published.find(former.parent_version)) is not None:
        former = parent
    before, now = (policies.index(one.uncertainty_threshold) for one in (former, current))
    costs = [_cost(view, policies, index, candidate.exploration) for index in (before, now)]
    found = measured(view.labels, earlier_us, LATEST, since_us), measured(view.labels, since_us, LATEST)
    return LabelEffect(
        labels=LATEST,
        since=from_us(since_us),
        uncertainty_threshold=(former.uncertainty_threshold, current.uncertainty_threshold),
        cost=None if costs[0] is None or costs[1] is None else (costs[0], costs[1]),
        micro_f1=(float(policies.micro_f1[before]), float(policies.micro_f1[now])),
        measured=None if found[0] is None or found[1] is None else (_interval(found[0]), _interval(found[1])),
    )


def _interval(found: Interval) -> Interval:
    return Interval(estimate=found.estimate, lower=found.lower, upper=found.upper)
