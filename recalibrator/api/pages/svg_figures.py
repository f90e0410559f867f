"""What holds now, drawn for each workload, cached until what they show has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from markupsafe import Markup
from pydantic import ValidationError

from recalibrator.api.pages.svg_plots import frontier_plot, reliability_plot, uncertainty_plot
from recalibrator.api.read_model.topic_cache import TopicCache
from schemas.calibration import CalibrationVersion
from schemas.status import CostQualityCurve, UncertaintyHistogram, WorkloadStatus


@dataclass(frozen=True, slots=True)
class Figures:
    """The drawings of one workload."""

    reliability: Markup
    uncertainty: Markup
    frontier: Markup


@dataclass(frozen=True, slots=True)
class _AtFit:
    frontier: CostQualityCurve | None = None
    uncertainty: UncertaintyHistogram | None = None


class FigureStore:
    """Draws, and keeps the last drawing of each kind."""

    def __init__(self, cache: TopicCache) -> None:
        self._cache = cache
        self._lock = Lock()
        self._drawn: dict[tuple[str, str], tuple[object, Markup]] = {}
        self._at_fit: dict[str, tuple[int | None, _AtFit]] = {}

    def of(self, status: WorkloadStatus) -> Figures:
        """Return the drawings that belong to a status."""
        name, target = status.workload, status.target.micro_f1
        fitted = self._fitted(name, status.calibration_version)
        large_only = None if status.cost is None else status.cost.large_only
        return Figures(
            reliability=self._kept(
                name,
                "reliability",
                status.calibration_error.bins,
                lambda: reliability_plot(status.calibration_error.bins),
            ),
            uncertainty=self._kept(
                name,
                "uncertainty",
                (status.calibration_version, status.uncertainty),
                lambda: uncertainty_plot(status.uncertainty, fitted.uncertainty, status.uncertainty_threshold),
            ),
            frontier=self._kept(
                name,
                "frontier",
                (status.calibration_version, target, status.frontier, large_only),
                lambda: frontier_plot(status.frontier, fitted.frontier, target, large_only),
            ),
        )

    def _kept(self, workload: str, kind: str, key: object, draw: Callable[[], Markup]) -> Markup:
        with self._lock:
            known = self._drawn.get((workload, kind))
        if known is not None and known[0] == key:
            return known[1]
        made = draw()
        with self._lock:
            self._drawn[workload, kind] = (key, made)
        return made

    def _fitted(self, workload: str, version: int | None) -> _AtFit:
        """Return what the version in force was fitted on, read from its record once."""
        with self._lock:
            known = self._at_fit.get(workload)
        if known is not None and known[0] == version:
            return known[1]
        record = None if version is None else self._cache.version_json(workload, version)
        if record is None:
            return _AtFit()
        details = CalibrationVersion.from_json(record).evidence.details
        try:
            found = _AtFit(
                CostQualityCurve.model_validate(details["frontier"]),
                UncertaintyHistogram.model_validate(details["uncertainty"]),
            )
        except (KeyError, ValidationError):
            # A version of an earlier release, or one made of a bare map.
            found = _AtFit()
        with self._lock:
            self._at_fit[workload] = (version, found)
        return found
