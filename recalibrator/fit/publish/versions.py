"""The versions made so far: content flows in, sealed and numbered versions flow out, each above all known before."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import JsonValue

from recalibrator.fit.data.instants import from_us
from recalibrator.fit.estimate.calibration_map import inverse
from schemas.calibration import (
    ESCALATE_ALL,
    CalibrationMap,
    CalibrationState,
    CalibrationVersion,
    Evidence,
    ModelCosts,
)
from schemas.command import Command
from schemas.settings import WorkloadSettings


class Published:
    """The latest versions of one workload, and the number that the next one must exceed.

    Parameters
    ----------
    settings : WorkloadSettings
        Target, sampling and signal of new versions.
    kept : int
        Versions whose content stays known.
    """

    def __init__(self, settings: WorkloadSettings, kept: int) -> None:
        self._settings = settings
        self._kept = kept
        self._versions: dict[int, CalibrationVersion] = {}
        self.floor = 0
        self.current: CalibrationVersion | None = None

    @property
    def signal(self) -> str:
        """How u is measured in these versions."""
        return self._settings.uncertainty

    def find(self, version: int) -> CalibrationVersion | None:
        """Return a former version, or None when it is not or no longer known."""
        return self._versions.get(version)

    def audit_probabilities(self) -> dict[int, float]:
        """Return by number what the versions known have audited, those that audit nothing left out."""
        return {number: one.audit_probability for number, one in self._versions.items() if one.audit_probability > 0.0}

    def publish(
        self,
        created_us: int,
        fitted: CalibrationMap,
        uncertainty_threshold: float,
        state: CalibrationState,
        evidence: Evidence,
        costs: ModelCosts | None,
        exploration: float | None = None,
        *,
        audit: float = 0.0,
        on_trial: bool = False,
    ) -> CalibrationVersion:
        """Seal a version under the next number and put it in force, unless it is only for trial.

        It explores as configured unless told otherwise.
        """
        sampling, parent = self._settings.sampling, self.current
        self.floor += 1
        version = CalibrationVersion.sealed(
            workload=self._settings.name,
            version=self.floor,
            created_at=from_us(created_us),
            map=fitted,
            uncertainty_threshold=uncertainty_threshold,
            threshold=_read(fitted, uncertainty_threshold),
            exploration_probability=sampling.exploration_probability if exploration is None else exploration,
            label_probability_kept=sampling.label_probability_kept,
            label_probability_escalated=sampling.label_probability_escalated,
            audit_probability=audit,
            target=self._settings.target,
            state=state,
            signal=self._settings.signal,
            costs=costs,
            evidence=evidence,
            parent_version=None if parent is None else parent.version,
        )
        if not on_trial:
            self.current = version
        self._versions[version.version] = version
        for old in list(self._versions)[: -self._kept]:
            if self.current is not None and old != self.current.version:
                del self._versions[old]
        return version

    def state(self) -> dict[str, Any]:
        """Return all as JSON values."""
        return {
            "floor": self.floor,
            "current": None if self.current is None else self.current.version,
            "versions": [version.model_dump(mode="json") for version in self._versions.values()],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        self.floor = state["floor"]
        self._versions = {one["version"]: CalibrationVersion.model_validate(one) for one in state["versions"]}
        self.current = None if state["current"] is None else self._versions[state["current"]]


def _read(fitted: CalibrationMap, uncertainty: float) -> float:
    """Return θ = g of a threshold on u, clipped outside the knots."""
    knots, values = fitted.uncertainty, fitted.error_probability
    if uncertainty <= knots[0]:
        return values[0]
    if uncertainty >= knots[-1]:
        return values[-1]
    right = next(index for index, knot in enumerate(knots) if knot > uncertainty)
    share = (uncertainty - knots[right - 1]) / (knots[right] - knots[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


def given_threshold(command: Command, fitted: CalibrationMap) -> float:
    """Return the threshold on u that a bootstrap command gives; without one all escalates until labels tell."""
    if command.uncertainty_threshold is not None:
        return command.uncertainty_threshold
    if command.error_probability_threshold is not None:
        return inverse(fitted, command.error_probability_threshold)
    return ESCALATE_ALL


class Content(NamedTuple):
    """What a version is made of, beside its number and the settings."""

    map: CalibrationMap
    uncertainty_threshold: float
    state: CalibrationState
    evidence: Evidence


def commanded(command: Command, of: int | None, former: CalibrationVersion | None) -> Content | None:
    """Return the content that a command publishes: of a former version, else what the command itself carries.

    Parameters
    ----------
    of : int or None
        The version whose content it is.
    former : CalibrationVersion or None
        That version, where it is still known.
    """
    if former is not None:
        details = {**former.evidence.details, "content_of": former.version}
        proof = former.evidence.model_copy(update={"trigger": command.action, "details": details})
        return Content(former.map, former.uncertainty_threshold, former.state, proof)
    if command.map is None:
        return None
    told: dict[str, JsonValue] = {"issued_by": command.issued_by, "reason": command.reason}
    proof = Evidence(trigger=command.action, details=told | ({} if of is None else {"content_of": of}))
    return Content(command.map, given_threshold(command, command.map), "active", proof)
