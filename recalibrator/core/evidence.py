"""The numbers behind a version: what was estimated flows in, what a reader may check flows out."""

from __future__ import annotations

from recalibrator.core.decide.threshold import Choice, Policies
from recalibrator.core.estimate.outlook import Outlook, Support
from recalibrator.core.observe.instants import from_us
from recalibrator.core.observe.traffic import TrafficWindow
from schemas.calibration import Evidence, Interval, ModelCosts
from schemas.costs import expected_cost
from schemas.settings import WorkloadSettings
from schemas.status import CalibrationError

_RATIO_MOST = 1e6
"""Of latencies; beyond it they are nonsense, and the costs made of them must stay finite."""


def costs(settings: WorkloadSettings, traffic: TrafficWindow) -> ModelCosts | None:
    """Return the costs of a call: as configured, else the ratio of mean latencies, else None."""
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
        lower=float(policies.bound(-errors)[index]),
        upper=float(policies.bound(errors)[index]),
    )


def evidence(
    trigger: str,
    outlook: Outlook,
    policies: Policies,
    choice: Choice,
    scores: CalibrationError,
    settings: WorkloadSettings,
    model_costs: ModelCosts | None,
    drift_state: str,
) -> Evidence:
    """Put the evidence of a fitted version together.

    Returns
    -------
    Evidence
        The interval of micro-F1 is as wide as the margin of the choice: ``target.safety`` standard errors.
    """
    rate = float(policies.escalation_rate[choice.index])
    exploration = settings.sampling.exploration_probability
    cost = None if model_costs is None else expected_cost(model_costs, rate, exploration)
    return Evidence(
        trigger=trigger,
        **support_fields(outlook.support),
        ece=scores.ece,
        brier=scores.brier,
        micro_f1=micro_f1_interval(policies, choice.index, settings.target.safety),
        escalation_rate=rate,
        expected_cost=cost,
        best_micro_f1=None if choice.feasible else float(policies.micro_f1.max()),
        drift_state=drift_state,
        details={
            "standard_error": float(policies.error[choice.index] / max(float(policies.size[choice.index]), 1e-9)),
            "traffic_queries": outlook.traffic_queries,
            "failed_share": outlook.failed.share,
            "agreement_tilt": [outlook.tilt.level, outlook.tilt.slope],
            "error_given_agreement": outlook.support.error_given_agreement,
        },
    )


def support_fields(support: Support) -> dict[str, object]:
    """Return the fields of :class:`~schemas.calibration.Evidence` that say how much evidence there is."""
    span = support.window_us
    return {
        "window_from": None if span is None else from_us(span[0]),
        "window_to": None if span is None else from_us(span[1]),
        "labels": support.labels,
        "pairs": support.pairs,
        "effective_labels": support.effective_labels,
        "effective_pairs": support.effective_pairs,
    }
