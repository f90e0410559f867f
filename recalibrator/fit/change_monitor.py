"""What alarms and verdicts make obsolete: which labels are believed, since when, and whether the world has changed."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from recalibrator.fit.codec import Kept
from recalibrator.fit.data.label_columns import Standing
from recalibrator.fit.data.label_table import Distrust, LabelTable
from recalibrator.fit.data.traffic_window import AGREEING, COUNT, PAIRS, Batch, LateResults, TrafficWindow
from recalibrator.fit.drift.detector import Alarm
from recalibrator.fit.drift.known_worlds import KnownWorlds
from recalibrator.fit.drift.monitors import DriftMonitors, Predicted
from recalibrator.fit.estimate.estimate import Circumstances, errors_before
from recalibrator.fit.label_quality.crowd import (
    Effects,
    Expected,
    LabelQuality,
    LabelSeen,
    News,
    RecentPairs,
    Suspicion,
    count_audits,
    judge_again,
    suspect,
    take_label,
)
from recalibrator.fit.label_quality.labelers import Labelers
from recalibrator.fit.method_constants import MethodConstants
from schemas.labelled import LabelledExample
from schemas.settings import WorkloadSettings
from schemas.traffic import TrafficSummary

_FRESH_LABELS_BETWEEN_CHANGES = 200


class Change:
    """When something is believed to have changed last, and the number of labels since."""

    began_us: Kept[int | None] = None
    _fresh: Kept[int] = 0

    @property
    def fresh(self) -> int | None:
        """Labels of queries routed since the change."""
        return None if self.began_us is None else self._fresh

    def on_label(self, routed_us: int) -> None:
        """Count one label that is believed."""
        self._fresh += self.began_us is not None and routed_us >= self.began_us


class OutcomeChange(Change):
    """The last change of outcomes given u; labels of queries routed before it are discounted."""

    _seen_us: Kept[int] = 0
    _by_labels: Kept[bool] = False
    _before_us: Kept[int | None] = None
    #: Whether outcomes given agreement have changed as well, by what an audit says or for want of one.
    settled: Kept[bool] = True

    def is_new(self, began_us: int) -> bool:
        """Whether an alarm reports another change: soon after the last, it is the same one seen once more."""
        is_past = self.began_us is None or self._fresh >= _FRESH_LABELS_BETWEEN_CHANGES
        return is_past and began_us > (self.began_us or 0)

    def note(self, began_us: int, fresh: int, now_us: int, *, by_labels: bool, settled: bool) -> None:
        """Take a change in, with the labels known of queries routed since, and when it was reported.

        ``by_labels``: whether labels reported it, so that it is retracted when they are found to be wrong.
        """
        self._before_us, self.settled = self.began_us, settled
        self.began_us, self._fresh, self._seen_us, self._by_labels = began_us, fresh, now_us, by_labels

    def reported_by_labels(self, since_us: int) -> bool:
        """Whether labels have reported the last change, and did so since a time."""
        return self.began_us is not None and self._by_labels and self._seen_us >= since_us

    def retract(self, since_us: int) -> None:
        """Go back to the change before, if labels have reported the last one since a time."""
        if self.reported_by_labels(since_us):
            self.began_us, self._before_us = self._before_us, None

    def recount(self, fresh: int) -> None:
        """Set the labels since the change: some have been taken out, or are back."""
        self._fresh = fresh


class MixChange(Change):
    """The last change of the mix of queries."""

    #: Whether the one before it lies so far back that its labels have shown all they could: a mix that swings back and
    #: forth is no new one each time.
    is_lone: Kept[bool] = True

    def note(self, began_us: int, fresh: int, enough: int) -> None:
        """Take a change in, with the labels known of queries routed since, and how many show all they can."""
        self.is_lone = self.fresh is None or self.fresh >= enough
        self.began_us, self._fresh = began_us, fresh


_TRAFFIC_KEPT_LEAST = 500
_GUARD_LABELS = 500
"""Before an alarm's beginning, among which labels may have been like those after it already."""


