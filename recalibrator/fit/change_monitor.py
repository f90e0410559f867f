"""What is believed: which labels, since when, and whether the world has changed.

Labels and traffic flow in, each to the detectors, to the label gate and to the proof; what follows from alarms and
verdicts flows out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from recalibrator.fit.data.label_table import LabelWindow
from recalibrator.fit.data.table import ANSWERED, AUDITED, UNREQUESTED
from recalibrator.fit.data.traffic_window import AGREEING, PAIRS, Batch, TrafficWindow
from recalibrator.fit.decide.certifier import Certifier
from recalibrator.fit.drift.change_times import MixChange, OutcomeChange
from recalibrator.fit.drift.detector import Alarm
from recalibrator.fit.drift.monitors import DriftMonitors
from recalibrator.fit.estimate.estimate import errors_before
from recalibrator.fit.label_quality.labeler_watch import LabelerWatch
from recalibrator.fit.label_quality.state_machine import (
    AuditsDrawn,
    Effects,
    Expected,
    LabelQuality,
    LabelSeen,
    News,
    RecentPairs,
    Suspected,
    dump,
    load,
    step,
)
from recalibrator.fit.method_constants import Tuning
from schemas.labelled import LabelledExample
from schemas.settings import WorkloadSettings
from schemas.traffic import TrafficSummary

_TRAFFIC_KEPT_LEAST = 500
_GUARD_LABELS = 500
"""Before an alarm's beginning, among which labels may have been like those after it already."""


class Learnt(NamedTuple):
    """Whether an alarm calls for a refit at once, and news of suspected labels."""

    due: bool
    news: News | None = None


