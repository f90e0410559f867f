"""Whether the large model answers alone, since the cascade would cost more: who begins that, and when it ends. Pure."""

from __future__ import annotations

from recalibrator.fit.decide.candidate import Candidate
from schemas.calibration import CalibrationVersion, LargeOnly
from schemas.command import Command
from schemas.costs import ModelCosts, expected_cost

_ENDING = frozenset({"end_large_only", "bootstrap", "activate", "promote"})


def saved(candidate: Candidate, costs: ModelCosts | None) -> float | None:
    """Return what a query of the cascade is expected to cost less than the large model alone; None if not known."""
    if costs is None:
        return None
    rate = float(candidate.policies.escalation_rate[candidate.choice.index])
    cost = expected_cost(costs, rate, candidate.exploration)
    return cost.large_only - cost.sequential


def is_dear(candidate: Candidate, costs: ModelCosts | None, share: float) -> bool:
    """Whether the cascade costs more than the large model alone, with the small one asked of a share of queries.

    It has to cost less than without that share before it answers again: between the two, nothing changes.
    """
    saving = saved(candidate, costs)
    return costs is not None and saving is not None and saving <= -share * costs.small


def refusal(command: Command, current: CalibrationVersion | None, share: float, saving: float | None) -> str | None:
    """Return why the large model shall not answer alone, where that is so; ``saving`` is that of the cascade."""
    if current is None:
        return "there is no version in force yet, and the large model's answers are served anyway"
    if current.target.max_escalation is not None:
        return "the target caps what the large model may answer (max_escalation)"
    if command.until is not None:
        return None if command.until > command.issued_at else "the time until when lies in the past"
    if share == 0.0:
        return "the small model would be asked of no query, so that nothing shows when the cascade pays: say until when"
    if saving is None or saving >= 0.0:
        known = "it is not known what the cascade costs" if saving is None else f"the cascade costs {saving:.3g} less"
        return f"{known}, so that this would end at once: say until when"
    return None


def after_command(command: Command, before: LargeOnly | None, share: float) -> LargeOnly | None:
    """Return what is so after a command that was not refused."""
    if command.action in _ENDING:
        return None
    if command.action != "large_only":
        return before
    return LargeOnly(small_probability=share, since=command.issued_at, until=command.until, issued_by=command.issued_by)
