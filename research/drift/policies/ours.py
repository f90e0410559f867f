"""The service's core as a policy: chunks and labels flow in as its own events, its versions decide.

Only the public interface is used: :meth:`Recalibrator.observe` and :meth:`Recalibrator.status`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from recalibrator.fit.method_constants import DEFAULT, MethodConstants
from recalibrator.grid import Grid
from research.drift.desk import NAMES
from research.drift.mess import EXPERT, EXPLORED, LABELLED_ESCALATED, LABELLED_KEPT, Sampling
from research.drift.oracle import LARGE_COST, TARGET
from research.drift.simulate import (
    Alarm,
    Bools,
    Floats,
    Labels,
    TakesMess,
    Traffic,
)
from research.routed_batch import RoutedBatch, summarise
from schemas import (
    CalibrationVersion,
    Command,
    LabelledExample,
    OutcomeCounts,
    TrafficSummary,
    WorkloadSettings,
)
from schemas.calibration import LabelShares
from schemas.routed import DecisionReason
from schemas.settings_workload import DEFAULT_DETECTORS

_WORKLOAD = "drift"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_LOOK_EVERY = 500
"""Queries between two looks at the detectors; a look costs about a refit."""


def _time(at_s: float) -> datetime:
    return _EPOCH + timedelta(seconds=at_s)


class Ours(TakesMess):
    """The core with some of its parts changed.

    ``safety``: margin, in standard errors. ``watch``: whether the detectors' alarms are noted, which costs time.
    ``detectors``: which of our detectors. ``river``: arguments of river's, by class. ``budget``: mean sequential
    cost of a query, in small calls, which takes the place of the target on micro-F1. ``labels``: A query, which the
    service spends as it sees fit, instead of the usual shares. ``**tuned``: constants of
    :mod:`recalibrator.fit.method_constants` that differ from the defaults, by their own names.
    """

    def __init__(
        self,
        safety: float = 0.65,
        exploration: float = EXPLORED,
        *,
        watch: bool = False,
        detectors: tuple[str, ...] = DEFAULT_DETECTORS,
        river: dict[str, dict[str, float]] | None = None,
        budget: float | None = None,
        labels: float | None = None,
        **tuned: Any,
    ) -> None:
        self.alarms: list[Alarm] = []
        super().__init__()
        self.constants: MethodConstants = replace(DEFAULT, **tuned)
        self._settings: dict[str, Any] = {
            "name": _WORKLOAD,
            "fields": ("a", "b", "c", "d"),
            "target": {"micro_f1": TARGET, "safety": float(safety)} if budget is None else {"cost": budget},
            "cost": {"small": 1.0, "large": LARGE_COST},
            "calibration_map": "isotonic",
            **(
                {
                    "sampling": {
                        "exploration_probability": float(exploration),
                        "label_probability_kept": LABELLED_KEPT,
                        "label_probability_escalated": LABELLED_ESCALATED,
                    }
                }
                if labels is None
                else {"labels": {"per_queries": labels}}
            ),
            "detectors": detectors,
            "river": river or {},
        }
        self.core = self._fresh()
        self._grid = Grid(self.constants.grid)
        self._watch, self._explored = watch, float(exploration)
        self._seen = 0
        self._known_alarms: dict[str, int] = {}

    def _fresh(self) -> Recalibrator:
        return Recalibrator(WorkloadSettings.model_validate(self._settings), self.constants)

    @property
    def exploration(self) -> float:
        """The exploration probability in force."""
        current = self.core.current
        return self._explored if current is None else current.exploration_probability

    @property
    def audit(self) -> float:
        """The audit probability in force."""
        return 0.0 if self.core.current is None else self.core.current.audit_probability

    @property
    def version(self) -> int:
        """Number of the version in force, 0 before there is one."""
        return 0 if self.core.current is None else self.core.current.version

    def _current(self) -> CalibrationVersion:
        if self.core.current is None:
            raise RuntimeError("the labelled set of the start was too small for a first version")
        return self.core.current

    @property
    def label_shares(self) -> LabelShares:
        """The shares in force."""
        return (self.core.settings if self.core.current is None else self.core.current).label_shares

    def trust_expert(self) -> None:
        """Name the expert in the workload's settings."""
        self._settings["trusted_labelers"] = (EXPERT,)
        self.core = self._fresh()

    def take_sampling(self, sampling: Sampling) -> None:
        """Write into the workload's settings how much is labelled and explored."""
        self._explored = min(self._explored, sampling.explored)
        self._settings["sampling"] = {
            "exploration_probability": self._explored,
            "label_probability_kept": sampling.kept,
            "label_probability_escalated": sampling.escalated,
        }
        self.core = self._fresh()

    def start(self, labels: Labels) -> None:
        """Bootstrap as ``ucci-stream bootstrap`` does, from a file that names no labelers."""
        self.on_labels(labels)
        self._bootstrap(_time(float(labels.at_s[-1])))

    def _bootstrap(self, now: datetime) -> None:
        self._observe(Command(workload=_WORKLOAD, action="bootstrap", issued_by="benchmark", issued_at=now))

    def _observe(self, event: Observation) -> None:
        """Take one event in, and note the version that it brings about."""
        audited = self.core.current is not None and self.core.current.audit_probability > 0.0
        version = self.core.observe(event)
        if version is not None:
            self.journal.published.append((self._seen, version.uncertainty_threshold))
            self.journal.audits += version.audit_probability > 0.0 and not audited

    def escalates(self, u: Floats) -> Bools:
        """Escalate u above the threshold in force, and all before there is one."""
        return u > (-1.0 if self.core.current is None else self.core.current.uncertainty_threshold)

    def explores(self, u: Floats, draws: Floats) -> Bools:
        """Explore, and cut an atom of u, as the version in force says."""
        explored, current = draws < self.exploration, self.core.current
        return (
            explored if current is None or current.atom is None else explored | current.decide_many(u, draws).explored
        )

    def error_probability(self, u: Floats) -> Floats | None:
        """Return g(u) of the version in force."""
        return None if self.core.current is None else self.core.current.error_probability(u)

    def on_traffic(self, traffic: Traffic) -> None:
        """Hand one chunk over as one summary."""
        self._seen += len(traffic.u)
        self._observe(self._summary(traffic))
        if self._watch and self._seen % _LOOK_EVERY == 0:
            self._look()

    def _summary(self, traffic: Traffic) -> TrafficSummary:
        return summarise(self._batch(traffic), self._grid, _WORKLOAD, self.version, LARGE_COST)

    def _batch(self, traffic: Traffic) -> RoutedBatch:
        return RoutedBatch(
            traffic.u,
            traffic.large_ran,
            traffic.large_ran & ~traffic.escalated,
            traffic.agree,
            traffic.label_requested,
            _time(float(traffic.at_s.min())),
            _time(float(traffic.at_s.max())),
            traffic.large_failed,
            traffic.small_latency_s,
            traffic.large_latency_s,
        )

    def _look(self) -> None:
        status = self.core.status()
        audit, labelers = status.details["label_audit"], status.details["labelers_set_aside"]
        assert isinstance(audit, dict)
        assert isinstance(labelers, dict)
        of_labelers = sum(int(str(one["labels"])) for one in labelers.values() if isinstance(one, dict))
        self.journal.set_aside.append((self._seen, int(str(audit["quarantined"])) + of_labelers))
        self.journal.drifted.append(status.drift.state == "drifted")
        for detector in status.drift.detectors:
            if detector.alarms > self._known_alarms.get(detector.name, 0):
                self.alarms.append(Alarm(self._seen, detector.name, detector.needs_labels))
            self._known_alarms[detector.name] = detector.alarms

    def on_labels(self, labels: Labels) -> None:
        """Hand the labels over one by one."""
        for row in zip(*(column.tolist() for column in labels), strict=True):
            self._observe(self._example(Labels(*row)))

    def _example(self, row: Any) -> LabelledExample:
        ran, requested = row.large_ran, row.requested
        explored = ran and not row.escalated
        reason = self._reason(row, explored=explored)
        unknown, answered = math.isnan(row.u), ran and not row.large_failed
        label_reason = "audit" if row.audited else "exploration" if explored else "random"
        labeler = NAMES[row.labeler] if row.labeler >= 0 else None
        small_predicted, large_predicted = 0 if unknown else row.gold, row.gold if answered else 0
        return LabelledExample(
            query_id=f"q{row.number}",
            workload=_WORKLOAD,
            uncertainty=None if unknown else row.u,
            error_probability=None if math.isnan(row.routed_error) else row.routed_error,
            calibration_version=None if row.number < 0 or row.version == 0 else row.version,
            small_exact=row.small == row.gold and not unknown,
            small=OutcomeCounts(true_positives=row.small, predicted=small_predicted),
            large=OutcomeCounts(true_positives=row.large, predicted=large_predicted) if ran else None,
            gold_count=row.gold,
            large_probability=1.0 if row.escalated else self.exploration,
            label_probability=row.probability,
            label_requested=requested,
            label_reason=label_reason if requested else None,
            reason=reason,
            agree=row.agree if answered and not unknown else None,
            routed_at=_time(row.at_s),
            labelled_at=_time(row.label_at_s),
            revision=row.revision,
            retracted=row.retracted,
            labeler=labeler,
            trusted=labeler == EXPERT if "trusted_labelers" in self._settings else None,
        )

    @staticmethod
    def _reason(row: Any, *, explored: bool) -> DecisionReason:
        if row.number < 0 or row.version == 0:
            return "cold_start"
        if row.large_failed:
            return "degraded"
        if math.isnan(row.u):
            return "small_failed"
        return "exploration" if explored else "threshold" if row.escalated else "kept"


PARTS: dict[str, dict[str, Any]] = {
    "margin": {"safety": 0.0},
    "tilt": {"tilt_ridge": 1e12},
    "rectifier": {"drift_scale": 1e-9},
    "discount": {"old_labels_least": 1e9, "old_labels_most": 1e9},
    "forgetting": {"half_life_slow": 1e9},
    "smoothing": {"bandwidth_cells": 3, "wide_bandwidth_cells": 5},
    "least move": {"move_least": 0.0},
    "mix detectors": {"watch_mix": False},
    "recent labels by mix": {"mix_split": False},
    "what labels do not tell": {"unseen_scale": 0.005},
    "exploration": {"exploration": 0.0},
    "exploration at rest": {"quiet_exploration": 1.0},
    "least gain": {"gain_least": 0.0},
    "missing labels": {"labels_present": 1e-9},
    "fading prior": {"old_labels_least": 400.0},
}
"""By part: the fields of the method's constants, or safety and exploration, that take it out."""

WITHOUT: dict[str, Callable[[], Ours]] = {
    f"ours-no-{part}": lambda changed=changed: Ours(**changed) for part, changed in PARTS.items()
}
"""Ours with one part less; what the core does not let be taken out by a constant is not in here."""
