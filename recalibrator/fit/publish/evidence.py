"""The evidence of a version: the estimates behind it, so that a reader can check them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from recalibrator.fit.data.traffic_window import TrafficWindow
from recalibrator.fit.decide.candidate import Candidate
from recalibrator.fit.decide.threshold import Policies, large_rate
from schemas.calibration import Z95, Evidence, Interval, Target, TargetStanding
from schemas.costs import ModelCosts, expected_cost
from schemas.event import from_us
from schemas.settings import WorkloadSettings
from schemas.status import CalibrationError, CostQualityCurve, UncertaintyHistogram

_FRONTIER_POINTS = 48
_BINS = 64
_DIGITS, _DIGITS_OF_U = 5, 6
"""Of what is drawn: a version's record is read by every router."""

_NEAR_TIE = 1e-6

_RATIO_MOST = 1e6
"""Of latencies; beyond it they are nonsense, and the costs made of them must stay finite."""


def costs(settings: WorkloadSettings, traffic: TrafficWindow) -> ModelCosts | None:
    """Return the costs of a call: as configured, of its mean tokens, or the ratio of mean latencies; else None."""
    if settings.cost is not None and settings.cost.unit == "token":
        used = traffic.mean_tokens()
        return None if used is None else settings.cost.of_calls(*used)
    if settings.cost is not None:
        return settings.cost
    latency = traffic.mean_latency_s()
    if latency is None:
        return None
    return ModelCosts(small=1.0, large=min(_RATIO_MOST, max(1.0 / _RATIO_MOST, latency[1] / latency[0])))


def micro_f1_interval(policies: Policies, index: int, errors: float) -> Interval:
    """Return expected micro-F1 of one policy, a number of standard errors to either side."""
    return Interval(
        estimate=float(policies.micro_f1[index]),
        lower=policies.bound(index, -errors),
        upper=policies.bound(index, errors),
    )


def target_standing(target: Target, candidate: Candidate, index: int, errors: float) -> TargetStanding | None:
    """Return how the policy of an index stands to the target; None where that is a micro-F1 alone.

    ``errors`` is half the width of the fields' intervals, in standard errors. What binds, the candidate's choice tells.
    """
    if target.is_plain:
        return None
    wanted = candidate.choice.wanted
    rates = large_rate(candidate.policies, candidate.exploration)
    return TargetStanding(
        binds=candidate.choice.binds,
        wanted_escalation=None if wanted is None else min(1.0, float(rates[wanted])),
        fields={name: micro_f1_interval(one.policies, index, errors) for name, one in candidate.fields.items()},
        budget=candidate.budget,
    )


def evidence(
    trigger: str,
    candidate: Candidate,
    scores: CalibrationError,
    model_costs: ModelCosts | None,
    drift_state: str,
    more: dict[str, JsonValue],
    standing: TargetStanding | None,
) -> Evidence:
    """Put the evidence of a fitted version together; ``more`` are further details.

    The interval of micro-F1 is as wide as the margin of the choice: the candidate's ``safety``.
    """
    estimate, policies, choice = candidate.estimate, candidate.policies, candidate.choice
    exploration = candidate.exploration
    support, window_us = estimate.support, estimate.support.window_us
    rate = float(policies.escalation_rate[choice.index])
    cost = None if model_costs is None else expected_cost(model_costs, rate, exploration)
    return Evidence(
        trigger=trigger,
        window_from=None if window_us is None else from_us(window_us[0]),
        window_to=None if window_us is None else from_us(window_us[1]),
        labels=support.labels,
        pairs=support.pairs,
        effective_labels=support.effective_labels,
        effective_pairs=support.effective_pairs,
        ece=scores.ece,
        brier=scores.brier,
        micro_f1=micro_f1_interval(policies, choice.index, candidate.safety),
        escalation_rate=rate,
        expected_cost=cost,
        best_micro_f1=None if choice.feasible else float(policies.micro_f1.max()),
        drift_state=drift_state,
        details={
            "standard_error": float(policies.error[choice.index] / max(float(policies.size[choice.index]), 1e-9)),
            "traffic_queries": estimate.traffic_queries,
            "failed_share": estimate.failed.share,
            "agreement_tilt": [estimate.tilt.level, estimate.tilt.slope],
            "error_given_agreement": support.error_given_agreement,
            "micro_f1_95": micro_f1_interval(policies, choice.index, Z95).model_dump(),
            "frontier": frontier(policies, choice.index, model_costs, exploration).model_dump(mode="json"),
            "uncertainty": uncertainty_histogram(estimate.traffic, policies.thresholds[1:-1]).model_dump(mode="json"),
            **more,
        },
        **({} if standing is None else {"standing": standing}),
    )


def frontier(
    policies: Policies, chosen: int | None, model_costs: ModelCosts | None, exploration: float = 0.0
) -> CostQualityCurve:
    """Return some 48 of all policies, evenly spaced by escalation rate, the one of index ``chosen`` among them.

    Without costs, which hold for a share of explored queries, that of the curve stays empty.
    """
    rate = policies.escalation_rate
    # The rate falls with the threshold; of equal rates the first policy stands for all.
    wanted = np.linspace(rate[0], rate[-1], _FRONTIER_POINTS)
    places = np.minimum(np.searchsorted(-rate, -wanted), len(rate) - 1)
    places = np.unique(np.append(places, [] if chosen is None else [chosen])).astype(np.intp)
    cost: NDArray[np.float64] = np.zeros(0)
    if model_costs is not None:
        # The cost is linear in the rate, so its ends determine it.
        none, every = (expected_cost(model_costs, end, exploration).sequential for end in (0.0, 1.0))
        cost = none + rate[places] * (every - none)
    return CostQualityCurve(
        threshold=_rounded(policies.thresholds[places], _DIGITS_OF_U),
        escalation_rate=_rounded(rate[places]),
        micro_f1=_rounded(policies.micro_f1[places]),
        sequential_cost=_rounded(cost),
        chosen=None if chosen is None else int(np.searchsorted(places, chosen)),
    )


def uncertainty_histogram(mass: NDArray[np.float64], edges: NDArray[np.float64]) -> UncertaintyHistogram:
    """Return shares of queries in 64 bins of u, made of whole cells and so spaced by the logit.

    ``mass`` are queries by cell, or shares of them; ``edges`` the upper edges of all cells but the last.
    """
    total = float(mass.sum())
    if total <= 0.0:
        return UncertaintyHistogram()
    starts = np.arange(_BINS) * len(mass) // _BINS
    return UncertaintyHistogram(
        edges=(0.0, *_rounded(edges[starts[1:] - 1], _DIGITS_OF_U), 1.0),
        share=_rounded(np.clip(np.add.reduceat(mass, starts) / total, 0.0, 1.0)),
    )


def _rounded(values: NDArray[np.float64], digits: int = _DIGITS) -> tuple[float, ...]:
    """Round as Python does, exactly; numpy is five times as fast, but rounds a product, which may cross a tie."""
    rounded = values.round(digits).tolist()
    scaled = values * 10.0**digits
    for place in np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < _NEAR_TIE).tolist():
        rounded[place] = round(float(values[place]), digits)
    return tuple(rounded)
