"""The trial of a version beside the one in force, and the comparison of both on the same traffic and labels.

A trial changes nothing about what is fitted: its queries carry their own propensities, and its map's predictions are
kept from the scores of the versions in force.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.codec import Kept
from recalibrator.fit.data.label_columns import LEAST_PROPENSITY
from recalibrator.fit.data.label_table import Change
from recalibrator.fit.decide.candidate import Part, View
from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.publish.evidence import micro_f1_interval
from schemas.calibration import Z95, CalibrationVersion, Interval
from schemas.command import Command
from schemas.costs import expected_cost
from schemas.event import MAX_INTEGER, from_us, to_us
from schemas.labelled import LabelledExample
from schemas.traffic import TrafficSummary
from schemas.trial import CalibrationTrial, TrialArm, TrialStatus

KEPT_LABELS = 5_000
"""Labelled queries of both arms that are compared, the latest to arrive."""

KEPT_NUMBERS = 64
"""Earlier trials whose late labels are still distinguished from those of versions in force."""

_LEAST_LABELS = 20
_PAIRS_MOST = 2**31 - 1


class _Label(NamedTuple):
    """One labelled query of an arm; ``counts`` is false of what was withdrawn."""

    revision: int
    labelled_us: int
    counts: bool
    on_trial: bool
    hits: int
    size: int
    wrong: bool
    label_probability: float


@dataclass(slots=True)
class _Tally:
    queries: int = 0
    escalated: int = 0
    base_escalated: int = 0
    agreeing: int = 0
    acted: int = 0


class Trials(Part):
    """The trial under way, or the latest, of one workload; of one that goes on, what is compared is counted again."""

    _trial: Kept[CalibrationTrial | None]
    _ended_us: Kept[int | None] = None
    _ended_by: Kept[str | None] = None
    _tally: Kept[_Tally]
    _labels: Kept[dict[str, _Label]]
    _numbers: Kept[list[int]]

    def __init__(self, running: CalibrationTrial | None = None) -> None:
        self._trial = running
        self._tally = _Tally()
        self._labels = {}
        self._numbers = [] if running is None else [running.version.version]

    @property
    def running(self) -> CalibrationTrial | None:
        """The trial under way, or None."""
        return self._trial if self._ended_us is None else None

    def begin(self, command: Command, version: CalibrationVersion, now_us: int) -> None:
        """Begin a trial (``shadow`` or ``canary``), in place of the one under way; its version has its own number."""
        self._trial = CalibrationTrial(
            workload=command.workload,
            mode="canary" if command.action == "canary" else "shadow",
            share=command.share if command.action == "canary" else None,
            version=version,
            base_version=version.parent_version,
            started_at=from_us(now_us),
            issued_by=command.issued_by,
            reason=command.reason,
        )
        self._ended_us = self._ended_by = None
        self._tally, self._labels = _Tally(), {}
        self._numbers = [*self._numbers, version.version][-KEPT_NUMBERS:]

    def end(self, by: str, now_us: int) -> None:
        """End the trial under way, if there is one."""
        if self.running is not None:
            self._ended_us, self._ended_by = now_us, by

    def hides(self, example: LabelledExample) -> bool:
        """Whether a version on trial predicted its error: those of versions in force are scored, and compared."""
        return example.calibration_version in self._numbers

    def take_label(self, example: LabelledExample, change: Change | None) -> None:  # noqa: ARG002
        """Keep what a label says of an arm of a canary."""
        trial = self._trial
        if trial is not None and trial.mode == "canary" and example.label_requested:
            routed_us = to_us(example.routed_at)
            of_this = example.calibration_version == trial.version.version
            within = to_us(trial.started_at) <= routed_us <= (self._ended_us or routed_us)
            if of_this or (within and not self.hides(example) and example.calibration_version is not None):
                self._keep(example, of_this)

    def _keep(self, example: LabelledExample, of_this: bool) -> None:
        known = self._labels.get(example.query_id)
        # Of one query the highest revision counts; when all else is equal, withdrawing does.
        revision, labelled_us, counts = example.revision, to_us(example.labelled_at), not example.retracted
        rank = revision, labelled_us, not counts
        if known is not None and (known.revision, known.labelled_us, not known.counts) >= rank:
            return
        served, gold = example.served, example.gold_count
        assert served is not None
        assert gold is not None
        hits, size = min(served.true_positives, _PAIRS_MOST), min(served.predicted + gold, _PAIRS_MOST)
        wrong, asked = not example.served_exact, _asked(example)
        self._labels[example.query_id] = _Label(revision, labelled_us, counts, of_this, hits, size, wrong, asked)
        while len(self._labels) > KEPT_LABELS:
            del self._labels[next(iter(self._labels))]

    def take_traffic(self, summary: TrafficSummary) -> None:
        """Add the queries for which this trial's version decided too."""
        trial = self._trial
        for part in summary.trials:
            if trial is not None and part.version == trial.version.version:
                for counted in fields(_Tally):
                    total = getattr(self._tally, counted.name) + getattr(part, counted.name)
                    setattr(self._tally, counted.name, min(MAX_INTEGER, total))

    def status(self, view: View, policies: Policies | None) -> dict[str, Any]:
        """Compare the trial with what is in force."""
        trial = self._trial
        if trial is None:
            return {}
        tally = self._tally
        # What is in force by now is not what a trial that has ended was compared with.
        current = None if self.running is None else view.current
        content_of = trial.version.evidence.details.get("content_of")
        found = TrialStatus(
            mode=trial.mode,
            share=trial.share,
            version=trial.version.version,
            content_of=content_of if isinstance(content_of, int) else None,
            base_version=trial.base_version,
            started_at=trial.started_at,
            ended_at=None if self._ended_us is None else from_us(self._ended_us),
            ended_by=self._ended_by,
            issued_by=trial.issued_by,
            reason=trial.reason,
            compared=tally.queries,
            agreement=_share(tally.agreeing, tally.queries),
            trial=self._arm(trial.version, view, policies, on_trial=True),
            base=self._arm(current, view, policies, on_trial=False),
        )
        return {"trial": found}

    def _arm(
        self, version: CalibrationVersion | None, view: View, policies: Policies | None, *, on_trial: bool
    ) -> TrialArm:
        tally, costs = self._tally, view.costs
        rate = _share(tally.escalated if on_trial else tally.base_escalated, tally.queries)
        estimated = None
        if policies is not None and version is not None:
            estimated = micro_f1_interval(policies, policies.index(version.uncertainty_threshold), Z95)
        labels = [one for one in self._labels.values() if one.counts and one.on_trial is on_trial]
        micro_f1, error_rate = _scores(labels)
        return TrialArm(
            version=None if version is None else version.version,
            escalation_rate=rate,
            cost=None if costs is None or rate is None else expected_cost(costs, rate),
            estimated_micro_f1=estimated,
            queries=tally.acted if on_trial else max(0, tally.queries - tally.acted),
            labels=len(labels),
            micro_f1=micro_f1,
            error_rate=error_rate,
        )


