"""Status snapshots: of a workload, by the fit; of a router, by itself. What the page, the alerts and people read."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.calibration import CostRate, Interval, Target
from schemas.event import Count, Event, Flag, NonNegative, Part, Probability, Real, Timestamp, WorkloadName
from schemas.json_value import JsonObject

WorkloadState = Literal[
    "cold_start", "active", "infeasible", "label_starved", "stale", "bad_labels_suspected", "paused", "pinned"
]
DriftState = Literal["ok", "suspected", "drifted", "insufficient_labels", "stale"]


class DetectorStatus(Part):
    """One detector: what it watches, how far it is from its bound, and since when it has been in its state."""

    name: str
    watches: str
    needs_labels: Flag
    state: DriftState
    statistic: Real
    bound: Real
    since: Timestamp | None = None
    alarms: Count = 0


class DriftStatus(Part):
    """The detectors and what they say together."""

    state: DriftState
    detectors: tuple[DetectorStatus, ...] = ()


class DelayQuantiles(Part):
    """Seconds from routing to label."""

    p50: NonNegative | None = None
    p90: NonNegative | None = None


class LabelStatus(Part):
    """Labels asked for and got; ``since`` is when traffic was first seen."""

    since: Timestamp | None = None
    requested: Count = 0
    received: Count = 0
    effective: NonNegative = 0.0
    pending: Count = 0
    delay_s: DelayQuantiles = DelayQuantiles()


class ReliabilityBin(Part):
    """One bin of the reliability diagram."""

    predicted: Probability
    observed: Probability
    count: Count


class CalibrationError(Part):
    """Prequential calibration error: every label scored against the version that routed it."""

    ece: Interval | None = None
    brier: Interval | None = None
    bins: tuple[ReliabilityBin, ...] = ()


class WorkloadStatus(Event):
    """How one workload keeps its promise, in one word, one sentence and numbers (key: workload)."""

    sent_by_others: ClassVar[bool] = False

    workload: WorkloadName
    state: WorkloadState
    sentence: str
    calibration_version: Count | None = None
    uncertainty_threshold: Real | None = None
    threshold: Probability | None = None
    target: Target
    micro_f1: Interval | None = None
    per_field: dict[str, Probability] = Field(default_factory=dict)
    escalation_rate: Probability | None = None
    cost: CostRate | None = None
    labels: LabelStatus = LabelStatus()
    drift: DriftStatus
    calibration_error: CalibrationError = CalibrationError()
    queries: Count = 0
    lag: JsonObject | None = None
    updated_at: Timestamp | None = None
    details: JsonObject = Field(default_factory=dict)


class ModelHealth(Part):
    """One model server as a router sees it."""

    state: Literal["up", "probing", "down"]
    calls: Count = 0
    failures: Count = 0
    latency_s: dict[Literal["p50", "p90", "p99"], NonNegative] = Field(default_factory=dict)


class VersionInUse(Part):
    """The version that a router decides by, and since when."""

    version: Count | None
    since: Timestamp | None = None


class RouterStatus(Event):
    """What one router instance runs, refuses and has done (key: instance_id)."""

    sent_by_others: ClassVar[bool] = False

    instance_id: Annotated[str, Field(min_length=1)]
    started_at: Timestamp
    updated_at: Timestamp
    ready: Flag
    versions: dict[str, VersionInUse] = Field(default_factory=dict)
    rejected_versions: dict[str, Count] = Field(default_factory=dict)
    models: dict[str, dict[Literal["small", "large"], ModelHealth]] = Field(default_factory=dict)
    lag: dict[str, Count] = Field(default_factory=dict)
    in_flight: Count = 0
    counters: dict[str, Count] = Field(default_factory=dict)
