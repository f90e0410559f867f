"""The fold of one workload: publishes calibration versions from labelled examples, traffic summaries and commands.

Time comes from the events alone, by the clocks of those who route and command: labelers' clocks are not trusted with
it. The same events in the same order give byte-identical versions.
"""

from __future__ import annotations

import json
from math import inf
from operator import is_
from typing import Any, Self

import numpy as np
from pydantic import JsonValue

from recalibrator.decoding import Observation
from recalibrator.fit.change_monitor import NO_REACTION, ChangeMonitor
from recalibrator.fit.codec import Floats, Kept, KeptEach, dump, load
from recalibrator.fit.data.label_columns import Standing
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import calibration_error
from recalibrator.fit.data.traffic_window import PAIRS, TrafficWindow
from recalibrator.fit.decide.accounts import LabelSpending, Pacer
from recalibrator.fit.decide.candidate import (
    Candidate,
    FieldTargets,
    Part,
    View,
    evaluate,
    reason_to_publish,
)
from recalibrator.fit.decide.threshold import reference, weigh
from recalibrator.fit.estimate.calibration_map import map_fitter
from recalibrator.fit.estimate.estimate import Estimate, degraded, silent_side
from recalibrator.fit.label_quality.crowd import details as label_details
from recalibrator.fit.method_constants import DEFAULT, MethodConstants
from recalibrator.fit.publish.evidence import costs, evidence, target_standing
from recalibrator.fit.publish.handoff_watch import HandoffWatch
from recalibrator.fit.publish.label_plan import label_plan
from recalibrator.fit.publish.measured_quality import MeasuredQuality, Verdicts
from recalibrator.fit.publish.trial import Trials
from recalibrator.fit.publish.versions import (
    Content,
    VersionRegistry,
    after_command,
    content_of,
    interpret,
    is_dear,
    refusal,
    saved,
)
from recalibrator.fit.status import Counters, WorkloadFacts, workload_status
from recalibrator.grid import Grid
from schemas.basis import is_of_basis
from schemas.calibration import (
    HIGHEST_VERSION,
    Z95,
    CalibrationState,
    CalibrationVersion,
    LargeOnly,
)
from schemas.command import Command
from schemas.event import from_us, to_us
from schemas.labelled import LabelledExample, OutcomeCounts
from schemas.made_for import made_for, misfit, outdated
from schemas.settings import WorkloadSettings
from schemas.status import CommandOutcome, SilentSide, WorkloadStatus
from schemas.traffic import TrafficSummary, VersionTraffic
from schemas.trial import CalibrationTrial

_SNAPSHOT_FORMAT = 9
_DEFAULT_MAP = "isotonic"
_NONE = OutcomeCounts(true_positives=0, predicted=0)
_TAKEN_OUT = {"retracted": True, "small_exact": False, "small": _NONE, "gold_count": 0}


def _alike(summary: TrafficSummary, signal: str, mark: str | None, handoff: str | None) -> TrafficSummary | None:
    """Return what a summary says about u as one signal measures it, of answers that rest on what is configured.

    The small model answers alike under all handoffs, so that u counts; what the large one answers under another does
    not. None where nothing is left.
    """
    known = (part for part in summary.versions if part.signal == signal and is_of_basis(part.basis, mark))
    parts = tuple(part if part.handoff == handoff else _without_pairs(part) for part in known)
    if len(parts) == len(summary.versions) and all(map(is_, parts, summary.versions)):
        return summary
    return summary.model_copy(update={"versions": parts}) if parts else None


def _without_pairs(part: VersionTraffic) -> VersionTraffic:
    none = (0,) * len(part.cell)
    return part.model_copy(update={"pairs": none, "agreeing": none, "pairs_explored": none})


