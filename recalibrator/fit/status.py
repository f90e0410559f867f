"""The status of a workload: one word, one sentence and the numbers behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.change_monitor import ChangeMonitor
from recalibrator.fit.data.label_columns import ROUTED_US, STANDING
from recalibrator.fit.data.label_table import Change, LabelTable
from recalibrator.fit.data.prequential import calibration_error, label_delay, served_per_field
from recalibrator.fit.data.traffic_window import COUNT, TrafficWindow
from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.drift.handoff_watch import HandoffWatch
from recalibrator.fit.estimate.estimate import Support
from recalibrator.fit.label_quality.crowd import details as label_details
from recalibrator.fit.label_quality.crowd import sentence as label_sentence
from recalibrator.fit.method_constants import MethodConstants
from recalibrator.fit.publish.evidence import costs, frontier, micro_f1_interval, uncertainty_histogram
from recalibrator.fit.publish.trial import Trials
from schemas.calibration import Z95, CalibrationVersion, Holds, Interval, TargetStanding
from schemas.costs import CostRate
from schemas.errors import one_line
from schemas.event import DEFAULT_SIGNAL, MAX_INTEGER, from_us
from schemas.settings import WorkloadSettings
from schemas.status import (
    CommandOutcome,
    CostQualityCurve,
    DriftState,
    LabelStatus,
    OutageStatus,
    Saving,
    SilentSide,
    WorkloadState,
    WorkloadStatus,
)
from schemas.target_words import estimated, is_held, of_budget, of_cap, of_fields

_LEAST_LABELS_TO_QUOTE = 50
_LABELS_OF_RATE = 500
_SECONDS_PER_HOUR = 3600.0
_KEPT_COMMANDS = 8


@dataclass(slots=True)
class Counters:
    """What has come in so far."""

    added: int = 0
    corrected: int = 0
    withdrawn: int = 0
    duplicate: int = 0
    overruled: int = 0
    too_late: int = 0
    unrequested: int = 0
    requested_since_label: float = 0.0
    last_command: str | None = None
    of_other_signal: int = 0
    commands: list[dict[str, Any]] = field(default_factory=list)
    of_other_handoff: int = 0
    of_other_basis: int = 0

    def count(self, change: Change, requested: bool) -> None:
        """Count one labelled example by what became of it."""
        if change == "added":
            if requested:
                self.added += 1
                self.requested_since_label = 0.0
            else:
                self.unrequested += 1
        elif change == "corrected":
            self.corrected += 1
        elif change == "withdrawn":
            self.withdrawn += 1
        elif change == "overruled":
            self.overruled += 1
        elif change == "duplicate":
            self.duplicate += 1
        else:
            self.too_late += 1

    def details(self) -> dict[str, JsonValue]:
        """Return what has no place of its own in the status."""
        return {
            "labels_corrected": self.corrected,
            "labels_withdrawn": self.withdrawn,
            "labels_duplicate": self.duplicate,
            "labels_overruled": self.overruled,
            "labels_too_late": self.too_late,
            "labels_unrequested": self.unrequested,
            "last_command": self.last_command,
            **({"labels_of_other_signal": self.of_other_signal} if self.of_other_signal else {}),
            **({"labels_of_other_handoff": self.of_other_handoff} if self.of_other_handoff else {}),
            **({"labels_of_other_basis": self.of_other_basis} if self.of_other_basis else {}),
        }

    def on_command(self, outcome: CommandOutcome) -> None:
        """Keep what became of a command, among the latest."""
        self.last_command = outcome.note
        self.commands = [*self.commands, outcome.model_dump(mode="json")][-_KEPT_COMMANDS:]

    def on_traffic(self, labels_requested: float) -> None:
        """Count labels asked for."""
        self.requested_since_label += labels_requested


class WorkloadFacts(NamedTuple):
    """What the fold knows of a workload beside its labels, its traffic and their changes."""

    settings: WorkloadSettings
    constants: MethodConstants
    current: CalibrationVersion | None
    holds: Holds
    counters: Counters
    trials: Trials
    handoff: HandoffWatch
    now_us: int
    inherited: int | None
    silent_side: SilentSide | None = None
    standing: TargetStanding | None = None


def workload_status(
    facts: WorkloadFacts,
    support: Support | None,
    policies: Policies | None,
    labels: LabelTable,
    traffic: TrafficWindow,
    monitor: ChangeMonitor,
) -> WorkloadStatus:
    """Put the status together; micro-F1 is that of the version in force, with a 95 % interval."""
    settings, current, counters = facts.settings, facts.current, facts.counters
    needed, half_life = facts.constants.support, facts.constants.estimate.decay.half_life_fast
    trust = monitor.label_quality
    effective = 0.0 if support is None else support.effective_labels
    stale = counters.requested_since_label >= needed.stale_requests
    suspected = not trust.is_trusting or (monitor.drift.labels_suspected and trust.is_unanswered)
    state = _state(facts, effective, suspected=suspected, stale=stale)
    quality = _quality(current, support, policies)
    said = _sentence(state, facts, quality, effective) or label_sentence(trust, labels.slipped)
    remarks = _cut(facts, traffic) + _decided(facts) + monitor.labelers.sentence(labels) + facts.handoff.sentence()
    known: DriftState | None = "insufficient_labels" if effective < needed.minimum_labels else None
    return WorkloadStatus(
        workload=settings.name,
        state=state,
        sentence=_during(outage := _outage(traffic)) + said + remarks,
        **_in_force(current),
        target=settings.target,
        micro_f1=quality,
        per_field=served_per_field(labels, half_life),
        escalation_rate=traffic.escalation_rate,
        cost=(cost := _cost(settings, traffic)),
        labels=_labels(labels, traffic, counters, effective),
        drift=monitor.drift.status("stale" if stale else known),
        calibration_error=calibration_error(labels, half_life),
        queries=min(MAX_INTEGER, int(traffic.total["queries"])),
        updated_at=from_us(facts.now_us) if facts.now_us else None,
        details=counters.details() | _details(settings, labels, monitor, traffic),
        saving=_saving(cost),
        uncertainty=uncertainty_histogram(traffic.counts[COUNT].astype(np.float64), traffic.grid.edges),
        frontier=None if policies is None or quality is None else _frontier(settings, current, policies, traffic),
        trial=facts.trials.status(current, None if quality is None else policies, costs(settings, traffic)),
        outage=outage,
        commands=tuple(CommandOutcome.model_validate(one) for one in counters.commands),
        handoff=facts.handoff.status(),
        standing=facts.standing,
    )


def _details(
    settings: WorkloadSettings, labels: LabelTable, monitor: ChangeMonitor, traffic: TrafficWindow
) -> dict[str, JsonValue]:
    return {
        "label_audit": label_details(monitor.label_quality, labels),
        "labelers_set_aside": monitor.labelers.details(labels),
        **_traffic(traffic),
        **({} if settings.uncertainty == DEFAULT_SIGNAL else {"uncertainty_signal": settings.uncertainty}),
    }


def _in_force(current: CalibrationVersion | None) -> dict[str, Any]:
    """Return what the status says of the version in force."""
    if current is None:
        return {}
    return {
        "calibration_version": current.version,
        "uncertainty_threshold": current.uncertainty_threshold,
        "threshold": current.threshold,
    }


def _outage(traffic: TrafficWindow) -> OutageStatus | None:
    small, large = traffic.small_failures, traffic.large_failures
    if not (small.is_out or large.is_out):
        return None
    return OutageStatus(small_failing=small.recent, large_failing=large.recent)


def _during(outage: OutageStatus | None) -> str:
    """Say first that a model server fails, whatever else there is to say."""
    if outage is None:
        return ""
    if outage.small_failing > outage.large_failing:
        return (
            f"The small model fails on {outage.small_failing:.0%} of recent queries, which the large model answers: "
            "the threshold stands still. "
        )
    return (
        f"The large model fails on {outage.large_failing:.0%} of its recent calls, so that small answers are served: "
        "no new version asks for more of its calls. "
    )


def _quality(current: CalibrationVersion | None, support: Support | None, policies: Policies | None) -> Interval | None:
    """Return the micro-F1 of the version in force; nothing is quoted on a handful of labels."""
    if policies is None or support is None or support.labels < _LEAST_LABELS_TO_QUOTE:
        return None
    index = 0 if current is None else policies.index(current.uncertainty_threshold)
    return micro_f1_interval(policies, index, Z95)


def _state(facts: WorkloadFacts, effective: float, *, suspected: bool, stale: bool) -> WorkloadState:
    current, holds = facts.current, facts.holds
    rules: tuple[tuple[bool, WorkloadState], ...] = (
        (current is None, "cold_start"),
        ("paused" in holds, "paused"),
        ("pinned" in holds, "pinned"),
        (suspected, "bad_labels_suspected"),
        (facts.silent_side is not None, "labels_one_sided"),
        (current is not None and current.state == "infeasible", "infeasible"),
        (effective < facts.constants.support.minimum_labels, "label_starved"),
        (stale, "stale"),
    )
    return next((state for applies, state in rules if applies), "active")


def _labels(labels: LabelTable, traffic: TrafficWindow, counters: Counters, effective: float) -> LabelStatus:
    """Count labels asked for and got; pending are those asked for since traffic was first seen and not yet in."""
    requested = min(MAX_INTEGER, int(traffic.total["labels_requested"]))
    answered = requested
    if traffic.first_us is not None:
        answered = labels.labels_since(traffic.first_us)
    return LabelStatus(
        since=None if traffic.first_us is None else from_us(traffic.first_us),
        requested=requested,
        received=counters.added,
        effective=effective,
        pending=max(0, requested - answered),
        delay_s=label_delay(labels),
        per_hour=_labels_per_hour(labels),
        requested_share=_share(traffic.recent["labels_requested"], traffic.recent["queries"]),
    )


def _labels_per_hour(labels: LabelTable) -> float | None:
    """Return how many labels an hour of routed queries has brought lately; None where they share one time."""
    table = labels.table
    routed_us = table[table[:, STANDING] > 0.0, ROUTED_US]
    latest = np.sort(routed_us)[-_LABELS_OF_RATE:]
    span_s = float(latest[-1] - latest[0]) / 1e6 if len(latest) else 0.0
    return (len(latest) - 1) / span_s * _SECONDS_PER_HOUR if span_s > 0.0 else None


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0.0 else None


def _frontier(
    settings: WorkloadSettings, current: CalibrationVersion | None, policies: Policies, traffic: TrafficWindow
) -> CostQualityCurve:
    chosen = None if current is None else policies.index(current.uncertainty_threshold)
    sampling = settings.sampling if current is None else current
    return frontier(policies, chosen, costs(settings, traffic), sampling.exploration_probability)


def _cost(settings: WorkloadSettings, traffic: TrafficWindow) -> CostRate | None:
    """Return the mean costs of recent queries as the routers have counted them."""
    model_costs, queries = costs(settings, traffic), traffic.recent["queries"]
    if model_costs is None or not queries:
        return None
    return CostRate(
        sequential=max(0.0, traffic.recent["cost_sequential"] / queries),
        paper=max(0.0, traffic.recent["cost_paper"] / queries),
        large_only=model_costs.alone,
    )


def _traffic(traffic: TrafficWindow) -> dict[str, JsonValue]:
    """Return whose answers were served so far, and the span of escalation, costs and saving: means of late queries."""
    begins_us = traffic.begins_us
    since = None if begins_us is None else from_us(begins_us).isoformat()
    window: dict[str, JsonValue] = {"queries": int(traffic.recent["queries"]), "since": since}
    return {"traffic_window": window, "served": traffic.served()}


def _saving(cost: CostRate | None) -> Saving | None:
    if cost is None or cost.large_only <= 0.0:
        return None
    return Saving(sequential=1.0 - cost.sequential / cost.large_only, paper=1.0 - cost.paper / cost.large_only)


def _sentence(state: WorkloadState, facts: WorkloadFacts, quality: Interval | None, effective: float) -> str:
    """Say in one plain sentence how it stands; nothing where labels are suspected, whose own sentence follows."""
    current, minimum = facts.current, facts.constants.support.minimum_labels
    goal = str(facts.settings.target)
    now = "not yet known" if quality is None else estimated(quality)
    number = 0 if current is None else current.version
    need = max(0, round(minimum - effective))
    first = "new versions are paused" if "paused" in facts.holds else f"a first version needs about {need} labels more"
    asked = round(facts.counters.requested_since_label)
    sentences = {
        "cold_start": f"Both models answer every query: {first}.",
        "paused": f"New versions are paused; version {number} decides, with an estimated micro-F1 of {now}.",
        "pinned": f"Version {number} is pinned, with an estimated micro-F1 of {now} for a target of {goal}.",
        "infeasible": f"No threshold {_short_of(goal, facts)}, for an estimated {now}.",
        "label_starved": f"{effective:.0f} effective labels are too few to move the threshold; {minimum:g} are needed.",
        "labels_one_sided": _one_sided(facts.silent_side, number, now),
        "stale": f"No label has come in for the last {asked} requests; version {number} stays as it is.",
        "active": _held(facts, quality, number, now),
    }
    return sentences.get(state, "")


def _one_sided(silent: SilentSide | None, number: int, now: str) -> str:
    """Say what labels of one side cannot tell."""
    where = "escalated" if silent == "kept" else "kept"
    return (
        f"Labels come from {where} queries only: nothing shows how good {silent} answers are. Ask people for labels of "
        f"all queries asked for; meanwhile version {number} is held to a wider margin, for an estimated {now}."
    )


def _cut(facts: WorkloadFacts, traffic: TrafficWindow) -> str:
    """Say that u tells nothing of many queries, and which server to look at."""
    atom = None if facts.current is None else facts.current.atom
    if atom is None:
        return ""
    small, counted = facts.settings.small, traffic.counts[COUNT]
    server = "the small model's server" if small is None else f"the server at {small.public_url}"
    share = counted[traffic.grid.index(atom.most)] / max(float(counted.sum()), 1.0)
    return (
        f" {share:.0%} of recent queries have one u, {max(0.0, atom.above):g} to {atom.most:.1g}, which tells nothing "
        f"of them: does {server} give every token probability 1 (`ucci-stream doctor`)? "
        f"A drawn {atom.keep_probability:.0%} of them is kept."
    )


def _decided(facts: WorkloadFacts) -> str:
    """Say who has decided what holds, and where the version in force comes from if nothing here tells."""
    said = ""
    for name, hold in facts.holds.items():
        by = f"{hold.issued_by} ({hold.action}{hold.reason and ': '}{hold.reason})"
        said += f" {name.capitalize()} since {hold.issued_at:%Y-%m-%d %H:%M} UTC by {one_line(by)}."
    if facts.inherited is not None:
        said += f" Version {facts.inherited} was read from the calibration topic: nothing is left of what led to it."
    return said


def _short_of(goal: str, facts: WorkloadFacts) -> str:
    if facts.settings.target.cost is not None:
        return f"keeps to {goal}: nothing escalates that need not"
    return f"reaches {goal}: queries escalate where it helps"


def _held(facts: WorkloadFacts, quality: Interval | None, number: int, now: str) -> str:
    """Say how the version in force stands to the target, and what a cap, a budget or a field has to do with it."""
    target, standing = facts.settings.target, facts.standing
    if target.cost is not None:
        remarks = (of_budget(target, standing), of_cap(target, quality, standing))
        said = "; ".join(remark for remark in remarks if remark)
        return f"Version {number} buys an estimated micro-F1 of {now}: {said}."
    holding = is_held(target, quality, standing)
    remarks = (of_fields(target, standing), of_cap(target, quality, standing))
    said = "".join(f"; {remark}" for remark in remarks if remark)
    return f"Version {number} {'holds' if holding else 'is below'} its target of {target}: estimated {now}{said}."
