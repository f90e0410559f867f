"""What is known of one workload, and how it becomes a version: estimated, weighed, and published where that is due."""

from __future__ import annotations

from pydantic import JsonValue

from recalibrator.fit.change_monitor import ChangeMonitor
from recalibrator.fit.codec import Kept, KeptEach
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import calibration_error
from recalibrator.fit.data.traffic_window import PAIRS, TrafficWindow
from recalibrator.fit.decide.accounts import LabelSpending, Pacer
from recalibrator.fit.decide.candidate import Candidate, FieldTargets, Part, View, evaluate, reason_to_publish
from recalibrator.fit.decide.threshold import reference
from recalibrator.fit.estimate.calibration_map import map_fitter
from recalibrator.fit.estimate.estimate import Estimate, silent_side
from recalibrator.fit.label_quality.crowd import details as label_details
from recalibrator.fit.method_constants import DEFAULT, MethodConstants
from recalibrator.fit.publish.evidence import costs, evidence, target_standing
from recalibrator.fit.publish.handoff_watch import HandoffWatch
from recalibrator.fit.publish.measured_quality import MeasuredQuality, Verdicts
from recalibrator.fit.publish.trial import Trials
from recalibrator.fit.publish.versions import Content, VersionRegistry, is_dear, saved
from recalibrator.fit.status import Counters
from recalibrator.grid import Grid
from schemas.calibration import CalibrationState, CalibrationVersion, LargeOnly
from schemas.event import from_us, to_us
from schemas.made_for import outdated
from schemas.settings import WorkloadSettings

_DEFAULT_MAP = "isotonic"


class Fitting:
    """The state of one workload, its refits and what they publish."""

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
        threshold = None if current is None else current.uncertainty_threshold
        circumstances = self._monitor.circumstances(threshold)
        if not any(self.settings.label_shares):
            circumstances = circumstances._replace(is_label_free=True)
        shares = (self.settings if current is None else current).label_shares
        if (silent := silent_side(self._labels, self._traffic, shares, threshold)) is not None:
            # Explored queries may be looked at.
            circumstances = circumstances._replace(is_quiet=False, silent_side=silent)
        known = self.settings, self.constants, self._labels, self._traffic, self._map_fitter
        return View(*known, circumstances, current, costs(self.settings, self._traffic))

    def _refit_in_turn(self) -> CalibrationVersion | None:
        """Refit as labels or queries are due, or leave it out where nothing moves and few were left out before."""
        current = self.current
        if current is None or self._put_off >= self.constants.refits_put_off or not self._may_wait(current):
            return self._refit()
        self._put_off += 1
        self._labels_until_fit = self._labels_between_fits(current.evidence.effective_labels)
        self._queries_until_fit = self._queries_between_fits
        return None

    def _may_wait(self, current: CalibrationVersion) -> bool:
        """Whether much is known, the version in force explores as at rest, and nothing has come up since."""
        settings = self.settings
        if self._labels.counting < self.constants.calm_labels or settings.target.cost is not None:
            return False
        at_rest = current.exploration_probability < settings.sampling.exploration_probability
        is_quiet = self._view().circumstances.is_quiet and self._monitor.label_quality.is_trusting
        return at_rest and is_quiet and not self._audit_changed and not outdated(current, settings)

    def _labels_between_fits(self, effective: float) -> int:
        one = self.constants
        return min(one.refit_labels_most, max(one.refit_labels_least, int(one.refit_share * effective)))

    def _refit(
        self, *, drifted: bool = False, commanded: str | None = None, news: str | None = None
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
        loss, believed = self._handoff.loss, self._monitor.labelers.believed
        self._learn_anew()
        self._monitor.labelers.believed = believed
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
        published, settings = self._published, self.settings
        is_allowed = settings.large_only_when_dear and settings.target.max_escalation is None
        is_free = self._trials.running is None and not published.holds and published.large_only is None
        share = published.watched_share(candidate.label_shares)
        return is_allowed and is_free and share > 0.0 and is_dear(candidate, costs(settings, self._traffic), share)

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
        age_s = (self._now_us - to_us(current.created_at)) / 1e6
        return reason_to_publish(current, candidate, self.constants, age_s=age_s, drifted=drifted)

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
        if self.settings.calibration_map != _DEFAULT_MAP:
            more["calibration_map"] = self.settings.calibration_map
        if not quality.is_trusting or self._labels.slips:
            more["label_audit"] = label_details(quality, self._labels)
        return more
