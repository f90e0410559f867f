"""The status of a workload: one word, the numbers behind it, and the sentence that the headlines' rules make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.change_monitor import ChangeMonitor
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import (
    calibration_error,
    label_delay,
    large_worse_since,
    latest_by_labeler,
    served_per_field,
    wrong_around,
)
from recalibrator.fit.data.traffic_window import COUNT, TrafficWindow
from recalibrator.fit.decide.candidate import Part, View
from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.estimate.estimate import EXPECTED_LEAST, Support
from recalibrator.fit.label_quality.crowd import details as label_details
from recalibrator.fit.publish.evidence import frontier, micro_f1_interval, uncertainty_histogram
from recalibrator.fit.publish.versions import VersionRegistry
from recalibrator.headlines.facts import Facts
from recalibrator.headlines.rules import headline
from schemas.calibration import Z95, Interval, TargetStanding
from schemas.costs import CostRate
from schemas.errors import one_line
from schemas.event import DEFAULT_SIGNAL, MAX_INTEGER, from_us
from schemas.status import (
    CommandOutcome,
    CostQualityCurve,
    LabelPlan,
    LabelStatus,
    OutageStatus,
    Saving,
    WorkloadState,
    WorkloadStatus,
)

_LEAST_LABELS_TO_QUOTE = 50
_LABELS_OF_RATE = 500
_SECONDS_PER_HOUR = 3600.0
_KEPT_COMMANDS = 8
#: Labels are late after so many times as long as nine of ten take, and so many seconds.
_LATE, _LATE_S = 4.0, 30.0


_COUNTED = ("corrected", "withdrawn", "duplicate", "overruled", "too_late", "unrequested")
_UNLIKE = ("of_other_signal", "of_other_handoff", "of_other_basis")
"""Labels made otherwise than is configured now; shown where there are any."""


@dataclass(slots=True)
class Counters:
    """What has come in so far: labels by outcome, and the latest commands."""

    labels: dict[str, int] = field(default_factory=dict)
    requested_since_label: float = 0.0
    #: When the latest label came, by the events' time.
    label_us: int | None = None
    last_command: str | None = None
    commands: list[dict[str, Any]] = field(default_factory=list)

    def count(self, what: str, now_us: int = 0) -> None:
        """Count one label."""
        self.labels[what] = self.labels.get(what, 0) + 1
        if what == "added":
            self.requested_since_label, self.label_us = 0.0, now_us

    def details(self) -> dict[str, JsonValue]:
        """Return what has no place of its own in the status."""
        return {
            **{f"labels_{name}": self.labels.get(name, 0) for name in _COUNTED},
            "last_command": self.last_command,
            **{f"labels_{name}": self.labels[name] for name in _UNLIKE if name in self.labels},
        }

    def on_command(self, outcome: CommandOutcome) -> None:
        """Keep the outcome of a command, among the latest."""
        self.last_command = outcome.note
        self.commands = [*self.commands, outcome.model_dump(mode="json")][-_KEPT_COMMANDS:]


class WorkloadFacts(NamedTuple):
    """What the fold knows of a workload; support and policies are those expected of what is in force."""

    view: View
    parts: Mapping[str, Part]
    published: VersionRegistry
    monitor: ChangeMonitor
    counters: Counters
    now_us: int
    remarks: str = ""
    support: Support | None = None
    policies: Policies | None = None
    standing: TargetStanding | None = None
    plan: LabelPlan | None = None

    @property
    def effective(self) -> float:
        """Effective labels."""
        return 0.0 if self.support is None else self.support.effective_labels

    @property
    def quality(self) -> Interval | None:
        """The micro-F1 of the version in force, with a 95% interval; nothing is quoted on a handful of labels."""
        if self.policies is None or self.support is None or self.support.labels < _LEAST_LABELS_TO_QUOTE:
            return None
        return micro_f1_interval(self.policies, self.policies.index(self.published.serving_threshold), Z95)

    @property
    def is_stale(self) -> bool:
        """Whether labels are asked for, and none comes: of very many, or for far longer than they take lately."""
        counters, asked = self.counters, self.counters.requested_since_label
        if asked >= self.view.constants.stale_requests:
            return True
        if counters.label_us is None:
            return False
        silent_s = (self.now_us - counters.label_us) / 1e6
        answered = counters.labels["added"] / max(1.0, self.view.traffic.total["labels_requested"])
        if silent_s < _LATE_S or asked * answered < EXPECTED_LEAST:
            return False
        usual_s = label_delay(self.view.labels).p90
        return usual_s is not None and silent_s >= _LATE * usual_s


def workload_status(facts: WorkloadFacts) -> WorkloadStatus:
    """Put the status together."""
    view, counters, monitor = facts.view, facts.counters, facts.monitor
    labels, traffic, current, quality = view.labels, view.traffic, view.current, facts.quality
    half_life, state, cost = view.constants.half_life_fast, _state(facts), _cost(view)
    failing = traffic.small_failures, traffic.large_failures
    remarks = _cut(view) + _decided(facts) + facts.remarks
    is_known = facts.effective >= view.constants.minimum_labels
    expected = None if quality is None else facts.policies
    found: dict[str, Any] = {"standing": facts.standing, "label_plan": facts.plan if is_known else None}
    if current is not None:
        found |= {"calibration_version": current.version, "threshold": current.threshold}
        found["uncertainty_threshold"] = current.uncertainty_threshold
    if any(one.is_out for one in failing):
        found["outage"] = OutageStatus(small_failing=failing[0].recent, large_failing=failing[1].recent)
    if cost is not None and cost.large_only > 0.0:
        found["saving"] = Saving(
            sequential=1.0 - cost.sequential / cost.large_only, paper=1.0 - cost.paper / cost.large_only
        )
    for part in facts.parts.values():
        found |= part.status(view, expected) or {}
    made = WorkloadStatus(
        workload=view.settings.name,
        state=state,
        sentence="",
        target=view.settings.target,
        micro_f1=quality,
        per_field=served_per_field(labels, half_life),
        escalation_rate=traffic.escalation_rate,
        cost=cost,
        labels=_labels(labels, traffic, counters, facts.effective),
        drift=monitor.drift.status("stale" if facts.is_stale else None if is_known else "insufficient_labels"),
        calibration_error=calibration_error(labels, half_life),
        queries=min(MAX_INTEGER, int(traffic.total["queries"])),
        updated_at=from_us(facts.now_us) if facts.now_us else None,
        details=counters.details() | _details(facts, state),
        uncertainty=uncertainty_histogram(traffic.counts[COUNT].astype(np.float64), traffic.grid.edges),
        frontier=None if expected is None else _frontier(view, expected),
        large_only=facts.published.large_only,
        commands=tuple(CommandOutcome.model_validate(one) for one in counters.commands),
        **found,
    )
    said = headline(made, Facts(from_us(facts.now_us), workload=view.settings)).sentence
    return made.model_copy(update={"sentence": said + remarks})


def _details(facts: WorkloadFacts, state: WorkloadState) -> dict[str, JsonValue]:
    view, monitor = facts.view, facts.monitor
    labels, traffic = view.labels, view.traffic
    found: dict[str, JsonValue] = {}
    if state == "labels_one_sided":
        found["silent_side"] = view.circumstances.silent_side
    if state == "infeasible" and facts.published.unreached_us is not None:
        found["unreached_since"] = from_us(facts.published.unreached_us).isoformat()
    if state == "stale" and facts.counters.label_us is not None:
        found["last_label_at"] = from_us(facts.counters.label_us).isoformat()
    if state in ("cold_start", "label_starved"):
        found["labels_needed"] = max(0, round(view.constants.minimum_labels - facts.effective))
    for what, at_us in (("outcomes_changed", monitor.change.began_us), ("large_changed", large_worse_since(labels))):
        if at_us is not None:
            said: dict[str, JsonValue] = {name: [*shares] for name, shares in wrong_around(labels, at_us).items()}
            found[what] = {"since": from_us(at_us).isoformat(), **said}
    found["label_audit"] = label_details(monitor.label_quality, labels)
    found["labelers_set_aside"] = monitor.labelers.details(labels)
    if monitor.labelers.believed:
        found["labelers_believed"] = [*sorted(monitor.labelers.believed)]
    found["labelers_latest"] = {name: [*said] for name, said in latest_by_labeler(labels).items()}
    # The span of escalation, costs and saving, which are recent means; whose answers were served, of all so far.
    since = None if traffic.begins_us is None else from_us(traffic.begins_us).isoformat()
    found["traffic_window"] = {"queries": int(traffic.recent["queries"]), "since": since}
    found["served"] = traffic.served()
    if view.settings.uncertainty != DEFAULT_SIGNAL:
        found["uncertainty_signal"] = view.settings.uncertainty
    return found


def _state(facts: WorkloadFacts) -> WorkloadState:
    current, holds, trust = facts.view.current, facts.published.holds, facts.monitor.label_quality
    suspected = not trust.is_trusting or (facts.monitor.drift.labels_suspected and trust.is_unanswered)
    rules: tuple[tuple[bool, WorkloadState], ...] = (
        (current is None, "cold_start"),
        ("paused" in holds, "paused"),
        ("pinned" in holds, "pinned"),
        (suspected, "bad_labels_suspected"),
        (facts.view.circumstances.silent_side is not None, "labels_one_sided"),
        (current is not None and current.state == "infeasible", "infeasible"),
        (not any(facts.view.settings.label_shares), "label_free"),
        (facts.effective < facts.view.constants.minimum_labels, "label_starved"),
        (facts.is_stale, "stale"),
    )
    return next((state for applies, state in rules if applies), "active")


def _labels(labels: LabelTable, traffic: TrafficWindow, counters: Counters, effective: float) -> LabelStatus:
    """Count labels asked for and got; pending are those asked for since traffic was first seen and not yet in."""
    requested = min(MAX_INTEGER, int(traffic.total["labels_requested"]))
    first_us, recent = traffic.first_us, traffic.recent
    share = recent["labels_requested"] / recent["queries"] if recent["queries"] > 0.0 else None
    return LabelStatus(
        since=None if first_us is None else from_us(first_us),
        requested=requested,
        received=counters.labels.get("added", 0),
        effective=effective,
        pending=0 if first_us is None else max(0, requested - labels.labels_since(first_us)),
        delay_s=label_delay(labels),
        per_hour=_labels_per_hour(labels),
        requested_share=None if share is None else min(1.0, max(0.0, share)),
    )


def _labels_per_hour(labels: LabelTable) -> float | None:
    """Return how many labels an hour of routed queries has brought lately; None where they share one time."""
    latest = labels.by_time()[1][at.ROUTED_US, -_LABELS_OF_RATE:]
    span_s = float(latest[-1] - latest[0]) / 1e6 if len(latest) else 0.0
    return (len(latest) - 1) / span_s * _SECONDS_PER_HOUR if span_s > 0.0 else None


def _frontier(view: View, policies: Policies) -> CostQualityCurve:
    current = view.current
    chosen = None if current is None else policies.index(current.uncertainty_threshold)
    sampling = view.settings.sampling if current is None else current
    return frontier(policies, chosen, view.costs, sampling.exploration_probability)


def _cost(view: View) -> CostRate | None:
    """Return the mean costs of recent queries as the routers have counted them."""
    recent = view.traffic.recent
    if view.costs is None or not recent["queries"]:
        return None
    sequential, paper = (max(0.0, recent[name] / recent["queries"]) for name in ("cost_sequential", "cost_paper"))
    return CostRate(sequential=sequential, paper=paper, large_only=view.costs.alone)


def _cut(view: View) -> str:
    """Say that u tells nothing of many queries, and which server to look at."""
    atom = None if view.current is None else view.current.atom
    if atom is None:
        return ""
    small, counted = view.settings.small, view.traffic.counts[COUNT]
    server = "the small model's server" if small is None else f"the server at {small.public_url}"
    share = counted[view.traffic.grid.index(atom.most)] / max(float(counted.sum()), 1.0)
    return (
        f" {share:.0%} of recent queries have one u, {max(0.0, atom.above):g} to {atom.most:.1g}, which tells nothing "
        f"of them: does {server} give every token probability 1 (`ucci-stream doctor`)? "
        f"A drawn {atom.keep_probability:.0%} of them is kept."
    )


def _decided(facts: WorkloadFacts) -> str:
    """Say who has decided what holds, and where the version in force comes from if nothing here tells."""
    said = ""
    for name, hold in facts.published.holds.items():
        by = f"{hold.issued_by} ({hold.action}{hold.reason and ': '}{hold.reason})"
        said += f" {name.capitalize()} since {hold.issued_at:%Y-%m-%d %H:%M} UTC by {one_line(by)}."
    if (inherited := facts.published.inherited) is not None:
        said += f" Version {inherited} was read from the calibration topic: nothing is left of what led to it."
    return said
