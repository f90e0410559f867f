"""The fold of one workload: publishes calibration versions from labelled examples, traffic summaries and commands.

Time comes from the events alone, by the clocks of those who route and command: labelers' clocks are not trusted with
it. The same events in the same order give byte-identical versions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import inf
from typing import Any, Self

import numpy as np
from pydantic import JsonValue

from recalibrator.decoding import Observation
from recalibrator.fit.arrays import Floats
from recalibrator.fit.change_monitor import NO_REACTION, ChangeMonitor
from recalibrator.fit.data.label_sides import silent_side
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import calibration_error
from recalibrator.fit.data.traffic_window import PAIRS, TrafficWindow
from recalibrator.fit.decide.atoms import Drawn, choose_drawn
from recalibrator.fit.decide.pacer import Pacer
from recalibrator.fit.decide.promise import Affordable, choose_for, reference
from recalibrator.fit.decide.publish_policy import (
    Candidate,
    FieldWeights,
    exploration_probability,
    reason_to_publish,
)
from recalibrator.fit.decide.threshold import Choice, Policies, safety_of_few, weigh
from recalibrator.fit.drift.handoff_watch import HandoffWatch
from recalibrator.fit.estimate.calibration_map import map_fitter
from recalibrator.fit.estimate.estimate import Circumstances, Estimate, degraded, estimate_outcomes
from recalibrator.fit.label_quality.crowd import details as label_details
from recalibrator.fit.method_constants import DEFAULT, MethodConstants
from recalibrator.fit.publish.evidence import costs, evidence
from recalibrator.fit.publish.standing import target_standing
from recalibrator.fit.publish.trial import Trials
from recalibrator.fit.publish.versions import PINNED, Content, VersionRegistry, content_of, interpret
from recalibrator.fit.status import Counters, WorkloadFacts, workload_status
from recalibrator.grid import Grid
from schemas.basis import is_of_basis
from schemas.calibration import (
    FIELD_PREFIX,
    HIGHEST_VERSION,
    QUALITY,
    Z95,
    CalibrationState,
    CalibrationVersion,
    Hold,
    TargetStanding,
)
from schemas.command import Command
from schemas.event import to_us
from schemas.labelled import LabelledExample
from schemas.made_for import made_for, misfit, outdated
from schemas.settings import WorkloadSettings
from schemas.status import CommandOutcome, SilentSide, WorkloadStatus
from schemas.traffic import TrafficSummary, VersionTraffic
from schemas.trial import CalibrationTrial

_SNAPSHOT_FORMAT = 6
_DEFAULT_MAP = "isotonic"


def _alike(summary: TrafficSummary, signal: str, mark: str | None) -> TrafficSummary | None:
    """Return what a summary says about u as one signal measures it, of answers that rest on what is configured.

    None where it says nothing of the kind.
    """
    parts = tuple(part for part in summary.versions if part.signal == signal and is_of_basis(part.basis, mark))
    if len(parts) == len(summary.versions):
        return summary
    return summary.model_copy(update={"versions": parts}) if parts else None


def _under_handoff(summary: TrafficSummary, handoff: str | None) -> TrafficSummary:
    """Return what a summary says while this is handed over.

    The small model answers alike under all handoffs, so that u counts; what the large one answers does not.
    """
    if all(part.handoff == handoff for part in summary.versions):
        return summary
    parts = (part if part.handoff == handoff else _without_pairs(part) for part in summary.versions)
    return summary.model_copy(update={"versions": tuple(parts)})


def _without_pairs(part: VersionTraffic) -> VersionTraffic:
    none = (0,) * len(part.cell)
    return part.model_copy(update={"pairs": none, "agreeing": none, "pairs_explored": none})


class Recalibrator:
    """Keeps one workload's map and threshold true.

    Parameters
    ----------
    settings : WorkloadSettings
        The ``[workloads.NAME]`` table, name included.
    constants : MethodConstants, optional
        The method's constants.

    Attributes
    ----------
    current : CalibrationVersion or None
        In force; None until there is one.

    Examples
    --------
    >>> from schemas import WorkloadSettings
    >>> core = Recalibrator(WorkloadSettings(name="w", fields=("iso",), target={"micro_f1": 0.9}))
    >>> core.current is None, core.status().state
    (True, 'cold_start')
    """

    def __init__(self, settings: WorkloadSettings, constants: MethodConstants = DEFAULT) -> None:
        self.settings, self.constants = settings, constants
        self._basis_mark = settings.basis_mark
        self._grid, window = Grid(constants.grid), constants.window
        self._traffic = TrafficWindow(self._grid, window.window_queries)
        self._handoff = HandoffWatch(settings.handoff)
        self._published = VersionRegistry(settings, window.kept_versions)
        self._published.handoff = self._handoff.in_versions
        self._learn_anew()
        self._map_fitter = map_fitter(settings.calibration_map, constants.map.map_prior_labels)
        budget = settings.target.cost
        self._pacer = None if budget is None else Pacer(budget, constants.budget)
        self._map_in_force: tuple[CalibrationVersion, Floats] | None = None
        self._trials = Trials()
        self._counters = Counters()
        self._now_us = 0
        self._queries_until_fit = self._queries_between_fits
        self._put_off = 0

    def _learn_anew(self) -> None:
        """Know no label, and nothing that was concluded from any."""
        window = self.constants.window
        self._labels = LabelTable(
            self._grid,
            reference(self.settings.target, self._published.current),
            self.settings.fields,
            window.window_labels,
            half_life=window.half_life_revisions,
            by_model=bool(self.settings.target.fields),
        )
        self._monitor = ChangeMonitor(self.settings, self.constants, self._labels, self._traffic)
        self._labels_until_fit = self.constants.refit.refit_labels_least

    @property
    def _queries_between_fits(self) -> float:
        most, pace = self.constants.refit.refit_queries, self.constants.budget.pace_queries
        return float(most if self._pacer is None else min(most, pace))

    @property
    def current(self) -> CalibrationVersion | None:
        """The version in force, or None."""
        return self._published.current

    @property
    def trial(self) -> CalibrationTrial | None:
        """The version on trial beside it, or None."""
        return self._trials.running

    @property
    def version_floor(self) -> int:
        """The number that the next version lies above."""
        return self._published.floor

    def observe(self, event: Observation) -> CalibrationVersion | None:
        """Take one event in.

        Returns
        -------
        CalibrationVersion or None
            A new version when this event brings one about.

        Raises
        ------
        ValueError
            If the event belongs to another workload.
        """
        if event.workload != self.settings.name:
            raise ValueError(f"workload: is {event.workload!r}, but this core keeps {self.settings.name!r}")
        if isinstance(event, LabelledExample):
            return self._observe_label(event) if self._is_alike(event) else None
        if isinstance(event, Command):
            return self._apply_command(event)
        alike = _alike(event, self.settings.uncertainty, self._basis_mark)
        return None if alike is None else self._observe_traffic(_under_handoff(alike, self._handoff.name))

    def _is_alike(self, example: LabelledExample) -> bool:
        """Whether u was measured, and both answers made, as they are now; counts a label of which that is not true."""
        # Values of u that were measured differently do not belong on one axis.
        if example.signal != self.settings.uncertainty:
            self._counters.of_other_signal += 1
        elif not is_of_basis(example.basis, self._basis_mark):
            self._counters.of_other_basis += 1
        elif example.handoff != self._handoff.name:
            self._counters.of_other_handoff += 1
        else:
            return True
        return False

    def raise_version_floor(self, version: int) -> None:
        """Give the next version a number above this one: the highest valid one on the calibration topic.

        One above ``HIGHEST_VERSION`` changes nothing: routers would take no version that follows it.
        """
        if version <= HIGHEST_VERSION:
            self._published.floor = max(self._published.floor, version)

    def inherit(self, version: CalibrationVersion, trial: CalibrationTrial | None) -> None:
        """Go on from the newest version on the topic and the trial beside it, unless the events have led there, too."""
        if self.current is not None and self.current.digest == version.digest:
            return
        wanted = made_for(self.settings)
        may_decide = misfit(version, wanted) is None
        may_try = may_decide and trial is not None and misfit(trial.version, wanted) is None
        self._published.inherit(version, may_decide=may_decide)
        self._trials = Trials(trial if may_try else None)
        if may_decide and version.handoff is not None and not version.handoff.active:
            self._handoff.end()
            self._published.handoff = self._handoff.in_versions
        self._labels.retarget(reference(self.settings.target, self.current))

    def _observe_label(self, example: LabelledExample) -> CalibrationVersion | None:
        routed_us = to_us(example.routed_at)
        self._now_us = max(self._now_us, routed_us)
        example = self._trials.take_label(example)
        change = self._labels.offer(example)
        self._counters.count(change, example.label_requested)
        if change in ("duplicate", "too_late") or not example.label_requested:
            return None
        standing = self._labels.standing(example.query_id)
        self._labels_until_fit -= standing.counts or change == "withdrawn"
        reaction = NO_REACTION
        if change == "added":
            reaction = self._monitor.on_label(
                example,
                standing,
                routed_us,
                self._now_us,
                may_ask=self._may_ask,
                map_labels=self._map_labels(example.calibration_version),
            )
        judged = self._monitor.compare_labelers(self._now_us)
        self._handoff.on_label(example, change)
        if self._handoff.costs_too_much and self._may_ask and self._monitor.label_quality.is_trusting:
            return self._end_handoff()
        news: str | None = reaction.news or ("labelers_judged" if judged else None)
        if reaction.refit_now or news is not None:
            return self._refit(drifted=reaction.refit_now, news=news)
        return self._refit_in_turn() if self._labels_until_fit <= 0 else None

    def _map_labels(self, version: int | None) -> float:
        """Return the effective labels behind a version's map; infinite where it is not known, or does not say so."""
        former = None if version is None else self._published.find(version)
        return inf if former is None else former.evidence.effective_labels or inf

    def _observe_traffic(self, summary: TrafficSummary) -> CalibrationVersion | None:
        self._trials.take_traffic(summary)
        self._handoff.on_traffic(summary.versions)
        if self._pacer is not None:
            self._pacer.on_traffic(summary.versions)
        batch = self._traffic.add(summary)
        self._now_us = max(self._now_us, batch.last_us)
        self._counters.on_traffic(batch.sums["labels_requested"])
        self._queries_until_fit -= batch.sums["queries"]
        audits = self._published.audit_probabilities() if self._monitor.label_quality.audit is not None else {}
        if self._monitor.on_traffic(summary, batch, audits, self._now_us, may_ask=self._may_ask):
            return self._refit(drifted=True)
        return self._refit_in_turn() if self._queries_until_fit <= 0.0 or self._audit_changed else None

    @property
    def _may_ask(self) -> bool:
        """Whether an audit could be published."""
        return self.current is not None and not self._published.holds

    @property
    def _audit(self) -> float:
        """The share of pairs to audit under the next version; none while people hold a version in force."""
        if self._published.holds:
            return 0.0
        return self._monitor.label_quality.audit_probability(self.constants.audit)

    @property
    def _audit_changed(self) -> bool:
        return self._may_ask and self.current is not None and self.current.audit_probability != self._audit

    def evaluate(self) -> Candidate:
        """Estimate and weigh everything as it stands, without deciding anything."""
        current, publish = self.current, self.constants.publish
        circumstances = self._monitor.circumstances(None if current is None else current.uncertainty_threshold)
        if self._silent_side is not None:
            # What no label shows may be as far off as after a new mix, and explored queries may be looked at.
            circumstances = circumstances._replace(is_quiet=False, is_new_mix=True)
        most = self.settings.sampling.exploration_probability
        exploration = exploration_probability(most, publish, is_quiet=circumstances.is_quiet)
        estimate = estimate_outcomes(
            self._labels, self._traffic, self._map_fitter, circumstances, self.constants.estimate
        )
        policies = weigh(estimate, self._grid.edges, self._labels.target, exploration)
        fields = self._weigh_fields(circumstances, exploration)
        promised = {QUALITY: policies} | {FIELD_PREFIX + name: one.policies for name, one in fields.items()}
        safety = safety_of_few(self.settings.target.safety, self._labels.counting)
        target = self.settings.target.model_copy(update={"safety": safety})
        choice = choose_for(target, promised, self._affordable(), exploration, publish.gain_least)
        drawn = Drawn(policies, self._spare_failing(choice, policies), None)
        if target.is_plain:
            held = current if self._traffic.small_failures.is_out or self._traffic.large_failures.is_out else None
            drawn = choose_drawn(estimate, self._grid.edges, exploration, safety, drawn, held)
        return Candidate(estimate, exploration, drawn.policies, drawn.choice, safety, fields, drawn.atom)

    @property
    def _silent_side(self) -> SilentSide | None:
        threshold = None if self.current is None else self.current.uncertainty_threshold
        return silent_side(self._labels, self._traffic, self.settings.sampling, threshold)

    def _weigh_fields(self, circumstances: Circumstances, exploration: float) -> dict[str, FieldWeights]:
        """Weigh all thresholds for each field with a target of its own, as for all fields together."""
        found = {}
        for name, target in self.settings.target.fields.items():
            labels = self._labels.of_field(name, target)
            known = estimate_outcomes(labels, self._traffic, self._map_fitter, circumstances, self.constants.estimate)
            found[name] = FieldWeights(weigh(known, self._grid.edges, target, exploration), known.support)
        return found

    def _affordable(self) -> Affordable | None:
        """Return what share of queries the large model may answer within the budget; None where it is not known."""
        budget, model_costs = self.settings.target.cost, costs(self.settings, self._traffic)
        if budget is None or self._pacer is None or model_costs is None:
            return None
        now, ever = ((cost - model_costs.small) / model_costs.large for cost in (self._pacer.allowed, budget))
        return Affordable(now, ever)

    def _spare_failing(self, choice: Choice, policies: Policies) -> Choice:
        """Return the choice, or the threshold in force where the choice would send a failing server more work.

        While the large model fails, no version asks for more of its calls; while the small one is out, what is known
        of the mix of queries stands still, and so does the threshold.
        """
        if self.current is None:
            return choice
        in_force = policies.index(self.current.uncertainty_threshold)
        if self._traffic.small_failures.is_out:
            return replace(choice, index=in_force)
        return replace(choice, index=max(choice.index, in_force)) if self._traffic.large_failures.is_out else choice

    def _refit_in_turn(self) -> CalibrationVersion | None:
        """Refit as labels or queries are due, or leave it out where nothing moves and few were left out before."""
        current, refit = self.current, self.constants.refit
        if current is None or self._put_off >= refit.refits_put_off or not self._may_wait(current):
            return self._refit()
        self._put_off += 1
        if self._labels_until_fit <= 0:
            self._labels_until_fit = self._labels_between_fits(current.evidence.effective_labels)
        if self._queries_until_fit <= 0.0:
            self._queries_until_fit = self._queries_between_fits
        return None

    def _may_wait(self, current: CalibrationVersion) -> bool:
        """Whether the version in force is as good as settled, and what is known says that nothing moves."""
        if current.state != "active" or self._pacer is not None or self._audit_changed:
            return False
        if self._labels.counting < self.constants.refit.calm_labels or outdated(current, self.settings):
            return False
        most, publish = self.settings.sampling.exploration_probability, self.constants.publish
        at_rest = exploration_probability(most, publish, is_quiet=True)
        return current.exploration_probability == at_rest and self._monitor.is_calm

    def _labels_between_fits(self, effective: float) -> int:
        refit = self.constants.refit
        return min(refit.refit_labels_most, max(refit.refit_labels_least, int(refit.refit_share * effective)))

    def _refit(
        self,
        *,
        drifted: bool = False,
        commanded: str | None = None,
        news: str | None = None,
    ) -> CalibrationVersion | None:
        """Fit, and publish when there is evidence and reason enough, or when commanded."""
        refit, needed = self.constants.refit, self.constants.support
        self._queries_until_fit, self._put_off = self._queries_between_fits, 0
        if not len(self._labels):
            return None
        # A first reference that rests on a handful of labels would be contradicted by the next ones.
        is_first = self._monitor.drift.agreement is None
        if commanded is None and is_first and self._labels.counting < needed.minimum_labels:
            self._labels_until_fit = refit.refit_labels_least
            return self._emit_audit()
        candidate = self.evaluate()
        support = candidate.estimate.support
        self._labels_until_fit = self._labels_between_fits(support.effective_labels)
        if not is_first or support.effective_labels >= needed.minimum_labels:
            self._set_expectations(candidate.estimate)
        trigger = commanded or self._trigger(candidate, drifted=drifted, news=news)
        if trigger is None or support.labels < needed.minimum_bootstrap_labels or not support.pairs:
            return self._emit_audit()
        return self._publish(candidate, trigger)

    def _end_handoff(self) -> CalibrationVersion | None:
        """Have the large model answer alone from now on, at the same threshold.

        No label says how well it does so, hence what was learned is forgotten. Alone it is better, so that what was
        enough is enough.
        """
        current = self.current
        assert current is not None
        self._handoff.end()
        self._published.handoff = self._handoff.in_versions
        self._trials.end("handoff_off", self._now_us)
        loss = self._handoff.loss
        details = {"handoff_loss": None if loss is None else loss.model_dump()}
        proof = current.evidence.model_copy(
            update={"trigger": "handoff_off", "details": {**current.evidence.details, **details}}
        )
        self._learn_anew()
        self._traffic.forget_pairs()
        content = Content(current.map, current.uncertainty_threshold, current.state, proof, current.atom)
        return self._published.publish(self._now_us, content, current.costs, current.exploration_probability)

    def _set_expectations(self, estimate: Estimate) -> None:
        """Set what detectors compare with: they see first labels, the curves are fitted to labels as they stand."""
        labelled = max(1.0, estimate.support.effective_pairs)
        self._monitor.drift.expect(
            estimate.shift.agreement,
            estimate.error_given,
            self._labels.flips,
            bounds=estimate.shift.bounds,
            pairs=labelled + float(self._traffic.counts[PAIRS].sum()),
        )

    def _emit_audit(self) -> CalibrationVersion | None:
        """Let routers begin or end an audit under what is in force, when too little is known for a new fit."""
        current = self.current
        if current is None or not self._audit_changed:
            return None
        proof = current.evidence.model_copy(update={"trigger": "audit"})
        content = Content(current.map, current.uncertainty_threshold, current.state, proof, current.atom)
        exploration = current.exploration_probability
        return self._published.publish(self._now_us, content, current.costs, exploration, audit=self._audit)

    def _trigger(self, candidate: Candidate, *, drifted: bool, news: str | None) -> str | None:
        support, current, needed = candidate.estimate.support, self.current, self.constants.support
        is_known = support.effective_labels >= needed.minimum_labels and self._knows_fields(candidate)
        if self._published.holds or not is_known:
            return None
        if current is None:
            return "first_fit" if support.effective_pairs >= needed.minimum_pairs else None
        if news is not None or self._audit_changed:
            return news or "audit"
        if outdated(current, self.settings):
            return "settings_changed"
        if self._map_in_force is None or self._map_in_force[0] is not current:
            self._map_in_force = current, current.error_probability(self._grid.centres)
        fitted, before = candidate.estimate.map, self._map_in_force[1]
        after = np.interp(self._grid.centres, fitted.uncertainty, fitted.error_probability)
        return reason_to_publish(
            current,
            candidate,
            self.constants.publish,
            map_moved=float(candidate.estimate.traffic @ np.abs(after - before)),
            age_s=(self._now_us - to_us(current.created_at)) / 1e6,
            drifted=drifted,
        )

    def _knows_fields(self, candidate: Candidate) -> bool:
        """Whether enough labels say what both models give in each field that has a target of its own."""
        needed, known = self.constants.support, [one.support for one in candidate.fields.values()]
        has_labels = all(one.effective_labels >= needed.minimum_labels for one in known)
        return has_labels and all(one.effective_pairs >= needed.minimum_pairs for one in known)

    def _publish(self, candidate: Candidate, trigger: str) -> CalibrationVersion:
        model_costs = costs(self.settings, self._traffic)
        scores = calibration_error(self._labels, self.constants.estimate.decay.half_life_fast)
        drift = self._monitor.drift.worst
        found = evidence(trigger, candidate, scores, model_costs, drift)
        found = found.model_copy(update={"details": {**found.details, **self._more()}})
        standing = self._standing(candidate, candidate.choice.index, candidate.safety)
        if standing is not None:
            found = found.model_copy(update={"standing": standing})
        threshold = float(candidate.policies.thresholds[candidate.choice.index])
        state: CalibrationState = "active" if candidate.choice.feasible else "infeasible"
        content = Content(candidate.estimate.map, threshold, state, found, candidate.atom)
        version = self._published.publish(self._now_us, content, model_costs, candidate.exploration, audit=self._audit)
        self._labels.retarget(reference(self.settings.target, version))
        if self._pacer is not None:
            self._pacer.on_published(version.version)
        return version

    def _standing(self, candidate: Candidate, index: int, errors: float) -> TargetStanding | None:
        budget = None if self._pacer is None else self._pacer.standing
        return target_standing(self.settings.target, candidate, index, errors, budget)

    def _more(self) -> dict[str, JsonValue]:
        """Return what was served so far, and what there is of another map and of suspected labels."""
        quality = self._monitor.label_quality
        more: dict[str, JsonValue] = {"served": self._traffic.served()}
        if self._handoff.name is not None:
            more["handoff"] = self._handoff.name
        if self._map_fitter.name != _DEFAULT_MAP:
            more["calibration_map"] = self._map_fitter.name
        if not quality.is_trusting or self._labels.slips:
            more["label_audit"] = label_details(quality, self._labels)
        return more

    def _apply_command(self, command: Command) -> CalibrationVersion | None:
        self._now_us = max(self._now_us, to_us(command.issued_at))
        on_trial = self._trials.running
        act = interpret(command, self._published, None if on_trial is None else on_trial.version.version)
        self._published.holds = act.holds
        if act.ends_trial:
            self._trials.end(command.action, self._now_us)
        if act.deed == "fit":
            version = self._refit(commanded=command.action)
            least, known = self.constants.support.minimum_bootstrap_labels, len(self._labels)
            refusal = f"{command.action} refused: needs {least} labels, some with both models run; {known} are known"
            self._conclude(command, refusal if version is None else act.note, is_refused=version is None)
            return version
        former = None if act.of is None else self._published.find(act.of)
        if former is None and on_trial is not None and act.of == on_trial.version.version:
            former = on_trial.version
        if act.deed == "nothing" or (content := content_of(command, act.of, former)) is None:
            self._conclude(command, act.note, is_refused=act.is_refused)
            return None
        is_tried, model_costs = act.deed == "try", costs(self.settings, self._traffic)
        if former is not None and act.deed == "hold":
            version = self._published.hold(former, self._now_us, content.evidence)
        else:
            version = self._published.publish(self._now_us, content, model_costs, audit=self._audit, on_trial=is_tried)
        self._labels.retarget(reference(self.settings.target, self.current))
        if is_tried:
            self._trials.begin(command, version, self._now_us)
        self._conclude(command, act.note)
        return None if is_tried else version

    def _conclude(self, command: Command, note: str, *, is_refused: bool = False) -> None:
        """Note what became of a command, so that its sender finds it in the status."""
        trial = self._trials.running if command.action in ("shadow", "canary") else None
        shown = self.current if trial is None else trial.version
        self._counters.on_command(
            CommandOutcome(
                command_id=command.command_id,
                action=command.action,
                is_refused=is_refused,
                version=None if shown is None else shown.version,
                note=note,
                issued_by=command.issued_by,
                issued_at=command.issued_at,
            )
        )

    def status(self) -> WorkloadStatus:
        """Return how the workload keeps its promise, as of the events seen; costs about a refit, changes nothing."""
        support = served = standing = None
        if len(self._labels):
            candidate = self.evaluate()
            support, served = candidate.estimate.support, candidate.policies
            in_force = 0 if self.current is None else served.index(self.current.uncertainty_threshold)
            standing = self._standing(candidate, in_force, Z95)
            failing, atom = self._traffic.large_failures.recent, None if self.current is None else self.current.atom
            if failing > 0.0 or atom != candidate.atom:
                estimate = degraded(candidate.estimate, failing) if failing > 0.0 else candidate.estimate
                served = weigh(estimate, self._grid.edges, self._labels.target, candidate.exploration, atom)
        facts = WorkloadFacts(
            self.settings,
            self.constants,
            self.current,
            self._published.holds,
            self._counters,
            self._trials,
            self._handoff,
            self._now_us,
            self._published.inherited,
            self._silent_side,
            standing,
        )
        return workload_status(facts, support, served, self._labels, self._traffic, self._monitor)

    def snapshot(self) -> bytes:
        """Return everything as JSON; :meth:`restore` continues from it exactly."""
        state = {
            "format": _SNAPSHOT_FORMAT,
            "workload": self.settings.name,
            "signal": self.settings.uncertainty,
            "basis": self._basis_mark,
            "window": self._labels.state(),
            "traffic": self._traffic.state(),
            **self._monitor.state(),
            "published": self._published.state(),
            "holds": {name: hold.model_dump(mode="json") for name, hold in self._published.holds.items()},
            "trials": self._trials.state(),
            "counters": asdict(self._counters),
            "handoff": self._handoff.state(),
            "now_us": self._now_us,
            "labels_until_fit": self._labels_until_fit,
            "queries_until_fit": self._queries_until_fit,
            "refits_put_off": self._put_off,
            **({} if self._pacer is None else {"pacer": self._pacer.state()}),
        }
        return json.dumps(state, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def restore(cls, settings: WorkloadSettings, snapshot: bytes, constants: MethodConstants = DEFAULT) -> Self:
        """Return a core that continues where another one was.

        Parameters
        ----------
        settings : WorkloadSettings
            Target, sampling and costs may have changed since: the next event brings a refit then. With another basis
            (prompt, fields, models, uncertainty signal) or handoff the core starts cold: of all that was learned only
            the numbers of versions go on.
        snapshot : bytes
            From :meth:`snapshot`.
        constants : MethodConstants, optional
            Grid and window sizes as before.

        Raises
        ------
        ValueError
            If it is of another workload or another format.
        """
        state: dict[str, Any] = json.loads(snapshot)
        if state.get("format") != _SNAPSHOT_FORMAT:
            raise ValueError(f"snapshot: format is {state.get('format')!r}, this release reads {_SNAPSHOT_FORMAT}")
        if state["workload"] != settings.name:
            raise ValueError(f"snapshot: is of workload {state['workload']!r}, not {settings.name!r}")
        core = cls(settings, constants)
        core._published.holds = {name: Hold.model_validate(one) for name, one in state["holds"].items()}
        is_same_handoff = core._handoff.load(state["handoff"])
        core._published.handoff = core._handoff.in_versions
        is_same_signal = state["signal"] == settings.uncertainty
        if not (is_same_signal and is_same_handoff and is_of_basis(state["basis"], core._basis_mark)):
            core._published.take_floor(state["published"])
            core._published.holds.pop(PINNED, None)
            core._now_us = state["now_us"]
            return core
        core._labels.load(state["window"])
        core._traffic.load(state["traffic"])
        core._monitor.load(state)
        core._published.load(state["published"])
        core._labels.retarget(reference(settings.target, core.current))
        if core._pacer is not None and "pacer" in state:
            core._pacer.load(state["pacer"])
        core._trials.load(state["trials"])
        core._counters = Counters(**state["counters"])
        core._now_us = state["now_us"]
        core._labels_until_fit = state["labels_until_fit"]
        core._queries_until_fit = state["queries_until_fit"]
        core._put_off = state["refits_put_off"]
        if core.current is not None and outdated(core.current, settings):
            core._labels_until_fit, core._queries_until_fit = 0, 0.0
        return core
