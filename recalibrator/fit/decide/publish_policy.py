"""Publish or wait, and how much to explore: a new candidate against the version in force.

A publication reaches all routers within tens of milliseconds and costs next to nothing, so that only moves too small to
matter are kept back. Waiting for larger ones, or for those beyond their noise, was measured to cost more than it saves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from recalibrator.fit.decide.promise import Affordable
from recalibrator.fit.decide.threshold import Choice, Policies, escalation_rate
from recalibrator.fit.estimate.estimate import Estimate, Support
from recalibrator.fit.method_constants import PublishConstants
from schemas.calibration import Atom, BudgetStanding, CalibrationVersion

_DRIFT_SHARE = 0.25


class FieldWeights(NamedTuple):
    """One field's policies, for its own target, and the evidence behind them."""

    policies: Policies
    support: Support


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a version made now would rest on: the estimate, the exploration, all policies, and the one chosen.

    ``safety`` is the margin of the choice, in standard errors. ``fields`` holds the same for each field with a target
    of its own: its evidence, and the policies weighed for it. ``atom`` is what the policies cut by draw, if anything;
    ``affordable`` and ``budget`` are of a target with a budget.
    """

    estimate: Estimate
    exploration: float
    policies: Policies
    choice: Choice
    safety: float
    fields: dict[str, FieldWeights] = field(default_factory=dict)
    atom: Atom | None = None
    affordable: Affordable | None = None
    budget: BudgetStanding | None = None


def exploration_probability(most: float, constants: PublishConstants, *, is_quiet: bool) -> float:
    """Return the exploration probability of the next version.

    Exploration is paid with every query and needed where outcomes have changed: there the large model's answers below
    the threshold must be learnt anew. While nothing changes, labels that age slowly still show them.

    Parameters
    ----------
    most : float
        As configured.
    is_quiet : bool
        Whether nothing has changed lately, and nothing is suspected to.
    """
    return most * constants.quiet_exploration if is_quiet else most


def reason_to_publish(
    current: CalibrationVersion,
    candidate: Candidate,
    constants: PublishConstants,
    *,
    map_moved: float,
    age_s: float,
    drifted: bool,
) -> str | None:
    """Return the trigger of a new version, or None to leave the one in force.

    Parameters
    ----------
    current : CalibrationVersion
        In force.
    map_moved : float
        Mean over current traffic of the change of g(u).
    age_s : float
        Event time since ``current``, in seconds.
    drifted : bool
        Whether a detector has just fired.

    Returns
    -------
    str or None
        ``feasibility_changed``, ``drift``, ``threshold_moved``, ``map_moved``, ``exploration_changed`` or
        ``maximum_age``.
    """
    policies, choice = candidate.policies, candidate.choice
    if choice.feasible != (current.state != "infeasible"):
        return "feasibility_changed"
    old = policies.index(current.uncertainty_threshold)
    before = escalation_rate(candidate.estimate, policies.thresholds[1:-1], current.atom)
    move = float(policies.escalation_rate[choice.index] - before[old])
    if drifted and abs(move) >= _DRIFT_SHARE * constants.move_least:
        return "drift"
    if abs(move) > constants.move_least:
        return "threshold_moved"
    if map_moved > constants.map_move_least:
        return "map_moved"
    if candidate.exploration != current.exploration_probability:
        return "exploration_changed"
    return "maximum_age" if age_s >= constants.maximum_age_s else None