class Beliefs:
    """The detectors, the label gate, the last change and the proof of one workload.

    Parameters
    ----------
    settings : WorkloadSettings
    tuning : Tuning
    window : LabelWindow
        Labels in quarantine are marked in it.
    traffic : TrafficWindow
        Forgets what a change of the mix of queries has made obsolete.
    """

    def __init__(self, settings: WorkloadSettings, tuning: Tuning, window: LabelWindow, traffic: TrafficWindow) -> None:
        self._tuning, self._window, self._traffic = tuning, window, traffic
        self._sampling = settings.sampling
        self.panel = DriftMonitors(window.grid.cells, settings.detectors, watch_mix=tuning.watch_mix)
        self.quality = LabelQuality()
        self.labelers = LabelerWatch(settings.trusted_labelers)
        self.change, self.mix = OutcomeChange(), MixChange()
        self.certifier = _certifier(settings, window.grid.cells)

    def on_label(
        self, example: LabelledExample, standing: float, routed_us: int, now_us: int, *, may_ask: bool
    ) -> Learnt:
        """Take the first label of a query in, which the window already knows.

        Parameters
        ----------
        example : LabelledExample
            Whose label was asked for.
        standing : float
            As what the window counts it.
        routed_us, now_us : int
        may_ask : bool
            Whether an audit could be published.
        """
        error = 0.0 if example.small_exact else 1.0
        # Earlier releases called a failed large answer a disagreement.
        agree = None if example.reason == "degraded" else example.agree
        cell = None if example.uncertainty is None else self._window.grid.index(example.uncertainty)
        due = False
        if standing > UNREQUESTED:
            # What a failed call would have answered is unknown, other than where only one model was to be asked.
            related = None if example.reason == "degraded" else cell
            alarms = self.panel.on_label(example.error_probability, error, agree, related, routed_us, now_us)
            self.change.on_label(routed_us)
            self.mix.on_label(routed_us)
            # Trusted answers alone are not drawn as they tell: in quarantine nothing is proven.
            if self.certifier is not None and self.quality.quarantine is None:
                self.certifier.observe(example, self._cell(example), routed_us)
            due = self._heed(alarms, now_us, may_ask=may_ask)
        if self.quality.is_trusting:
            return Learnt(due)
        audited, recent = standing in (AUDITED, ANSWERED), self._recent_pairs()
        seen = LabelSeen(routed_us, now_us, audited, cell, agree, error, self._window, recent)
        self.quality, effects = step(self.quality, seen, self._tuning)
        if effects.news is not None:
            self._apply(effects, now_us)
        return Learnt(due, effects.news)

    def _recent_pairs(self) -> RecentPairs:
        pairs, agreeing = (float(self._traffic.counts[name].sum()) for name in (PAIRS, AGREEING))
        return RecentPairs(self._traffic.recent["queries"], pairs, agreeing)

    def on_correction(self, example: LabelledExample, standing: float, routed_us: int, now_us: int) -> None:
        """Take a correction or a withdrawal in: what is proven with a label is proven anew with what stands now.

        Parameters
        ----------
        example : LabelledExample
            As it stands now.
        standing : float
            As what the window counts it.
        routed_us, now_us : int
        """
        if self.certifier is None:
            return
        cell = self._cell(example)
        counted = example if standing > UNREQUESTED else None
        if not self.certifier.revise(example.query_id, counted, cell, routed_us):
            self.certifier.restart(now_us)

    def _cell(self, example: LabelledExample) -> int:
        grid = self._window.grid
        return grid.cells if example.uncertainty is None else grid.index(example.uncertainty)

    def compare_labelers(self, now_us: int) -> bool:
        """Compare labelers with each other; whether somebody was set aside, or is believed again."""
        if not self.labelers.on_label(self._window):
            return False
        self.panel.restart_label_channels()
        if self.change.began_us is not None:
            self.change.recount(self._window.labels_since(self.change.began_us))
        if self.certifier is not None:
            self.certifier.restart(now_us)
        return True

    def on_traffic(
        self, summary: TrafficSummary, batch: Batch, audits: dict[int, float], now_us: int, *, may_ask: bool
    ) -> bool:
        """Take one summary in; returns whether a refit is due at once.

        Parameters
        ----------
        summary : TrafficSummary
        batch : Batch
            The same on this grid.
        audits : dict
            Audit probability by version.
        now_us : int
        may_ask : bool
            Whether an audit could be published.
        """
        self.quality, _ = step(self.quality, AuditsDrawn(summary, audits), self._tuning)
        alarms = self.panel.on_traffic(batch.cell, batch.counts, batch.last_us)
        return self._heed(alarms, now_us, may_ask=may_ask)

    def _heed(self, alarms: list[Alarm], now_us: int, *, may_ask: bool) -> bool:
        """Forget what the alarms have made obsolete, and ask about labels; returns whether there were any."""
        for alarm in alarms:
            channel = alarm.channel
            # What traffic shows from before a change would blur what it shows since; labels come too late for that.
            obsolete = channel.meaning == "traffic" or (channel.meaning == "outcomes" and not channel.needs_labels)
            if obsolete and self._traffic.queries_since(alarm.began_us) >= _TRAFFIC_KEPT_LEAST:
                self._traffic.forget_before(alarm.began_us)
            if channel.meaning == "traffic":
                fresh = self._window.labels_since(alarm.began_us)
                self.mix.note(alarm.began_us, fresh, self._tuning.mix_labels)
            elif channel.meaning == "outcomes" or not may_ask:
                # Where nobody can be asked, suspect labels are believed: both models failing alike looks the same.
                suspect = channel.meaning == "labels"
                self._note_change(alarm.began_us, now_us, by_labels=channel.needs_labels, settled=suspect)
            elif self.quality.is_trusting:
                self._suspect(alarm, now_us)
        return bool(alarms)

    def _suspect(self, alarm: Alarm, now_us: int) -> None:
        agreement = self.panel.agreement
        assert agreement is not None
        known_us = self._window.earlier(alarm.began_us, _GUARD_LABELS)
        known = errors_before(self._window, known_us, self._tuning)
        began_us, agreeing = alarm.began_us, alarm.channel.agreeing
        expected = Expected.of(agreement, known, self._window.revisions.odds()[1:3])
        alarmed = Suspected(began_us, agreeing, expected, self._window, self._recent_pairs(), now_us)
        self.quality, _ = step(self.quality, alarmed, self._tuning)
        if self.certifier is not None:
            self.certifier.restart(now_us)
        # Until trusted people have answered, the safe side is that both models fail alike. A change that these labels
        # have told already is kept: it is taken back as one if they are refuted.
        if agreeing and not self.change.was_told(began_us):
            self._note_change(began_us, now_us, by_labels=True, settled=False)

    def _note_change(self, began_us: int, now_us: int, *, by_labels: bool, settled: bool) -> None:
        if not self.change.is_news(began_us):
            self.change.settled |= settled
            return
        fresh = self._window.labels_since(began_us)
        self.change.note(began_us, fresh, now_us, by_labels=by_labels, settled=settled)
        if self.certifier is not None:
            self.certifier.restart(now_us)

    def _apply(self, effects: Effects, now_us: int) -> None:
        """Apply the outcome of a suspicion of labels to the label table, and to what is known of changes."""
        spans = self._window.spans
        if effects.set_aside:
            self._window.quarantine((*spans, (effects.from_us, None)))
        elif effects.believe:
            begins_us = spans[-1][0]
            self._window.quarantine((*spans[:-1], (begins_us, max(begins_us, effects.from_us))))
        self.panel.restart_label_channels()
        if effects.retract:
            self.change.told_wrongly(effects.from_us)
        if effects.changed:
            self._note_change(effects.from_us, now_us, by_labels=True, settled=effects.settled)
        elif self.certifier is not None:
            self.certifier.restart(now_us)
        if self.change.began_us is not None:
            self.change.recount(self._window.labels_since(self.change.began_us))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has changed lately, and nothing is suspected to."""
        learning = self.change.fresh is not None and self.change.fresh < self._tuning.alert_labels
        return not learning and self.panel.is_quiet

    @property
    def split(self) -> tuple[int | None, bool]:
        """From when on labels count as recent, and whether those before are to count for little.

        A change of outcomes makes earlier labels obsolete. A change of the mix of queries does not, but what recent
        labels add to the curves is to be measured on the current mix alone.
        """
        change, mix = self.change, self.mix
        if mix.began_us is None or not (mix.is_lone and self._tuning.mix_split):
            return change.began_us, True
        learnt = change.began_us is None or (
            mix.began_us > change.began_us and (change.fresh or 0) >= self._tuning.mix_labels
        )
        return (mix.began_us, False) if learnt else (change.began_us, True)

    @property
    def drift_scale(self) -> float:
        """Typical unseen change of micro-F1: larger while few labels tell of a new mix of queries."""
        tuning = self._tuning
        is_new = self.mix.is_lone and self.mix.fresh is not None and self.mix.fresh < tuning.mix_labels
        return tuning.drift_scale * tuning.mix_drift_factor if is_new else tuning.drift_scale

    def exploration(self) -> float:
        """Return the exploration probability of the next version."""
        most = self._sampling.exploration_probability
        if self.certifier is not None:
            return most  # its proofs live on explored queries
        # Exploration is paid with every query and needed where outcomes have changed: there the large model's answers
        # below the threshold must be learnt anew. While nothing changes, labels that age slowly still show them.
        return most * self._tuning.quiet_exploration if self.is_quiet else most

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        return {
            "panel": self.panel.state(),
            "label_quality": dump(self.quality),
            "certifier": None if self.certifier is None else self.certifier.state(),
            **self.change.state(),
            "mix": self.mix.state(),
            "labelers": self.labelers.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back, once the window has its own."""
        self.panel.load(state["panel"])
        self.quality = load(state["label_quality"], self._window.grid.cells)
        if self.certifier is not None and state.get("certifier") is not None:
            self.certifier.load(state["certifier"])
        self.change.load(state)
        self.mix.load(state["mix"])
        self.labelers.load(state["labelers"])


def _certifier(settings: WorkloadSettings, cells: int) -> Certifier | None:
    target, sampling = settings.target, settings.sampling
    if target.certified is None:
        return None
    least = min(sampling.exploration_probability, sampling.label_probability_kept, sampling.label_probability_escalated)
    return Certifier(cells + 1, target.micro_f1, len(settings.fields), least, target.certified)
