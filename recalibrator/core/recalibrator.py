"""The fold: labelled examples, traffic summaries and commands of one workload flow in, calibration versions flow out.

Time comes from the events alone, by the clocks of those who route and command: labelers' clocks are not trusted with
it. The same events in the same order give byte-identical versions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from recalibrator.core.commands import Holds, interpret
from recalibrator.core.decide.certify import Certifier
from recalibrator.core.decide.explore import exploration_now
from recalibrator.core.decide.hysteresis import reason_to_publish
from recalibrator.core.decide.panel import Alarm, Panel
from recalibrator.core.decide.threshold import Choice, Policies, choose, weigh
from recalibrator.core.estimate.outlook import Outlook, look_out
from recalibrator.core.estimate.smooth import Floats
from recalibrator.core.evidence import costs, evidence
from recalibrator.core.observe.cells import Grid
from recalibrator.core.observe.instants import to_us
from recalibrator.core.observe.prequential import calibration_error
from recalibrator.core.observe.traffic import TrafficWindow
from recalibrator.core.observe.window import LabelWindow
from recalibrator.core.published import Published, commanded
from recalibrator.core.status import Counters, workload_status
from recalibrator.core.trial import Trials
from recalibrator.core.tuning import DEFAULT, Tuning
from schemas.calibration import CalibrationVersion
from schemas.command import Command
from schemas.labelled import LabelledExample
from schemas.settings import WorkloadSettings
from schemas.status import WorkloadStatus
from schemas.traffic import TrafficSummary
from schemas.trial import CalibrationTrial

Observation = LabelledExample | TrafficSummary | Command

_SNAPSHOT_FORMAT = 1
_FRESH_LABELS_BETWEEN_CHANGES = 200
_TRAFFIC_KEPT_LEAST = 500


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
        self._window = LabelWindow(self._grid, settings.target.micro_f1, settings.fields, tuning.window_labels)
        self._traffic = TrafficWindow(self._grid, tuning.window_queries)
        self._panel = Panel(self._grid.cells)
        self._published = Published(settings, tuning.kept_versions)
        self._certifier = self._new_certifier()
        self._map_in_force: tuple[CalibrationVersion, Floats] | None = None
        self._holds = Holds()
        self._trials = Trials()
        self._counters = Counters()
        self._now_us = 0
        self._changed_us: int | None = None
        self._labels_since_change = 0
        self._labels_until_fit = tuning.refit_labels_least
        self._queries_until_fit = float(tuning.refit_queries)

    def _new_certifier(self) -> Certifier | None:
        target, sampling = self.settings.target, self.settings.sampling
        if target.certified is None:
            return None
        least = min(
            sampling.exploration_probability, sampling.label_probability_kept, sampling.label_probability_escalated
        )
        return Certifier(self._grid.cells + 1, target.micro_f1, len(self.settings.fields), least, target.certified)

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
        if isinstance(event, LabelledExample):
            return self._observe_label(event)
        if isinstance(event, TrafficSummary):
            return self._observe_traffic(event)
        return self._obey(event)

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
        alarms: list[Alarm] = []
        if change == "added":
            error = 0.0 if example.small_exact else 1.0
            predicted = example.error_probability
            alarms = self._panel.on_label(predicted, error, example.agree, routed_us, self._now_us)
            self._labels_since_change += self._changed_us is not None and routed_us >= self._changed_us
            if self._certifier is not None:
                cell = self._grid.cells if example.uncertainty is None else self._grid.index(example.uncertainty)
                self._certifier.observe(example, cell, routed_us)
        self._labels_until_fit -= 1
        if alarms and self._heed(alarms):
            return self._refit(drifted=True)
        return self._refit() if self._labels_until_fit <= 0 else None

    def _observe_traffic(self, summary: TrafficSummary) -> CalibrationVersion | None:
        self._trials.take_traffic(summary)
        batch = self._traffic.add(summary)
        self._now_us = max(self._now_us, batch.last_us)
        self._counters.on_traffic(batch.sums["labels_requested"])
        self._queries_until_fit -= batch.sums["queries"]
        alarms = self._panel.on_traffic(batch.cell, batch.counts, batch.last_us)
        if alarms and self._heed(alarms):
            return self._refit(drifted=True)
        return self._refit() if self._queries_until_fit <= 0.0 else None

    def _heed(self, alarms: list[Alarm]) -> bool:
        """Forget what the alarms have made obsolete; returns whether a refit is due at once."""
        for alarm in alarms:
            if alarm.meaning == "traffic" and self._traffic.queries_since(alarm.began_us) >= _TRAFFIC_KEPT_LEAST:
                self._traffic.forget_before(alarm.began_us)
            # A second alarm soon after the first is the same change, seen once more.
            first = self._changed_us is None or self._labels_since_change >= _FRESH_LABELS_BETWEEN_CHANGES
            # Suspect labels are believed until somebody says otherwise: both models failing alike looks the same.
            if alarm.meaning != "traffic" and first and alarm.began_us > (self._changed_us or 0):
                self._changed_us = alarm.began_us
                self._labels_since_change = self._window.labels_since(alarm.began_us)
                if self._certifier is not None:
                    self._certifier.restart(self._now_us)
        return bool(alarms)

    def look(self) -> View:
        """Estimate and weigh everything as it stands, without deciding anything."""
        current = self.current
        serving = None if current is None else current.uncertainty_threshold
        outlook = look_out(self._window, self._traffic, serving, self._changed_us, self.tuning)
        exploration = self._exploration()
        policies = weigh(outlook, self._grid.edges, self.settings.target.micro_f1, exploration)
        choice = choose(policies, self.settings.target.safety)
        if self._certifier is not None:
            choice = self._certifier.cap(choice)
        return View(outlook, exploration, policies, choice)

    def _exploration(self) -> float:
        most = self.settings.sampling.exploration_probability
        if self._certifier is not None:
            return most  # its proofs live on explored queries
        return exploration_now(
            most,
            (detector.state for detector in self._panel.detectors),
            None if self._changed_us is None else self._labels_since_change,
            quiet_share=self.tuning.quiet_exploration,
            alert_labels=self.tuning.alert_labels,
        )

    def _refit(self, *, drifted: bool = False, commanded: str | None = None) -> CalibrationVersion | None:
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
        self._panel.expect(view.outlook.shift.agreement, support.error_given_agreement)
        self._counters.effective_labels = support.effective_labels
        trigger = commanded or self._trigger(view, drifted=drifted)
        if trigger is None or support.labels < tuning.minimum_bootstrap_labels or not support.pairs:
            return None
        return self._publish(view, trigger)

    def _trigger(self, view: View, *, drifted: bool) -> str | None:
        support, current, tuning = view.outlook.support, self.current, self.tuning
        if self._holds.any or support.effective_labels < tuning.minimum_labels:
            return None
        if current is None:
            return "first_fit" if support.effective_pairs >= tuning.minimum_pairs else None
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
        drift = self._panel.status(None).state
        found = evidence(trigger, view.outlook, view.policies, view.choice, scores, self.settings, model_costs, drift)
        if self._certifier is not None:
            proof = self._certifier.details(view.policies.thresholds)
            found = found.model_copy(update={"details": {**found.details, "certified": proof}})
        return self._published.publish(
            self._now_us,
            view.outlook.map,
            float(view.policies.thresholds[view.choice.index]),
            "active" if view.choice.feasible else "infeasible",
            found,
            model_costs,
            view.exploration,
        )

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
        version = self._published.publish(self._now_us, *content, model_costs, on_trial=is_tried)
        if is_tried:
            self._trials.begin(command, version, self._now_us)
            return None
        return version

    def status(self) -> WorkloadStatus:
        """Return how the workload keeps its promise, as of the events seen; costs about a refit, changes nothing."""
        view = self.look() if len(self._window) else None
        return workload_status(
            self.settings,
            self.current,
            None if view is None else view.outlook.support,
            None if view is None else view.policies,
            window=self._window,
            traffic=self._traffic,
            panel=self._panel,
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
            "window": self._window.state(),
            "traffic": self._traffic.state(),
            "panel": self._panel.state(),
            "published": self._published.state(),
            "certifier": None if self._certifier is None else self._certifier.state(),
            "holds": asdict(self._holds),
            "trials": self._trials.state(),
            "counters": asdict(self._counters),
            "now_us": self._now_us,
            "changed_us": self._changed_us,
            "labels_since_change": self._labels_since_change,
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
            Target, sampling and costs may have changed since.
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
        core._window.load(state["window"])
        core._traffic.load(state["traffic"])
        core._panel.load(state["panel"])
        core._published.load(state["published"])
        if core._certifier is not None and state.get("certifier") is not None:
            core._certifier.load(state["certifier"])
        core._holds = Holds(**state["holds"])
        if "trials" in state:  # not in the snapshots of former releases
            core._trials.load(state["trials"])
        core._counters = Counters(**state["counters"])
        core._now_us = state["now_us"]
        core._changed_us = state["changed_us"]
        core._labels_since_change = state["labels_since_change"]
        core._labels_until_fit = state["labels_until_fit"]
        core._queries_until_fit = state["queries_until_fit"]
        return core