class Recalibrator:
    """Keeps one workload's map and threshold true.

    Parameters
    ----------
    settings : WorkloadSettings
        The ``[workloads.NAME]`` table, name included.

    Examples
    --------
    >>> from schemas import WorkloadSettings
    >>> core = Recalibrator(WorkloadSettings(name="w", fields=("iso",), target={"micro_f1": 0.9}))
    >>> core.current is None, core.status().state
    (True, 'cold_start')
    """

    _labels: Kept[LabelTable]
    _traffic: Kept[TrafficWindow]
    _monitor: Kept[ChangeMonitor]
    _published: Kept[VersionRegistry]
    _parts: KeptEach[Part]
    _counters: Kept[Counters]
    _now_us: Kept[int] = 0
    _labels_until_fit: Kept[int]
    _queries_until_fit: Kept[float]
    _put_off: Kept[int] = 0

    def __init__(self, settings: WorkloadSettings, constants: MethodConstants = DEFAULT) -> None:
        self.settings, self.constants = settings, constants
        self._basis_mark = settings.basis_mark
        self._grid = Grid(constants.grid)
        self._traffic = TrafficWindow(self._grid, constants.window_queries)
        self._handoff, self._trials = HandoffWatch(settings.handoff), Trials()
        self._published = VersionRegistry(settings, constants.kept_versions, self._handoff)
        self._parts = self._made_parts()
        self._learn_anew()
        self._map_fitter = map_fitter(settings.calibration_map, constants.map_prior_labels)
        self._map_in_force: tuple[CalibrationVersion, Floats] | None = None
        self._counters = Counters()
        self._queries_until_fit = self._queries_between_fits

    def _made_parts(self) -> dict[str, Part]:
        """Return what this workload has, in the order in which it adds to a candidate."""
        target = self.settings.target
        parts: dict[str, Part] = {"trial": self._trials, "handoff": self._handoff, "measured": MeasuredQuality()}
        parts["verdicts"] = Verdicts()
        if target.fields:
            parts["fields"] = FieldTargets()
        if target.cost is not None:
            parts["budget"] = Pacer(target.cost, self.constants)
        if self.settings.labels is not None:
            parts["labels"] = LabelSpending(self.settings.labels)
        return parts

    def _learn_anew(self) -> None:
        """Know no label, and nothing that was concluded from any."""
        constants = self.constants
        self._labels = LabelTable(
            self._grid,
            reference(self.settings.target, self._published.current),
            self.settings.fields,
            constants.window_labels,
            half_life=constants.half_life_revisions,
            by_model=bool(self.settings.target.fields),
        )
        self._monitor = ChangeMonitor(self.settings, constants, self._labels, self._traffic)
        self._labels_until_fit = constants.refit_labels_least

    @property
    def _queries_between_fits(self) -> float:
        most, pace = self.constants.refit_queries, self.constants.pace_queries
        return float(most if self.settings.target.cost is None else min(most, pace))

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

        Returns a new version when this event brings one about.

        Raises
        ------
        ValueError
            If the event belongs to another workload.
        """
        if event.workload != self.settings.name:
            raise ValueError(f"workload: is {event.workload!r}, but this core keeps {self.settings.name!r}")
        if isinstance(event, LabelledExample):
            if not self._is_alike(event):
                return None
            return self._observe_label(event) if event.is_counted else self._observe_verdict(event)
        if isinstance(event, Command):
            return self._apply_command(event)
        alike = _alike(event, self.settings.uncertainty, self._basis_mark, self._handoff.name)
        return None if alike is None else self._observe_traffic(alike)

    def _is_alike(self, example: LabelledExample) -> bool:
        """Whether u was measured, and both answers made, as they are now; counts a label of which that is not true."""
        # Values of u that were measured differently do not belong on one axis.
        if example.signal != self.settings.uncertainty:
            self._counters.count("of_other_signal")
        elif not is_of_basis(example.basis, self._basis_mark):
            self._counters.count("of_other_basis")
        elif example.handoff != self._handoff.name:
            self._counters.count("of_other_handoff")
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
        self._trials = self._parts["trial"] = Trials(trial if may_try else None)
        if may_decide and version.handoff is not None and not version.handoff.active:
            self._handoff.end()
        self._labels.retarget(reference(self.settings.target, self.current))

    def _observe_verdict(self, example: LabelledExample) -> CalibrationVersion | None:
        """Show what a verdict says, and take out the label that stood until then; it says nothing of counts."""
        standing = self._labels.standing(example.query_id)
        if standing not in (Standing.UNREQUESTED, Standing.WITHDRAWN):
            return self._observe_label(example.model_copy(update=_TAKEN_OUT))
        self._parts["verdicts"].take(example, None)
        return None

    def _observe_label(self, example: LabelledExample) -> CalibrationVersion | None:
        routed_us = to_us(example.routed_at)
        self._now_us = max(self._now_us, routed_us)
        if self._trials.hides(example):
            example = example.model_copy(update={"error_probability": None})
        former = self._published.find(example.calibration_version)
        drawn = None if former is None or former.atom is None else former.exploration_probability
        change = self._labels.offer(example, drawn)
        self._counters.count("unrequested" if change == "added" and not example.label_requested else change)
        for part in self._parts.values():
            part.take(example, change)
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
                # Infinite where it is not known, or does not say so.
                map_labels=inf if former is None else former.evidence.effective_labels or inf,
            )
        judged = self._monitor.compare_labelers(self._now_us)
        if self._handoff.costs_too_much and self._may_ask and self._monitor.label_quality.is_trusting:
            return self._end_handoff()
        news: str | None = reaction.news or ("labelers_judged" if judged else None)
        if reaction.refit_now or news is not None:
            return self._refit(drifted=reaction.refit_now, news=news)
        return self._refit_in_turn() if self._labels_until_fit <= 0 else None

    def _observe_traffic(self, summary: TrafficSummary) -> CalibrationVersion | None:
        for part in self._parts.values():
            part.take(summary, None)
        batch = self._traffic.add(summary)
        self._now_us = max(self._now_us, batch.last_us)
        self._counters.requested_since_label += batch.sums["labels_requested"]
        self._queries_until_fit -= batch.sums["queries"]
        audits = self._published.audit_probabilities() if self._monitor.label_quality.audit is not None else {}
        if self._monitor.on_traffic(summary, batch, audits, self._now_us, may_ask=self._may_ask):
            return self._refit(drifted=True)
        alone = self._published.large_only
        if alone is not None and not alone.lasts(from_us(self._now_us)):
            return self._end_large_only("large_only_over")
        return self._refit_in_turn() if self._queries_until_fit <= 0.0 or self._audit_changed else None

    @property
    def _may_ask(self) -> bool:
        """Whether an audit could be published."""
        return self._published.current is not None and not self._published.holds

    @property
    def _audit(self) -> float:
        """The share of pairs to audit under the next version; none while people hold a version in force."""
        if self._published.holds:
            return 0.0
        return self._monitor.label_quality.audit_probability(self.constants)

    @property
    def _audit_changed(self) -> bool:
        return self._may_ask and self.current is not None and self.current.audit_probability != self._audit

    def evaluate(self) -> Candidate:
        """Estimate and weigh everything as it stands, without deciding anything."""
        return evaluate(self._view(), self._parts)

    def _view(self) -> View:
        current = self.current
        circumstances = self._monitor.circumstances(None if current is None else current.uncertainty_threshold)
        if not any(self.settings.label_shares):
            circumstances = circumstances._replace(is_label_free=True)
        if (silent := self._silent_side) is not None:
            # Explored queries may be looked at.
            circumstances = circumstances._replace(is_quiet=False, silent_side=silent)
        return View(
            self.settings,
            self.constants,
            self._labels,
            self._traffic,
            self._map_fitter,
            circumstances,
            current,
            costs(self.settings, self._traffic),
        )

    @property
    def _silent_side(self) -> SilentSide | None:
        threshold = None if self.current is None else self.current.uncertainty_threshold
        shares = self.settings.label_shares if self.current is None else self.current.label_shares
        return silent_side(self._labels, self._traffic, shares, threshold)

    def _refit_in_turn(self) -> CalibrationVersion | None:
        """Refit as labels or queries are due, or leave it out where nothing moves and few were left out before."""
        current = self.current
        if current is None or self._put_off >= self.constants.refits_put_off or not self._may_wait(current):
            return self._refit()
        self._put_off += 1
        if self._labels_until_fit <= 0:
            self._labels_until_fit = self._labels_between_fits(current.evidence.effective_labels)
        if self._queries_until_fit <= 0.0:
            self._queries_until_fit = self._queries_between_fits
        return None

    def _may_wait(self, current: CalibrationVersion) -> bool:
        """Whether the version in force is as good as settled, and what is known says that nothing moves."""
        if current.state != "active" or self.settings.target.cost is not None or self._audit_changed:
            return False
        if self._labels.counting < self.constants.calm_labels or outdated(current, self.settings):
            return False
        sampling, least = self.settings.sampling, min(current.label_shares)
        at_rest = min(sampling.exploration_probability * self.constants.quiet_exploration, least)
        return current.exploration_probability == at_rest and self._monitor.is_calm

    def _labels_between_fits(self, effective: float) -> int:
        one = self.constants
        return min(one.refit_labels_most, max(one.refit_labels_least, int(one.refit_share * effective)))

    def _refit(
        self,
        *,
        drifted: bool = False,
        commanded: str | None = None,
        news: str | None = None,
    ) -> CalibrationVersion | None:
        """Fit, and publish when there is evidence and reason enough, or when commanded."""
        needed = self.constants
        self._queries_until_fit, self._put_off = self._queries_between_fits, 0
        if not len(self._labels):
            return None
        # A first reference that rests on a handful of labels would be contradicted by the next ones.
        is_first = self._monitor.drift.agreement is None
        if commanded is None and is_first and self._labels.counting < needed.minimum_labels:
            self._labels_until_fit = needed.refit_labels_least
            return self._emit_audit()
        candidate = self.evaluate()
        support = candidate.estimate.support
        self._labels_until_fit = self._labels_between_fits(support.effective_labels)
        if not is_first or support.effective_labels >= needed.minimum_labels:
            self._set_expectations(candidate.estimate)
        alone, saving = self._published.large_only, saved(candidate, costs(self.settings, self._traffic))
        if alone is not None and alone.until is None and commanded is None and saving is not None and saving > 0.0:
            return self._end_large_only("cascade_pays")
        trigger = commanded or self._trigger(candidate, drifted=drifted, news=news)
        if trigger is None or support.labels < needed.minimum_bootstrap_labels or not support.pairs:
            return self._emit_audit()
        return self._publish(candidate, trigger)

    def _end_handoff(self) -> CalibrationVersion | None:
        """Have the large model answer alone from now on, at the same threshold.

        No label says how well it does so, hence what was learned is forgotten. Alone it is better, so that what was
        enough is enough.
        """
        self._handoff.end()
        self._trials.end("handoff_off", self._now_us)
        loss = self._handoff.loss
        self._learn_anew()
        self._traffic.forget_pairs()
        return self._carry_on("handoff_off", handoff_loss=None if loss is None else loss.model_dump())

    def _end_large_only(self, trigger: str) -> CalibrationVersion:
        """Let the cascade answer again, by the version in force."""
        current, self._published.large_only = self.current, None
        assert current is not None
        proof = current.evidence.model_copy(update={"trigger": trigger})
        return self._published.hold(current, self._now_us, proof)

    def _begins_large_only(self, candidate: Candidate) -> bool:
        """Whether the large model is to answer alone from now on, by itself."""
        is_allowed = self.settings.large_only_when_dear and self.settings.target.max_escalation is None
        if not is_allowed or self._published.large_only is not None:
            return False
        share = self._published.watched_share(candidate.label_shares)
        is_free = self._trials.running is None and not self._published.holds
        return is_free and share > 0.0 and is_dear(candidate, costs(self.settings, self._traffic), share)

    def _carry_on(self, trigger: str, *, audit: float = 0.0, **details: JsonValue) -> CalibrationVersion:
        """Publish what is in force again, for what follows from no fit."""
        current = self.current
        assert current is not None
        update = {"trigger": trigger, "details": current.evidence.details | details}
        proof = current.evidence.model_copy(update=update)
        content = Content(current.map, current.uncertainty_threshold, current.state, proof, current.atom)
        exploration = current.exploration_probability
        return self._published.publish(
            self._now_us, content, current.costs, exploration, audit=audit, label_shares=current.label_shares
        )

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
        return self._carry_on("audit", audit=self._audit) if self._audit_changed else None

    def _trigger(self, candidate: Candidate, *, drifted: bool, news: str | None) -> str | None:
        support, current, needed = candidate.estimate.support, self.current, self.constants
        is_known = support.effective_labels >= needed.minimum_labels and self._knows_fields(candidate)
        if self._published.holds or not is_known:
            return None
        if current is None:
            return "first_fit" if support.effective_pairs >= needed.minimum_pairs else None
        if news is not None or self._audit_changed:
            return news or "audit"
        if outdated(current, self.settings):
            return "settings_changed"
        if self._begins_large_only(candidate):
            return "large_only"
        if self._map_in_force is None or self._map_in_force[0] is not current:
            self._map_in_force = current, current.error_probability(self._grid.centres)
        fitted, before = candidate.estimate.map, self._map_in_force[1]
        after = np.interp(self._grid.centres, fitted.uncertainty, fitted.error_probability)
        return reason_to_publish(
            current,
            candidate,
            self.constants,
            map_moved=float(candidate.estimate.traffic @ np.abs(after - before)),
            age_s=(self._now_us - to_us(current.created_at)) / 1e6,
            drifted=drifted,
        )

    def _knows_fields(self, candidate: Candidate) -> bool:
        """Whether enough labels say what both models give in each field that has a target of its own."""
        needed, known = self.constants, [one.support for one in candidate.fields.values()]
        has_labels = all(one.effective_labels >= needed.minimum_labels for one in known)
        return has_labels and all(one.effective_pairs >= needed.minimum_pairs for one in known)

    def _publish(self, candidate: Candidate, trigger: str) -> CalibrationVersion:
        model_costs = costs(self.settings, self._traffic)
        scores = calibration_error(self._labels, self.constants.half_life_fast)
        standing = target_standing(self.settings.target, candidate, candidate.choice.index, candidate.safety)
        found = evidence(trigger, candidate, scores, model_costs, self._monitor.drift.worst, self._more(), standing)
        threshold = float(candidate.policies.thresholds[candidate.choice.index])
        state: CalibrationState = "active" if candidate.choice.feasible else "infeasible"
        content = Content(candidate.estimate.map, threshold, state, found, candidate.atom)
        explored, shares, audit = candidate.exploration, candidate.label_shares, self._audit
        if self._begins_large_only(candidate):
            share = self._published.watched_share(shares)
            self._published.large_only = LargeOnly(small_probability=share, since=from_us(self._now_us))
        version = self._published.publish(
            self._now_us, content, model_costs, explored, audit=audit, label_shares=shares
        )
        self._labels.retarget(reference(self.settings.target, version))
        for part in self._parts.values():
            part.published(version.version)
        return version

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
        if command.action == "large_only" and (because := self._large_only_refused(command)) is not None:
            self._conclude(command, f"large only refused: {because}", is_refused=True)
            return None
        self._published.holds = act.holds
        if not act.is_refused:
            share = self._published.watched_share()
            self._published.large_only = after_command(command, self._published.large_only, share)
        if act.ends_trial:
            self._trials.end(command.action, self._now_us)
        if act.what == "fit":
            version = self._refit(commanded=command.action)
            least, known = self.constants.minimum_bootstrap_labels, len(self._labels)
            refusal = f"{command.action} refused: needs {least} labels, some with both models run; {known} are known"
            self._conclude(command, refusal if version is None else act.note, is_refused=version is None)
            return version
        former = self._published.find(act.of)
        if former is None and on_trial is not None and act.of == on_trial.version.version:
            former = on_trial.version
        if act.what == "nothing" or (content := content_of(command, act.of, former)) is None:
            self._conclude(command, act.note, is_refused=act.is_refused)
            return None
        is_tried, model_costs = act.what == "try", costs(self.settings, self._traffic)
        if former is not None and act.what == "hold":
            version = self._published.hold(former, self._now_us, content.evidence)
        else:
            version = self._published.publish(self._now_us, content, model_costs, audit=self._audit, on_trial=is_tried)
        self._labels.retarget(reference(self.settings.target, self.current))
        if is_tried:
            self._trials.begin(command, version, self._now_us)
        self._conclude(command, act.note)
        return None if is_tried else version

    def _large_only_refused(self, command: Command) -> str | None:
        saving = None
        if command.until is None and len(self._labels):
            saving = saved(self.evaluate(), costs(self.settings, self._traffic))
        return refusal(command, self.current, self._published.watched_share(), saving)

    def _conclude(self, command: Command, note: str, *, is_refused: bool = False) -> None:
        """Note the outcome of a command, so that its sender finds it in the status."""
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
        facts = WorkloadFacts(
            view := self._view(),
            self._parts,
            self._published,
            self._monitor,
            self._counters,
            self._now_us,
            self._silent_side,
            self._handoff.sentence(),
        )
        if not len(self._labels):
            return workload_status(facts)
        candidate, current = evaluate(view, self._parts), self.current
        in_force = candidate.policies.index(self._published.serving_threshold)
        standing = target_standing(self.settings.target, candidate, in_force, Z95)
        failing, atom = self._traffic.large_failures.recent, None if current is None else current.atom
        served, estimate = candidate.policies, candidate.estimate
        if failing > 0.0 or atom != candidate.atom:
            estimate = degraded(estimate, failing) if failing > 0.0 else estimate
            served = weigh(estimate, self._grid.edges, self._labels.target, candidate.exploration, atom)
        plan = label_plan(view, candidate, self._published, self._now_us)
        support = candidate.estimate.support
        return workload_status(facts._replace(support=support, policies=served, standing=standing, plan=plan))

    def snapshot(self) -> bytes:
        """Return everything as JSON; :meth:`restore` continues from it exactly."""
        state = {
            "format": _SNAPSHOT_FORMAT,
            "workload": self.settings.name,
            "signal": self.settings.uncertainty,
            "basis": self._basis_mark,
            "state": dump(self),
        }
        return json.dumps(state, separators=(",", ":")).encode()

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
        core, kept = cls(settings, constants), state["state"]
        is_alike = state["signal"] == settings.uncertainty and is_of_basis(state["basis"], core._basis_mark)
        goes_on = core._handoff.take_back(kept["_parts"].pop("handoff"))
        if not (is_alike and goes_on):
            load(core._published, kept["_published"])
            core._published.forget()
            core._now_us = kept["_now_us"]
            return core
        load(core, kept)
        core._labels.retarget(reference(settings.target, core.current))
        if core.current is not None and outdated(core.current, settings):
            core._labels_until_fit, core._queries_until_fit = 0, 0.0
        return core
