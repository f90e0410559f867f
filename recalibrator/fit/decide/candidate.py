"""What a version made now would rest on, to which each part of a workload adds; and whether to publish it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from recalibrator.fit.codec import Floats
from recalibrator.fit.data.label_table import Change, LabelTable
from recalibrator.fit.data.traffic_window import TrafficWindow
from recalibrator.fit.decide.threshold import (
    Affordable,
    Choice,
    Policies,
    atom_of,
    choose,
    choose_for,
    escalation_rate,
    safety_of_few,
    weigh,
)
from recalibrator.fit.estimate.calibration_map import MapFitter
from recalibrator.fit.estimate.estimate import Circumstances, Estimate, Support, estimate_outcomes
from recalibrator.fit.method_constants import MethodConstants
from schemas.calibration import FIELD_PREFIX, QUALITY, Atom, BudgetStanding, CalibrationVersion, LabelShares
from schemas.costs import ModelCosts
from schemas.labelled import LabelledExample
from schemas.settings import WorkloadSettings
from schemas.traffic import TrafficSummary

_LEVELS = 40
"""Of the keep-probability of an atom: a 40th of it is the least that is escalated for."""


class FieldWeights(NamedTuple):
    """One field's policies, for its own target, and the evidence behind them."""

    policies: Policies
    support: Support


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a version made now would rest on: the estimate, the exploration, all policies, and the one chosen.

    ``safety`` is the margin of the choice, in standard errors. ``fields`` holds the same for each field with a target
    of its own: its evidence, and the policies weighed for it. ``atom`` is what the policies cut by draw, if anything;
    ``affordable`` and ``budget`` are of a target with a budget, ``label_shares`` of one of labels.
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
    label_shares: LabelShares | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a workload now; ``current`` is in force, and ``costs`` are of one call, where known."""

    settings: WorkloadSettings
    constants: MethodConstants
    labels: LabelTable
    traffic: TrafficWindow
    map_fitter: MapFitter
    circumstances: Circumstances
    current: CalibrationVersion | None
    costs: ModelCosts | None

    @property
    def exploration(self) -> float:
        """The exploration probability of a version made now.

        Exploration is paid with every query and needed where outcomes have changed: there the large model's answers
        below the threshold must be learnt again. While nothing changes, labels that age slowly still show them. Of a
        large model that fails nothing is learnt, and it needs no more calls.
        """
        most = self.settings.sampling.exploration_probability
        is_at_rest = self.circumstances.is_quiet or self.traffic.large_failures.is_out
        explored = most * self.constants.quiet_exploration if is_at_rest else most
        if self.settings.labels is None:
            return explored
        # What is explored must be labelled.
        return min(explored, *(self.settings if self.current is None else self.current).label_shares)

    def weigh(self, labels: LabelTable, target: float) -> tuple[Estimate, Policies]:
        """Estimate outcomes from these labels, and weigh all thresholds by them."""
        estimate = estimate_outcomes(labels, self.traffic, self.map_fitter, self.circumstances, self.constants)
        return estimate, weigh(estimate, labels.grid.edges, target, self.exploration)


class Part:
    """One option of a workload. It takes events, adds to a candidate and to the status; by default nothing of it.

    Its state is what it marks as :data:`~recalibrator.fit.codec.Kept`.
    """

    def take_label(self, example: LabelledExample, change: Change | None) -> None:
        """Take a label or verdict in; ``change`` is the label's outcome in the label table."""

    def take_traffic(self, summary: TrafficSummary) -> None:
        """Take a summary of traffic in."""

    def contribute(self, candidate: Candidate, view: View) -> Candidate | None:
        """Return the candidate with what this option says of it."""

    def published(self, version: int) -> None:
        """Note that a fitted version of this number is in force."""

    def status(self, view: View, policies: Policies | None) -> dict[str, Any] | None:
        """Return its part of the status; ``policies`` are those expected now, where labels suffice to quote them."""


class FieldTargets(Part):
    """Fields with a target of their own: all thresholds are weighed for each as for all fields together."""

    def contribute(self, candidate: Candidate, view: View) -> Candidate:
        """Add what each field's labels show."""
        found = {}
        for name, target in view.settings.target.fields.items():
            known, policies = view.weigh(view.labels.of_field(name, target), target)
            found[name] = FieldWeights(policies, known.support)
        return replace(candidate, fields=found)


