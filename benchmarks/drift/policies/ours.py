"""The service's core as a policy: chunks and labels flow in as its own events, its versions decide.

Only the public interface is used: :meth:`Recalibrator.observe` and :meth:`Recalibrator.status`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.drift.oracle import LARGE_COST, TARGET
from benchmarks.drift.simulate import (
    EXPLORED,
    LABELLED_ESCALATED,
    LABELLED_KEPT,
    Alarm,
    Bools,
    Floats,
    Labels,
    Traffic,
)
from benchmarks.routed_batch import RoutedBatch, summarise
from recalibrator.core import Recalibrator
from recalibrator.core.observe.cells import Grid
from recalibrator.core.tuning import DEFAULT, Tuning
from schemas import (
    CalibrationVersion,
    Command,
    LabelledExample,
    OutcomeCounts,
    TrafficSummary,
    WorkloadSettings,
)

_WORKLOAD = "drift"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_LOOK_EVERY = 500
"""Queries between two looks at the detectors; a look costs about a refit."""


def _time(at_s: float) -> datetime:
    return _EPOCH + timedelta(seconds=at_s)


class Ours:
    """The core with some of its parts changed.

    Parameters
    ----------
    safety : float
        Margin, in standard errors.
    exploration : float
    watch : bool
        Whether the detectors' alarms are noted, which costs time.
    **tuned
        Fields of :class:`~recalibrator.core.tuning.Tuning` that differ from the defaults.
    """

    def __init__(
        self, safety: float = 0.5, exploration: float = EXPLORED, *, watch: bool = False, **tuned: Any
    ) -> None:
        self.alarms: list[Alarm] = []
        tuning: Tuning = replace(DEFAULT, **tuned)
        settings = WorkloadSettings.model_validate(
            {
                "name": _WORKLOAD,
                "fields": ("a", "b", "c", "d"),
                "target": {"micro_f1": TARGET, "safety": float(safety)},
                "cost": {"small": 1.0, "large": LARGE_COST},
                "sampling": {
                    "exploration_probability": float(exploration),
                    "label_probability_kept": LABELLED_KEPT,
                    "label_probability_escalated": LABELLED_ESCALATED,
                },
            }
        )
        self.core = Recalibrator(settings, tuning)
        self._grid = Grid(tuning.grid)
        self._watch = watch
        self._seen = 0
        self._known_alarms: dict[str, int] = {}

    @property
    def exploration(self) -> float:
        """The exploration probability in force."""
        return self._current().exploration_probability

    @property
    def audit(self) -> float:
        """The audit probability in force."""
        return self._current().audit_probability

    @property
    def version(self) -> int:
        """Number of the version in force, 0 before there is one."""
        return 0 if self.core.current is None else self.core.current.version

    def _current(self) -> CalibrationVersion:
        if self.core.current is None:
            raise RuntimeError("the labelled set of the start was too small for a first version")
        return self.core.current

    def start(self, labels: Labels) -> None:
        """Bootstrap as ``ucci-stream bootstrap`` does."""
        self.on_labels(labels)
        now = _time(float(labels.at_s[-1]))
        self.core.observe(Command(workload=_WORKLOAD, action="bootstrap", issued_by="benchmark", issued_at=now))

    def escalates(self, u: Floats) -> Bools:
        """Escalate u above the threshold in force."""
        return u > self._current().uncertainty_threshold

    def error_probability(self, u: Floats) -> Floats:
        """Return g(u) of the version in force."""
        return self._current().error_probability(u)

    def on_traffic(self, traffic: Traffic) -> None:
        """Hand one chunk over as one summary."""
        self.core.observe(self._summary(traffic))
        self._seen += len(traffic.u)
        if self._watch and self._seen % _LOOK_EVERY == 0:
            self._look()

    def _summary(self, traffic: Traffic) -> TrafficSummary:
        batch = RoutedBatch(
            traffic.u,
            traffic.large_ran,
            traffic.large_ran & ~traffic.escalated,
            traffic.agree,
            traffic.label_requested,
            _time(float(traffic.at_s[0])),
            _time(float(traffic.at_s[-1])),
        )
        return summarise(batch, self._grid, _WORKLOAD, self.version, LARGE_COST)

    def _look(self) -> None:
        for detector in self.core.status().drift.detectors:
            if detector.alarms > self._known_alarms.get(detector.name, 0):
                self.alarms.append(Alarm(self._seen, detector.name, detector.needs_labels))
            self._known_alarms[detector.name] = detector.alarms

    def on_labels(self, labels: Labels) -> None:
        """Hand the labels over one by one."""
        for row in zip(*(column.tolist() for column in labels), strict=True):
            self.core.observe(self._example(Labels(*row)))

    def _example(self, row: Any) -> LabelledExample:
        ran, offline = row.large_ran, row.number < 0
        reason = "cold_start" if offline else "threshold" if row.escalated else "exploration" if ran else "kept"
        return LabelledExample(
            query_id=f"q{row.number}",
            workload=_WORKLOAD,
            uncertainty=row.u,
            error_probability=None if np.isnan(row.routed_error) else row.routed_error,
            calibration_version=None if offline else row.version,
            small_exact=row.small == row.gold,
            small=OutcomeCounts(true_positives=row.small, predicted=row.gold),
            large=OutcomeCounts(true_positives=row.large, predicted=row.gold) if ran else None,
            gold_count=row.gold,
            large_probability=1.0 if row.escalated else self.exploration,
            label_probability=row.probability,
            label_requested=True,
            label_reason="audit" if row.audited else "exploration" if reason == "exploration" else "random",
            reason=reason,
            agree=row.agree if ran else None,
            routed_at=_time(row.at_s),
            labelled_at=_time(row.label_at_s),
        )


WITHOUT: dict[str, Callable[[], Ours]] = {
    "ours-no-margin": lambda: Ours(safety=0.0),
    "ours-no-tilt": lambda: Ours(tilt_ridge=1e12),
    "ours-no-rectifier": lambda: Ours(drift_scale=1e-9),
    "ours-no-discount": lambda: Ours(old_labels_least=1e9, old_labels_most=1e9),
    "ours-no-forgetting": lambda: Ours(half_life_slow=1e9),
    "ours-no-smoothing": lambda: Ours(bandwidth_cells=3, wide_bandwidth_cells=5),
    "ours-no-hysteresis": lambda: Ours(move_least=0.0, map_move_least=0.0),
    "ours-no-exploration": lambda: Ours(exploration=0.0),
}
"""Ours with one part less; what the core does not let be taken out by a constant is not in here."""
