"""Statuses of made-up workloads, one for each thing that a page has to say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recalibrator.headlines.facts import Facts
from schemas.calibration import Interval, Target
from schemas.costs import CostRate, ModelCosts, expected_cost
from schemas.settings import WorkloadSettings
from schemas.status import (
    CommandOutcome,
    CostQualityCurve,
    DetectorStatus,
    DriftStatus,
    LabelStatus,
    ModelHealth,
    RecalibratorStatus,
    RouterStatus,
    Saving,
    StageStatus,
    VersionInUse,
    VersionSummary,
    WorkloadRouter,
    WorkloadStatus,
)
from schemas.trial import TrialArm, TrialStatus

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEGAN = NOW - timedelta(hours=2)
COSTS = ModelCosts(small=1.0, large=3.0)
SETTINGS = WorkloadSettings.model_validate(
    {
        "name": "photo",
        "fields": ["camera"],
        "target": {"micro_f1": 0.91},
        "small": {"base_url": "http://small:8000/v1", "model": "small-4b"},
        "large": {"base_url": "http://large:8000/v1", "model": "large-12b"},
    }
)


def curve(rate: float, micro_f1: float = 0.91) -> CostQualityCurve:
    """What thresholds give, the one in force escalating this share of queries."""
    cost = expected_cost(COSTS, rate).sequential
    costs, rates = (4.0, cost, 1.0), (1.0, rate, 0.0)
    scores, thresholds = (0.93, micro_f1, 0.7), (-1.0, 0.3, 1.0)
    return CostQualityCurve(
        threshold=thresholds, escalation_rate=rates, micro_f1=scores, sequential_cost=costs, chosen=1
    )


def router(name: str = "router-1", *, silent: bool = False, **models: ModelHealth) -> WorkloadRouter:
    said: dict[str, Any] = {"ready": not silent, "silent": silent, "updated_at": BEGAN if silent else NOW}
    return WorkloadRouter(instance_id=name, version=7, models=models, **said)


def status(**changes: Any) -> WorkloadStatus:
    content = {
        "workload": "photo",
        "state": "active",
        "sentence": "It holds.",
        "calibration_version": 7,
        "target": Target(micro_f1=0.91),
        "micro_f1": Interval(estimate=0.913, lower=0.902, upper=0.924),
        "escalation_rate": 0.15,
        "cost": CostRate(sequential=1.45, paper=1.3, large_only=3.0),
        "saving": Saving(sequential=1 - 1.45 / 3, paper=1 - 1.3 / 3),
        "labels": LabelStatus(received=900, requested=1_000, pending=100, effective=800.0, since=BEGAN),
        "drift": DriftStatus(state="ok"),
        "queries": 20_000,
        "updated_at": NOW,
        "frontier": curve(0.15),
        "version": VersionSummary(version=7, created_at=BEGAN, trigger="threshold_moved", parent_version=6),
        "routers": (router(),),
        "details": {"traffic_window": {"queries": 5_000, "since": "2026-03-01T11:00:00+00:00"}},
    }
    return WorkloadStatus(**(content | changes))


def recalibrator(heard: datetime = NOW, *stages: str) -> RecalibratorStatus:
    """A recalibrator that was last heard then; of both stages unless some are named."""
    held = {stage: StageStatus(ready=True) for stage in stages or ("join", "fit")}
    return RecalibratorStatus(instance_id="recalibrator-1", started_at=BEGAN, updated_at=heard, stages=held)


def router_status(heard: datetime = NOW) -> RouterStatus:
    used = {"photo": VersionInUse(version=7)}
    return RouterStatus(instance_id="router-1", started_at=BEGAN, updated_at=heard, ready=True, versions=used)


def facts(**changes: Any) -> Facts:
    """All is quiet beside the status, but for these."""
    quiet = Facts(NOW, (recalibrator(),), state_since=BEGAN, routers=(router_status(),), workload=SETTINGS)
    return quiet._replace(**changes)


def held(action: str) -> tuple[CommandOutcome, ...]:
    """A hold by one person, and another's that was refused."""
    return (
        CommandOutcome(action=action, note="so", issued_by="ada", issued_at=BEGAN),
        CommandOutcome(action=action, note="no", issued_by="bob", issued_at=NOW, is_refused=True),
    )


def canary(base_version: int = 2, **changes: Any) -> TrialStatus:
    """A canary of the version after the one in force."""
    rates = CostRate(sequential=1.93, paper=1.62, large_only=3.0)
    scores = Interval(estimate=0.912, lower=0.871, upper=0.953)
    arm = TrialArm(version=base_version + 1, escalation_rate=0.31, cost=rates, micro_f1=scores)
    content: dict[str, Any] = {
        "mode": "canary",
        "share": 0.25,
        "version": base_version + 1,
        "content_of": 1,
        "base_version": base_version,
        "started_at": BEGAN,
        "issued_by": "ada",
        "compared": 800,
        "agreement": 0.875,
        "trial": arm.model_copy(update={"queries": 203, "labels": 41}),
        "base": arm.model_copy(update={"version": base_version, "queries": 597, "labels": 120}),
    }
    return TrialStatus(**content | changes)


_ALARM: dict[str, Any] = {"needs_labels": False, "state": "drifted", "statistic": 9.0, "bound": 4.0, "since": BEGAN}
_DETECTORS = (DetectorStatus(name="uncertainty", watches="the mix of u", **_ALARM),)
DRIFTED = DriftStatus(state="drifted", detectors=_DETECTORS)
_CHANGED = {"escalation_rate": (0.31, 0.994)}
DEAR = VersionSummary(version=7, created_at=BEGAN, trigger="drift", parent_version=6, changed=_CHANGED)
DOWN, BUSY = ModelHealth(state="down"), ModelHealth(state="up", overloaded=True, queued=42, latency_s={"p99": 7.5})
UP = ModelHealth(state="up")
