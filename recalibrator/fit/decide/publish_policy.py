"""Publish or wait: a new choice and the one in force flow in, the reason to publish (or none) flows out.

A publication reaches all routers within tens of milliseconds and costs next to nothing, so that only moves too small to
matter are kept back. Waiting for larger ones, or for those beyond their noise, was measured to cost more than it saves.
"""

from __future__ import annotations

from recalibrator.fit.decide.threshold import Choice, Policies
from recalibrator.fit.method_constants import Tuning
from schemas.calibration import CalibrationVersion

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
    if drifted and abs(move) >= _DRIFT_SHARE * tuning.move_least:
        return "drift"
    if abs(move) > tuning.move_least:
        return "threshold_moved"
    if map_moved > tuning.map_move_least:
        return "map_moved"
    if exploration != current.exploration_probability:
        return "exploration_changed"
    return "maximum_age" if age_s >= tuning.maximum_age_s else None
