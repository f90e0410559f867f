"""The fold of one workload: publishes calibration versions from labelled examples, traffic summaries and commands.

Time comes from the events alone, by the clocks of those who route and command: labelers' clocks are not trusted with
it. The same events in the same order give byte-identical versions.
"""

from __future__ import annotations

import json
from math import inf
from operator import is_
from typing import Any, Self

from recalibrator.decoding import Observation
from recalibrator.fit.codec import dump, load
from recalibrator.fit.data.label_columns import Standing
from recalibrator.fit.decide.candidate import evaluate
from recalibrator.fit.decide.threshold import reference, weigh
from recalibrator.fit.estimate.estimate import degraded
from recalibrator.fit.fitting import Fitting
from recalibrator.fit.method_constants import DEFAULT, MethodConstants
from recalibrator.fit.publish.evidence import costs, target_standing
from recalibrator.fit.publish.label_plan import label_plan
from recalibrator.fit.publish.trial import Trials
from recalibrator.fit.publish.versions import after_command, content_of, interpret, refusal, saved
from recalibrator.fit.status import WorkloadFacts, workload_status
from schemas.basis import is_of_basis
from schemas.calibration import HIGHEST_VERSION, Z95, CalibrationVersion
from schemas.command import Command
from schemas.event import from_us, to_us
from schemas.labelled import LabelledExample, OutcomeCounts
from schemas.made_for import made_for, misfit, outdated
from schemas.settings import WorkloadSettings
from schemas.status import CommandOutcome, WorkloadStatus
from schemas.traffic import TrafficSummary, VersionTraffic
from schemas.trial import CalibrationTrial

_SNAPSHOT_FORMAT = 10
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
    return part.model_copy(update=dict.fromkeys(("pairs", "agreeing", "pairs_explored"), (0,) * len(part.cell)))


