"""The fold: labelled examples, traffic summaries and commands of one workload flow in, calibration versions flow out.

Time comes from the events alone, by the clocks of those who route and command: labelers' clocks are not trusted with
it. The same events in the same order give byte-identical versions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.change_monitor import Beliefs, Learnt
from recalibrator.fit.data.instants import to_us
from recalibrator.fit.data.label_table import LabelWindow
from recalibrator.fit.data.prequential import calibration_error
from recalibrator.fit.data.revisions import multiplied
from recalibrator.fit.data.table import UNREQUESTED
from recalibrator.fit.data.traffic_window import TrafficWindow
from recalibrator.fit.decide.publish_policy import reason_to_publish
from recalibrator.fit.decide.threshold import Choice, Policies, choose, weigh
from recalibrator.fit.estimate.estimate import Outlook, degraded, look_out
from recalibrator.fit.estimate.given import inside
from recalibrator.fit.estimate.smoothing import Floats
from recalibrator.fit.method_constants import DEFAULT, Tuning
from recalibrator.fit.publish.commands import Holds, interpret
from recalibrator.fit.publish.evidence import costs, evidence
from recalibrator.fit.publish.trial import Trials
from recalibrator.fit.publish.versions import Published, commanded
from recalibrator.fit.status import Counters, workload_status
from recalibrator.grid import Grid
from schemas.calibration import CalibrationVersion
from schemas.command import Command
from schemas.event import DEFAULT_SIGNAL
from schemas.labelled import LabelledExample
from schemas.settings import WorkloadSettings
from schemas.status import WorkloadStatus
from schemas.traffic import TrafficSummary
from schemas.trial import CalibrationTrial

Observation = LabelledExample | TrafficSummary | Command

_SNAPSHOT_FORMAT = 2


def of_signal(event: LabelledExample | TrafficSummary, signal: str) -> LabelledExample | TrafficSummary | None:
    """Return what an event says about u as one signal measures it, or None where it says nothing."""
    if isinstance(event, LabelledExample):
        return event if event.signal == signal else None
    parts = tuple(part for part in event.versions if part.signal == signal)
    if len(parts) == len(event.versions):
        return event
    return event.model_copy(update={"versions": parts}) if parts else None


@dataclass(frozen=True, slots=True)
class View:
    """One look at everything: the outlook, how much to explore, all policies weighed by both, and the one chosen."""

    outlook: Outlook
    exploration: float
    policies: Policies
    choice: Choice


class Recalibrator:
    """Keeps one workload's map and threshold true.

    Parameters
    ----------
    settings : WorkloadSettings
        The ``[workloads.NAME]`` table, name included.
    tuning : Tuning, optional
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

    def __init__(self, settings: WorkloadSettings, tuning: Tuning = DEFAULT) -> None:
        self.settings, self.tuning = settings, tuning
        self._grid = Grid(tuning.grid)
        self._window = LabelWindow(
            self._grid,
            settings.target.micro_f1,
            settings.fields,
            tuning.window_labels,
            half_life=tuning.half_life_revisions,
        )
        self._traffic = TrafficWindow(self._grid, tuning.window_queries)
        self._beliefs = Beliefs(settings, tuning, self._window, self._traffic)
        self._published = Published(settings, tuning.kept_versions)
        self._map_in_force: tuple[CalibrationVersion, Floats] | None = None
        self._holds = Holds()
        self._trials = Trials()
        self._counters = Counters()
        self._now_us = 0
        self._labels_until_fit = tuning.refit_labels_least
        self._queries_until_fit = float(tuning.refit_queries)

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

        Parameters
        ----------
        event : LabelledExample, TrafficSummary or Command

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
        if isinstance(event, Command):
            return self._obey(event)
        # Values of u that were measured differently do not belong on one axis.
        measured_alike = of_signal(event, self.settings.uncertainty)
        if measured_alike is None:
            self._counters.of_other_signal += isinstance(event, LabelledExample)
            return None
        if isinstance(measured_alike, LabelledExample):
            return self._observe_label(measured_alike)
        return self._observe_traffic(measured_alike)

    def raise_version_floor(self, version: int) -> None:
        """Give the next version a number above this one: the highest valid one on the calibration topic."""
        self._published.floor = max(self._published.floor, version)

    def _observe_label(self, example: LabelledExample) -> CalibrationVersion | None:
        routed_us = to_us(example.routed_at)
        self._now_us = max(self._now_us, routed_us)
        example = self._trials.take_label(example)
        change = self._window.offer(example)
        self._counters.count(change, example.label_requested)
        if change in ("duplicate", "too_late") or not example.label_requested:
            return None
        standing = self._window.standing(example.query_id)
        self._labels_until_fit -= standing > UNREQUESTED or change == "withdrawn"
        learnt = Learnt(due=False)
        if change == "added":
            learnt = self._beliefs.on_label(example, standing, routed_us, self._now_us, may_ask=self._may_ask)
        elif change != "overruled":
            self._beliefs.on_correction(example, standing, routed_us, self._now_us)
        judged = self._beliefs.compare_labelers(self._now_us)
        news: str | None = learnt.news or ("labelers_judged" if judged else None)
        if learnt.due or news is not None:
            return self._refit(drifted=learnt.due, news=news)
        return self._refit() if self._labels_until_fit <= 0 else None

    def _observe_traffic(self, summary: TrafficSummary) -> CalibrationVersion | None:
        self._trials.take_traffic(summary)
        batch = self._traffic.add(summary)
        self._now_us = max(self._now_us, batch.last_us)
        self._counters.on_traffic(batch.sums["labels_requested"])
        self._queries_until_fit -= batch.sums["queries"]
        audits = self._published.audit_probabilities() if self._beliefs.gate.suspicion is not None else {}
        if self._beliefs.on_traffic(summary, batch, audits, self._now_us, may_ask=self._may_ask):
            return self._refit(drifted=True)
        return self._refit() if self._queries_until_fit <= 0.0 or self._audit_changed else None

    @property
    def _may_ask(self) -> bool:
        """Whether an audit could be published."""
        return self.current is not None and not self._holds.any

    @property
    def _audit(self) -> float:
        """The share of pairs to audit that the next version tells; none while people hold a version in force."""
        return 0.0 if self._holds.any else self._beliefs.gate.audit_probability

    @property
    def _audit_changed(self) -> bool:
        return self._may_ask and self.current is not None and self.current.audit_probability != self._audit

    def look(self) -> View:
        """Estimate and weigh everything as it stands, without deciding anything."""
        current = self.current
        serving = None if current is None else current.uncertainty_threshold
        change, certifier = self._beliefs.change, self._beliefs.certifier
        exploration = self._beliefs.exploration()
        outlook = look_out(
            self._window,
            self._traffic,
            serving,
            *self._beliefs.split,
            self.tuning,
            settled=change.settled,
            drift_scale=self._beliefs.drift_scale,
            tilt_ridge=self.tuning.quiet_tilt_ridge if self._beliefs.is_quiet else self.tuning.tilt_ridge,
        )
        policies = weigh(outlook, self._grid.edges, self.settings.target.micro_f1, exploration)
        choice = choose(policies, self.settings.target.safety, self.tuning.gain_least)
        if certifier is not None:
            choice = certifier.cap(choice)
        return View(outlook, exploration, policies, self._spare_failing(choice, policies))

    def _spare_failing(self, choice: Choice, policies: Policies) -> Choice:
        """Return the choice, or the threshold in force where the choice would send a failing server more work.

        While the large model fails, no version asks for more of its calls; while the small one is out, what is known
        of the mix of queries stands still, and so does the threshold.
        """
        if self.current is None:
            return choice
        in_force = policies.index(self.current.uncertainty_threshold)
        if self._traffic.small_failures.is_out:
            return Choice(in_force, choice.feasible)
        return Choice(max(choice.index, in_force), choice.feasible) if self._traffic.large_failures.is_out else choice

    def _refit(
        self,
        *,
        drifted: bool = False,
        commanded: str | None = None,
        news: str | None = None,
    ) -> CalibrationVersion | None:
        """Fit, and publish when there is evidence and reason enough, or when commanded."""
        tuning = self.tuning
        if not len(self._window):
            self._queries_until_fit = float(tuning.refit_queries)
            return None
        view = self.look()
        support = view.outlook.support
        pace = int(tuning.refit_share * support.effective_labels)
        self._labels_until_fit = min(tuning.refit_labels_most, max(tuning.refit_labels_least, pace))
        self._queries_until_fit = float(tuning.refit_queries)
        # A first reference that rests on a handful of labels would be contradicted by the next ones.
        if self._beliefs.panel.agreement is not None or support.effective_labels >= tuning.minimum_labels:
            # Detectors see first labels, the curves are fitted to labels as they stand.
            revised = self._window.revisions
            known = support.effective_labels
            given = multiplied(view.outlook.error_given, revised.odds(known)[1:3, None])
            self._beliefs.panel.expect(view.outlook.shift.agreement, inside(given), revised.overall(known))
        self._counters.effective_labels = support.effective_labels
        trigger = commanded or self._trigger(view, drifted=drifted, news=news)
        if trigger is None or support.labels < tuning.minimum_bootstrap_labels or not support.pairs:
            return self._tell_audit()
        return self._publish(view, trigger)

    def _tell_audit(self) -> CalibrationVersion | None:
        """Let routers begin or end an audit under what is in force, when too little is known for a new fit."""
        current = self.current
        if current is None or not self._audit_changed:
            return None
        proof = current.evidence.model_copy(update={"trigger": "audit"})
        threshold, exploration = current.uncertainty_threshold, current.exploration_probability
        return self._published.publish(
            self._now_us, current.map, threshold, current.state, proof, current.costs, exploration, audit=self._audit
        )

    def _trigger(self, view: View, *, drifted: bool, news: str | None) -> str | None:
        support, current, tuning = view.outlook.support, self.current, self.tuning
        if self._holds.any or support.effective_labels < tuning.minimum_labels:
            return None
        if current is None:
            return "first_fit" if support.effective_pairs >= tuning.minimum_pairs else None
        if news is not None or self._audit_changed:
            return news or "audit"
        if self._map_in_force is None or self._map_in_force[0] is not current:
            self._map_in_force = current, current.error_probability(self._grid.centres)
        fitted, before = view.outlook.map, self._map_in_force[1]
        after = np.interp(self._grid.centres, fitted.uncertainty, fitted.error_probability)
        return reason_to_publish(
            current,
            view.policies,
            view.choice,
            map_moved=float(view.outlook.traffic @ np.abs(after - before)),
            exploration=view.exploration,
            age_s=(self._now_us - to_us(current.created_at)) / 1e6,
            drifted=drifted,
            tuning=tuning,
        )

    def _publish(self, view: View, trigger: str) -> CalibrationVersion:
        model_costs = costs(self.settings, self._traffic)
        scores = calibration_error(self._window, self.tuning.half_life_fast)
        drift = self._beliefs.panel.worst
        found = evidence(
            trigger,
            view.outlook,
            view.policies,
            view.choice,
            scores,
            self.settings,
            model_costs,
            drift,
            view.exploration,
        )
        found = found.model_copy(update={"details": {**found.details, **self._more(view)}})
        return self._published.publish(
            self._now_us,
            view.outlook.map,
            float(view.policies.thresholds[view.choice.index]),
            "active" if view.choice.feasible else "infeasible",
            found,
            model_costs,
            view.exploration,
            audit=self._audit,
        )

    def _more(self, view: View) -> dict[str, JsonValue]:
        """Return what the evidence says of a proof and of suspected labels, where there are any."""
        certifier, gate = self._beliefs.certifier, self._beliefs.gate
        told: dict[str, JsonValue] = {}
        if certifier is not None:
            told["certified"] = certifier.details(view.policies.thresholds)
        if gate.suspicion is not None or gate.spans:
            told["label_audit"] = gate.details(self._window)
        return told

    def _obey(self, command: Command) -> CalibrationVersion | None:
        self._now_us = max(self._now_us, to_us(command.issued_at))
        on_trial = self._trials.running
        act = interpret(command, self._published, self._holds, None if on_trial is None else on_trial.version.version)
        self._holds = act.holds
        self._counters.last_command = act.note
        if act.ends_trial:
            self._trials.end(command.action, self._now_us)
        if act.deed == "fit":
            version = self._refit(commanded=command.action)
            if version is None:
                self._counters.last_command = (
                    f"{command.action} refused: needs {self.tuning.minimum_bootstrap_labels} labels, some with both "
                    f"models run; {len(self._window)} are known"
                )
            return version
        former = None if act.of is None else self._published.find(act.of)
        if former is None and on_trial is not None and act.of == on_trial.version.version:
            former = on_trial.version
        if act.deed == "nothing" or (content := commanded(command, act.of, former)) is None:
            return None
        is_tried = act.deed == "try"
        model_costs = costs(self.settings, self._traffic)
        version = self._published.publish(self._now_us, *content, model_costs, audit=self._audit, on_trial=is_tried)
        if is_tried:
            self._trials.begin(command, version, self._now_us)
            return None
        return version

    def status(self) -> WorkloadStatus:
        """Return how the workload keeps its promise, as of the events seen; costs about a refit, changes nothing."""
        support = served = None
        if len(self._window):
            view = self.look()
            support, served = view.outlook.support, view.policies
            if (failing := self._traffic.large_failures.recent) > 0.0:
                outlook = degraded(view.outlook, failing)
                served = weigh(outlook, self._grid.edges, self.settings.target.micro_f1, view.exploration)
        return workload_status(
            self.settings,
            self.current,
            support,
            served,
            window=self._window,
            traffic=self._traffic,
            panel=self._beliefs.panel,
            gate=self._beliefs.gate,
            labelers=self._beliefs.labelers,
            holds=self._holds,
            counters=self._counters,
            now_us=self._now_us,
            tuning=self.tuning,
            trials=self._trials,
        )

    def snapshot(self) -> bytes:
        """Return everything as JSON; :meth:`restore` continues from it exactly."""
        state = {
            "format": _SNAPSHOT_FORMAT,
            "workload": self.settings.name,
            "signal": self.settings.uncertainty,
            "window": self._window.state(),
            "traffic": self._traffic.state(),
            **self._beliefs.state(),
            "published": self._published.state(),
            "holds": asdict(self._holds),
            "trials": self._trials.state(),
            "counters": asdict(self._counters),
            "now_us": self._now_us,
            "labels_until_fit": self._labels_until_fit,
            "queries_until_fit": self._queries_until_fit,
        }
        return json.dumps(state, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def restore(cls, settings: WorkloadSettings, snapshot: bytes, tuning: Tuning = DEFAULT) -> Self:
        """Return a core that continues where another one was.

        Parameters
        ----------
        settings : WorkloadSettings
            Target, sampling and costs may have changed since. With another uncertainty signal the core starts cold: of
            all that was learned only the numbers of versions go on.
        snapshot : bytes
            From :meth:`snapshot`.
        tuning : Tuning, optional
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
        core = cls(settings, tuning)
        if state.get("signal", DEFAULT_SIGNAL) != settings.uncertainty:  # not in the snapshots of former releases
            core._published.floor = state["published"]["floor"]
            core._holds = Holds(paused=state["holds"]["paused"])
            core._now_us = state["now_us"]
            return core
        core._window.load(state["window"])
        core._traffic.load(state["traffic"])
        core._beliefs.load(state)
        core._published.load(state["published"])
        core._holds = Holds(**state["holds"])
        if "trials" in state:  # not in the snapshots of former releases
            core._trials.load(state["trials"])
        core._counters = Counters(**state["counters"])
        core._now_us = state["now_us"]
        core._labels_until_fit = state["labels_until_fit"]
        core._queries_until_fit = state["queries_until_fit"]
        return core