class ChangeMonitor:
    """The detectors, label quality and the last change of one workload."""

    drift: Kept[DriftMonitors]
    label_quality: Kept[LabelQuality]
    labelers: Kept[Labelers]
    change: Kept[OutcomeChange]
    mix: Kept[MixChange]
    _late: Kept[LateResults]
    worlds: Kept[KnownWorlds]

    def __init__(
        self, settings: WorkloadSettings, constants: MethodConstants, labels: LabelTable, traffic: TrafficWindow
    ) -> None:
        self._constants, self._labels, self._traffic = constants, labels, traffic
        self.drift = DriftMonitors(labels.grid.cells, settings.detectors, settings.river, watch_mix=constants.watch_mix)
        self.label_quality = LabelQuality()
        self.labelers = Labelers(settings.trusted_labelers)
        self.change, self.mix = OutcomeChange(), MixChange()
        self._late = LateResults(labels.grid.cells)
        self.worlds = KnownWorlds(labels.grid.cells)

    def on_label(
        self,
        example: LabelledExample,
        standing: Standing,
        routed_us: int,
        now_us: int,
        *,
        may_ask: bool,
        map_labels: float = inf,
    ) -> tuple[bool, News | None]:
        """Take the first label in that was asked for of a query; the window already counts it as ``standing``.

        Returns whether an alarm calls for a refit at once, and news of suspected labels.
        ``may_ask``: whether an audit could be published. ``map_labels``: effective labels behind the map that the query
        was routed by; infinite where that is not known.
        """
        said = 0.0 if example.small_exact else 1.0
        # Whoever makes examples may call a failed large answer a disagreement.
        agree = None if example.reason == "degraded" else example.agree
        cell = None if example.uncertainty is None else self._labels.grid.index(example.uncertainty)
        audited = standing in (Standing.AUDITED, Standing.ANSWERED)
        refit_now = False
        if standing > 0:
            error = said if audited else self._labels.truth(cell, agree, said, routed_us)
            # What a failed call would have answered is unknown, other than where only one model was to be asked.
            related = None if example.reason == "degraded" else cell
            chance = example.error_probability
            predicted = None if chance is None else Predicted(chance, map_labels)
            alarms = self.drift.on_label(predicted, error, agree, related, routed_us, now_us)
            self.change.on_label(routed_us)
            self.mix.on_label(routed_us)
            refit_now = bool(alarms) and self._handle_alarms(alarms, now_us, may_ask=may_ask)
        if self.label_quality.is_trusting:
            return refit_now, None
        former = self.label_quality.suspicion
        seen = LabelSeen(routed_us, now_us, audited, cell, agree, said, self._labels, self._recent_pairs())
        self.label_quality, effects = take_label(self.label_quality, seen, self._constants)
        current = self.label_quality.suspicion
        if former and current and (former.slipping, former.log_odds) != (current.slipping, current.log_odds):
            # The crowd's labels count for what they are taken for now.
            ended = tuple(one for one in self._labels.slips if one.ended_us is not None)
            self._labels.slips = (*ended, current.slips())
        if effects.news is not None:
            self._apply(effects, now_us)
        return refit_now, effects.news

    def _recent_pairs(self) -> RecentPairs:
        pairs, agreeing = (float(self._traffic.counts[name].sum()) for name in (PAIRS, AGREEING))
        return RecentPairs(self._traffic.recent["queries"], pairs, agreeing)

    def compare_labelers(self, now_us: int) -> bool:
        """Compare labelers with each other; whether somebody was set aside, or is believed again."""
        return self._set_aside(self.labelers.on_label(self._labels), now_us)

    def compare_from_now_on(self, labeler: str, now_us: int, *, is_believed: bool) -> bool:
        """Compare a labeler with others, or believe that one; whether somebody was set aside, or is believed again."""
        (self.labelers.believed.add if is_believed else self.labelers.believed.discard)(labeler)
        return self._set_aside(self.labelers.look(self._labels), now_us)

    def _set_aside(self, distrust: Distrust | None, now_us: int) -> bool:
        """Set people aside before the crowd: what labels have reported so far is judged again without theirs."""
        if distrust is None:
            return False
        former = self._labels.distrust
        self._labels.set_distrust(distrust)
        for number, spans in distrust.items():
            if len(spans) > len(former.get(number, ())):
                self.change.retract(spans[-1][0])
        self.label_quality, effects = judge_again(self.label_quality)
        self._apply(effects, now_us)
        return True

    def on_traffic(
        self, summary: TrafficSummary, batch: Batch, audits: dict[int, float], now_us: int, *, may_ask: bool
    ) -> bool:
        """Take one summary in, with the same on this grid and audit probabilities by version.

        Returns whether a refit is due at once. ``may_ask``: whether an audit could be published.
        """
        self.label_quality = count_audits(self.label_quality, summary.versions, audits)
        pairs = batch.counts[PAIRS : AGREEING + 1]
        alarms = self.drift.on_pairs(batch.cell, pairs, batch.last_us)
        seen = self._late.take(batch)
        self.worlds.on_traffic(batch)
        if seen is not None:
            alarms += self.drift.on_mix(*seen, batch.last_us)
        refit_now = self._handle_alarms(alarms, now_us, may_ask=may_ask)
        if not self.worlds.is_back(self._labels, self._traffic):
            return refit_now
        self._traffic.forget_before(self.worlds.since_us)
        self.change, self.mix = OutcomeChange(), MixChange()
        self.drift.begin_anew(self._traffic.counts[COUNT].astype(np.float64), now_us)
        return True

    def _handle_alarms(self, alarms: list[Alarm], now_us: int, *, may_ask: bool) -> bool:
        """Forget what the alarms have made obsolete, and ask about labels; returns whether there were any."""
        for alarm in alarms:
            channel = alarm.channel
            # What traffic shows from before a change would blur what it shows since; labels come too late for that.
            obsolete = channel.meaning == "traffic" or (channel.meaning == "outcomes" and not channel.needs_labels)
            if obsolete and self._traffic.queries_since(alarm.began_us) >= _TRAFFIC_KEPT_LEAST:
                self._traffic.forget_before(alarm.began_us)
            if channel.meaning == "traffic":
                self.worlds.begin(alarm.began_us, by_mix=True)
                fresh = self._labels.labels_since(alarm.began_us)
                self.mix.note(alarm.began_us, fresh, self._constants.mix_labels)
            elif channel.meaning == "outcomes" or not may_ask:
                # Where nobody can be asked, suspect labels are believed: both models failing alike looks the same.
                suspect = channel.meaning == "labels"
                self._note_change(alarm.began_us, now_us, by_labels=channel.needs_labels, settled=suspect)
            elif self.label_quality.is_trusting and not self._set_aside(self.labelers.look(self._labels), now_us):
                self._suspect(alarm, now_us)
        return bool(alarms)

    def _suspect(self, alarm: Alarm, now_us: int) -> None:
        agreement = self.drift.agreement
        assert agreement is not None
        known_us = self._labels.earlier(alarm.began_us, _GUARD_LABELS)
        known = errors_before(self._labels, known_us, self._constants)
        began_us, agreeing = alarm.began_us, alarm.channel.agreeing
        suspected, recent = Suspicion(agreeing, began_us, Expected(agreement, known)), self._recent_pairs()
        suspected = suspect(suspected, self._labels, recent, now_us, self._constants)
        self.label_quality = replace(self.label_quality, suspicion=suspected)
        # Until trusted people have answered, the safe side is that both models fail alike.
        if agreeing and not self.change.reported_by_labels(began_us):
            self._note_change(began_us, now_us, by_labels=True, settled=False)

    def _note_change(self, began_us: int, now_us: int, *, by_labels: bool, settled: bool) -> None:
        # What was suspected of a world says nothing of the one that came back since.
        if not self.change.is_new(began_us) or began_us < self.worlds.back_us:
            self.change.settled |= settled
            return
        fresh = self._labels.labels_since(began_us)
        self.change.note(began_us, fresh, now_us, by_labels=by_labels, settled=settled)
        self.worlds.begin(began_us, by_labels=by_labels)

    def _apply(self, effects: Effects, now_us: int) -> None:
        """Apply the outcome of a suspicion of labels to the label table, and to what is known of changes."""
        if self.label_quality.is_trusting:
            self._labels.slips = tuple(
                one if one.ended_us is not None else one._replace(ended_us=effects.from_us)
                for one in self._labels.slips
                if one.ended_us is not None or one.began_us < effects.from_us
            )
        self.drift.restart_label_channels()
        if effects.retract:
            self.change.retract(effects.from_us)
        if effects.changed:
            self._note_change(effects.from_us, now_us, by_labels=True, settled=True)
        if self.change.began_us is not None:
            self.change.recount(self._labels.labels_since(self.change.began_us))

    def circumstances(self, serving_threshold: float | None) -> Circumstances:
        """Return what an estimate made now has to know of changes."""
        # An estimate splits labels at one instant: of both changes the later one that has enough labels since. To split
        # at a change of outcomes discounts what came before it; to split at one of the mix keeps all of it, and only
        # measures the curves on the current mix. A mix that swings back and forth is split once, not at every turn.
        change, mix, constants = self.change, self.mix, self._constants
        changed_us, by_mix = change.began_us, False
        if mix.began_us is not None and mix.is_lone and constants.mix_split:
            enough = (change.fresh or 0) >= constants.mix_labels
            by_mix = changed_us is None or (mix.began_us > changed_us and enough)
        is_learning = change.fresh is not None and change.fresh < constants.alert_labels
        return Circumstances(
            serving_threshold=serving_threshold,
            changed_us=mix.began_us if by_mix else changed_us,
            discounted=not by_mix,
            settled=change.settled,
            is_quiet=not is_learning and self.drift.worst == "ok",
            spans=self.worlds.spans,
            is_new_mix=mix.is_lone and mix.fresh is not None and mix.fresh < constants.mix_labels,
        )