class Recalibrator(Fitting):
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
            if (unlike := self._unlike(event)) is not None:
                self._counters.count(unlike)
                return None
            return self._observe_label(event) if event.is_counted else self._observe_verdict(event)
        if isinstance(event, Command):
            return self._apply_command(event)
        alike = _alike(event, self.settings.uncertainty, self._basis_mark, self._handoff.name)
        return None if alike is None else self._observe_traffic(alike)

    def _unlike(self, example: LabelledExample) -> str | None:
        """Return in what u was measured, or the answers made, otherwise than they are now; None where in nothing."""
        # Values of u that were measured differently do not belong on one axis.
        if example.signal != self.settings.uncertainty:
            return "of_other_signal"
        if not is_of_basis(example.basis, self._basis_mark):
            return "of_other_basis"
        return None if example.handoff == self._handoff.name else "of_other_handoff"

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
        self._parts["verdicts"].take_label(example, None)
        return None

    def _observe_label(self, example: LabelledExample) -> CalibrationVersion | None:
        routed_us = to_us(example.routed_at)
        self._now_us = max(self._now_us, routed_us)
        if self._trials.hides(example):
            example = example.model_copy(update={"error_probability": None})
        former = self._published.find(example.calibration_version)
        drawn = None if former is None or former.atom is None else former.exploration_probability
        change = self._labels.offer(example, drawn)
        what = "unrequested" if change == "added" and not example.label_requested else change
        self._counters.count(what, self._now_us)
        for part in self._parts.values():
            part.take_label(example, change)
        if change in ("duplicate", "too_late") or not example.label_requested:
            return None
        standing = self._labels.standing(example.query_id)
        self._labels_until_fit -= standing > 0 or change == "withdrawn"
        refit_now, news = False, None
        if change == "added":
            # Infinite where it is not known, or does not say so.
            known = inf if former is None else former.evidence.effective_labels or inf
            may_ask, now_us = self._may_ask, self._now_us
            refit_now, news = self._monitor.on_label(
                example, standing, routed_us, now_us, may_ask=may_ask, map_labels=known
            )
        judged = self._monitor.compare_labelers(self._now_us)
        if self._handoff.costs_too_much and self._may_ask and self._monitor.label_quality.is_trusting:
            return self._end_handoff()
        if refit_now or news is not None or judged:
            return self._refit(drifted=refit_now, news=news or ("labelers_judged" if judged else None))
        return self._refit_in_turn() if self._labels_until_fit <= 0 else None

    def _observe_traffic(self, summary: TrafficSummary) -> CalibrationVersion | None:
        for part in self._parts.values():
            part.take_traffic(summary)
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

    def _apply_command(self, command: Command) -> CalibrationVersion | None:
        self._now_us = max(self._now_us, to_us(command.issued_at))
        if command.labeler is not None and command.action in ("believe", "compare_again"):
            return self._apply_belief(command, command.labeler)
        on_trial = self._trials.running
        act = interpret(command, self._published, None if on_trial is None else on_trial.version.version)
        if command.action == "large_only" and (because := self._large_only_refused(command)) is not None:
            return self._conclude(command, f"large only refused: {because}", is_refused=True)
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
            note = refusal if version is None else act.note
            return self._conclude(command, note, version, is_refused=version is None)
        former = self._published.find(act.of)
        if former is None and on_trial is not None and act.of == on_trial.version.version:
            former = on_trial.version
        if act.what == "nothing" or (content := content_of(command, act.of, former)) is None:
            return self._conclude(command, act.note, is_refused=act.is_refused)
        is_tried, model_costs = act.what == "try", costs(self.settings, self._traffic)
        if former is not None and act.what == "hold":
            version = self._published.hold(former, self._now_us, content.evidence)
        else:
            version = self._published.publish(self._now_us, content, model_costs, audit=self._audit, on_trial=is_tried)
        self._labels.retarget(reference(self.settings.target, self.current))
        if is_tried:
            self._trials.begin(command, version, self._now_us)
        return self._conclude(command, act.note, None if is_tried else version)

    def _apply_belief(self, command: Command, labeler: str) -> CalibrationVersion | None:
        is_believed = command.action == "believe"
        # A name that nobody labels by is misspelt: kept for later, it would look as if it had helped.
        if is_believed and labeler not in self._labels.labelers:
            because = f"believe refused: {labeler} has given no label that is known"
            return self._conclude(command, because, is_refused=True)
        if not is_believed and labeler not in self._monitor.labelers.believed:
            because = f"compare again refused: {labeler} is not believed by command"
            return self._conclude(command, because, is_refused=True)
        judged = self._monitor.compare_from_now_on(labeler, self._now_us, is_believed=is_believed)
        version = self._refit(news="labelers_judged") if judged else None
        note = f"{labeler} is {'believed' if is_believed else 'compared with others again'}"
        return self._conclude(command, note, version)

    def _large_only_refused(self, command: Command) -> str | None:
        saving = None
        if command.until is None and len(self._labels):
            saving = saved(self.evaluate(), costs(self.settings, self._traffic))
        return refusal(command, self.current, self._published.watched_share(), saving)

    def _conclude(
        self, command: Command, note: str, version: CalibrationVersion | None = None, *, is_refused: bool = False
    ) -> CalibrationVersion | None:
        """Note the outcome of a command, so that its sender finds it in the status; returns the version it led to."""
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
        return version

    def status(self) -> WorkloadStatus:
        """Return how the workload keeps its promise, as of the events seen; costs about a refit, changes nothing."""
        facts = WorkloadFacts(
            view := self._view(),
            self._parts,
            self._published,
            self._monitor,
            self._counters,
            self._now_us,
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
            core._monitor.labelers.believed = set(kept["_monitor"]["labelers"]["believed"])
            return core
        load(core, kept)
        core._labels.retarget(reference(settings.target, core.current))
        if core.current is not None and outdated(core.current, settings):
            core._labels_until_fit, core._queries_until_fit = 0, 0.0
        return core