def _chosen(candidate: Candidate, view: View) -> Candidate:
    """Choose a threshold for the whole target, whatever it is made of, but none that sends a failing server more work.

    While the large model fails, no version asks for more of its calls; while the small one is out, what is known of the
    mix of queries stands still, and so does the threshold.
    """
    target, policies = view.settings.target.model_copy(update={"safety": candidate.safety}), candidate.policies
    promised = {QUALITY: policies} | {FIELD_PREFIX + name: one.policies for name, one in candidate.fields.items()}
    least, traffic, in_force = view.constants.gain_least, view.traffic, view.current
    choice = choose_for(target, promised, candidate.affordable, candidate.exploration, least)
    if in_force is not None and traffic.small_failures.is_out:
        choice = replace(choice, index=policies.index(in_force.uncertainty_threshold))
    elif in_force is not None and traffic.large_failures.is_out:
        choice = replace(choice, index=max(choice.index, policies.index(in_force.uncertainty_threshold)))
    whole = replace(candidate, choice=choice)
    if not target.is_plain:
        return whole
    is_out = traffic.small_failures.is_out or traffic.large_failures.is_out
    return _drawn(whole, view.labels.grid.edges, in_force if is_out else None)


def _drawn(whole: Candidate, edges: Floats, held: CalibrationVersion | None) -> Candidate:
    """Choose the threshold and the keep-probability of an atom that together escalate least and meet the target.

    Servers that report probability 1 for every token give all their answers u = 0. Keeping all of these misses the
    target, and escalating all of them pays for far more than it takes to meet it. ``whole`` keeps or escalates an atom
    as a whole; it stays where nothing that cuts one meets the target at less escalation. While a server is out,
    ``held`` cuts as it did, at the threshold of ``whole``.
    """
    estimate, exploration, target = whole.estimate, whole.exploration, whole.policies.target
    if held is not None:
        kept = held.atom
        if kept is None:
            return whole
        return replace(whole, policies=weigh(estimate, edges, target, exploration, kept), atom=kept)
    best, atom = whole, atom_of(estimate.traffic, edges)
    if atom is None or not best.choice.feasible:
        return best
    least = float(best.policies.escalation_rate[best.choice.index])
    for level in range(_LEVELS):
        cut = atom.model_copy(update={"keep_probability": level / _LEVELS})
        policies = weigh(estimate, edges, target, exploration, cut)
        choice = choose(policies, whole.safety)
        secured = policies.value[choice.index] - whole.safety * policies.error[choice.index]
        rate = float(policies.escalation_rate[choice.index])
        # What escalates the atom as a whole cuts nothing.
        if secured >= 0.0 and rate < least and policies.thresholds[choice.index] >= atom.most:
            best, least = replace(whole, policies=policies, choice=choice, atom=cut), rate
    return best


def evaluate(view: View, parts: dict[str, Part]) -> Candidate:
    """Estimate and weigh everything as it stands, without deciding anything."""
    estimate, policies = view.weigh(view.labels, view.labels.target)
    safety = safety_of_few(view.settings.target.safety, view.labels.counting)
    candidate = Candidate(estimate, view.exploration, policies, Choice(0, feasible=False), safety)
    for part in parts.values():
        candidate = part.contribute(candidate, view) or candidate
    return _chosen(candidate, view)


def reason_to_publish(
    current: CalibrationVersion,
    candidate: Candidate,
    constants: MethodConstants,
    *,
    age_s: float,
    drifted: bool,
) -> str | None:
    """Return the trigger of a new version, or None to leave the one in force.

    A publication reaches all routers within tens of milliseconds and costs next to nothing, so that only moves too
    small to matter are kept back. Waiting for those beyond their noise was measured to cost more than it saves.
    ``age_s`` is event time since ``current``; ``drifted``: a detector has just fired.
    """
    policies, choice = candidate.policies, candidate.choice
    if choice.feasible != (current.state != "infeasible"):
        return "feasibility_changed"
    old = policies.index(current.uncertainty_threshold)
    before = escalation_rate(candidate.estimate, policies.thresholds[1:-1], current.atom)
    move = float(policies.escalation_rate[choice.index] - before[old])
    if drifted:
        return "drift"
    if abs(move) > constants.move_least:
        return "threshold_moved"
    if candidate.exploration != current.exploration_probability:
        return "exploration_changed"
    aged = "maximum_age" if age_s >= constants.maximum_age_s else None
    return "label_shares_changed" if candidate.label_shares not in (None, current.label_shares) else aged
