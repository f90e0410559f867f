"""How a threshold stands to a target that is more than a micro-F1: for a version's evidence, and for the status."""

from __future__ import annotations

from recalibrator.fit.decide.promise import large_rate
from recalibrator.fit.decide.publish_policy import Candidate
from recalibrator.fit.publish.evidence import micro_f1_interval
from schemas.calibration import BudgetStanding, Target, TargetStanding


def target_standing(
    target: Target, candidate: Candidate, index: int, errors: float, budget: BudgetStanding | None
) -> TargetStanding | None:
    """Return how one policy stands to the target; None where that is a micro-F1 alone.

    Parameters
    ----------
    candidate : Candidate
        By whose choice it is known what binds.
    index : int
        Of the policy: the one chosen, or the one in force.
    errors : float
        Half the width of the fields' intervals, in standard errors.
    """
    if target.is_plain:
        return None
    wanted = candidate.choice.wanted
    rates = large_rate(candidate.policies, candidate.exploration)
    return TargetStanding(
        binds=candidate.choice.binds,
        wanted_escalation=None if wanted is None else min(1.0, float(rates[wanted])),
        fields={name: micro_f1_interval(one.policies, index, errors) for name, one in candidate.fields.items()},
        budget=budget,
    )
