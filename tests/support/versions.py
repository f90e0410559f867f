"""A calibration version as any service would take it, for tests that care about one or two of its parts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence, Signal, Target
from schemas.trial import CalibrationTrial

CREATED_AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def sealed_version(**changed: Any) -> CalibrationVersion:
    """Return version 1 of workload ``photo``, active, with g(u) = 0.8 u; fields as given."""
    fields: dict[str, Any] = {
        "workload": "photo",
        "version": 1,
        "created_at": CREATED_AT,
        "map": CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.8)),
        "uncertainty_threshold": 0.25,
        "threshold": 0.2,
        "exploration_probability": 0.03,
        "label_probability_kept": 0.05,
        "label_probability_escalated": 0.1,
        "target": Target(micro_f1=0.9),
        "state": "active",
        "signal": Signal(small_model="small"),
        "evidence": Evidence(trigger="bootstrap"),
    }
    return CalibrationVersion.sealed(**fields | changed)


def trial_of(version: CalibrationVersion, share: float | None = None) -> CalibrationTrial:
    """Return a version on trial beside version 7: a canary with that share, or a shadow."""
    return CalibrationTrial(
        workload=version.workload,
        mode="shadow" if share is None else "canary",
        share=share,
        version=version,
        base_version=7,
        started_at=CREATED_AT,
        issued_by="me",
    )
