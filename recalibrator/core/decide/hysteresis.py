"""Publish or wait: a new choice and the one in force flow in, the reason to publish (or none) flows out.

Every publication moves all routers, so that noise must not cause one.
"""

from __future__ import annotations

from recalibrator.core.decide.threshold import Choice, Policies
from recalibrator.core.tuning import Tuning
from schemas.calibration import CalibrationVersion

_NOISE_MOST = 0.05
_STEEPEST_GAIN = 0.02
_UNSAFE_SHARE = 0.5
_DRIFT_SHARE = 0.25


def reason_to_publish(
    current: CalibrationVersion,
    policies: Policies,
    choice: Choice,
    *,
    map_moved: float,
    exploration: float,
    age_s: float,
    drifted: bool,
    tuning: Tuning,
) -> str | None:
    """Return the trigger of a new version, or None to leave the one in force.

    Parameters
    ----------
    current : CalibrationVersion
        In force.
    policies : Policies
        All thresholds, weighed now.
    choice : Choice
    map_moved : float
        Mean over current traffic of the change of g(u).
    exploration : float
        Share of kept queries that are to be explored from now on.
    age_s : float
        Event time since ``current``, in seconds.
    drifted : bool
        Whether a detector has just fired.
    tuning : Tuning

    Returns
    -------
    str or None
        ``feasibility_changed``, ``drift``, ``threshold_moved``, ``map_moved``, ``exploration_changed`` or
        ``maximum_age``.
    """
    if choice.feasible != (current.state != "infeasible"):
        return "feasibility_changed"
    old = policies.index(current.uncertainty_threshold)
    rates = policies.escalation_rate
    move = float(rates[choice.index] - rates[old])
    least = max(tuning.move_least, tuning.hysteresis * rate_noise(policies, choice.index))
    if move > 0.0:
        least *= tuning.unsafe_share  # a target at risk is worth more than a call saved
    if drifted and abs(move) >= _DRIFT_SHARE * tuning.move_least:
        return "drift"
    if abs(move) > least:
        return "threshold_moved"
    if map_moved > tuning.map_move_least:
        return "map_moved"
    if exploration != current.exploration_probability:
        return "exploration_changed"
    return "maximum_age" if age_s >= tuning.maximum_age_s else None


def rate_noise(policies: Policies, index: int) -> float:
    """Return the standard error of the escalation rate at the chosen threshold, at most 0.05.

    The error of F, over what a further share of escalated queries gains near the threshold.
    """
    low, high = max(0, index - 8), min(len(policies.value) - 1, index + 8)
    rate = float(policies.escalation_rate[low] - policies.escalation_rate[high])
    gain = abs(float(policies.value[low] - policies.value[high])) / rate if rate > 0.0 else 0.0
    return min(_NOISE_MOST, float(policies.error[index]) / max(gain, _STEEPEST_GAIN))
