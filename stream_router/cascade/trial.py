"""The lever of a trial: a version that is computed beside the one in force, and decides a canary's share. Pure."""

from __future__ import annotations

from typing import Any

from schemas.calibration import CalibrationVersion
from schemas.routed import TrialDecision
from stream_router.cascade.lever import Lever
from stream_router.ports import Calibrations


class TrialLever(Lever):
    """Asks for the trial when the small answer has come; without one the version in force decides alone."""

    def __init__(self, query_id: str, workload: str, calibrations: Calibrations) -> None:
        self._query_id = query_id
        self._workload = workload
        self._calibrations = calibrations
        self._told: TrialDecision | None = None

    def rule(self, version: CalibrationVersion, uncertainty: float | None, draw: float) -> CalibrationVersion:
        """Decide by both versions; the one on trial acts on its share."""
        trial = self._calibrations.trial(self._workload)
        if trial is None:
            self._told = None
            return version
        base, tried = (one.decide(uncertainty, self._query_id, draw) for one in (version, trial.version))
        self._told = TrialDecision(
            version=trial.version.version,
            mode=trial.mode,
            escalated=tried.escalated,
            base_version=version.version,
            base_escalated=base.escalated,
            acted=trial.acts_on(self._query_id),
        )
        return trial.version if self._told.acted else version

    def record(self, content: dict[str, Any]) -> None:
        """Name both decisions in the one acted on."""
        if self._told is not None:
            content["decision"] = content["decision"].model_copy(update={"trial": self._told})


def trial_labels(workload: str, decided: TrialDecision | None) -> tuple[str, str, str, str] | None:
    """Return what a result is counted by: workload, mode, whose decision was acted on, and how both compare."""
    if decided is None:
        return None
    compared = "same"
    if decided.escalated != decided.base_escalated:
        compared = "trial_escalates" if decided.escalated else "base_escalates"
    return workload, decided.mode, "trial" if decided.acted else "base", compared