def _asked(example: LabelledExample) -> float:
    """Return the probability that this answer was labelled, given whether its query explored.

    Exploration is drawn inside the label draw: of kept queries those that explore are labelled for sure, and the others
    less often than all of them.
    """
    asked, explored = example.label_probability, example.large_probability
    if explored >= asked or example.reason not in ("kept", "exploration"):
        return asked
    return 1.0 if example.reason == "exploration" else (asked - explored) / (1.0 - explored)


def _share(part: int, whole: int) -> float | None:
    return min(1.0, part / whole) if whole else None


def _scores(labels: list[_Label]) -> tuple[Interval | None, Interval | None]:
    """Return micro-F1 and error rate of served answers: ratios of sums weighted by inverse label propensity."""
    if len(labels) < _LEAST_LABELS:
        return None, None
    weight = 1.0 / np.maximum(np.array([one.label_probability for one in labels]), LEAST_PROPENSITY)
    hits = 2.0 * np.array([one.hits for one in labels], dtype=np.float64)
    size = np.array([one.size for one in labels], dtype=np.float64)
    wrong = np.array([one.wrong for one in labels], dtype=np.float64)
    return _ratio(weight, hits, size), _ratio(weight, wrong, np.ones(len(labels)))


def _ratio(weight: NDArray[np.float64], part: NDArray[np.float64], whole: NDArray[np.float64]) -> Interval | None:
    """Return sum(w part) / sum(w whole) with a 95% interval, by the delta method."""
    total = float(weight @ whole)
    if total <= 0.0:
        return None
    ratio = float(weight @ part) / total
    error = float(np.linalg.norm(weight * (part - ratio * whole))) / total
    return Interval(estimate=min(1.0, ratio), lower=max(0.0, ratio - Z95 * error), upper=min(1.0, ratio + Z95 * error))
