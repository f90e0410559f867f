"""What holds now, drawn for each workload beside what held when its version was fitted."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from markupsafe import Markup
from pydantic import ValidationError

from recalibrator.api.pages.svg_plots import frontier_plot, reliability_plot, uncertainty_plot
from recalibrator.api.read_model.topic_cache import TopicCache
from schemas.calibration import CalibrationVersion
from schemas.status import CostQualityCurve, UncertaintyHistogram, WorkloadStatus

#: Versions whose record is kept read: one of each workload is asked for again and again.
_MOST_READ = 64


class Figures(NamedTuple):
    """The drawings of one workload."""

    reliability: Markup
    uncertainty: Markup
    frontier: Markup


class FigureStore:
    """Draws; reads what a version was fitted on once."""

    def __init__(self, cache: TopicCache) -> None:
        self._cache = cache
        self._at_fit = lru_cache(_MOST_READ)(self._read)

    def of(self, status: WorkloadStatus) -> Figures:
        """Return the drawings that belong to a status."""
        frontier, uncertainty = None, None
        version = status.calibration_version
        if version is not None and self._cache.line(status.workload, version) is not None:
            frontier, uncertainty = self._at_fit(status.workload, version)
        large_only = None if status.cost is None else status.cost.large_only
        return Figures(
            reliability_plot(status.calibration_error.bins),
            uncertainty_plot(status.uncertainty, uncertainty, status.uncertainty_threshold),
            frontier_plot(status.frontier, frontier, status.target.micro_f1, large_only),
        )

    def _read(self, workload: str, version: int) -> tuple[CostQualityCurve | None, UncertaintyHistogram | None]:
        record = self._cache.version_json(workload, version)
        if record is None:
            return None, None
        details = CalibrationVersion.from_json(record).evidence.details
        try:
            return (
                CostQualityCurve.model_validate(details["frontier"]),
                UncertaintyHistogram.model_validate(details["uncertainty"]),
            )
        except (KeyError, ValidationError):
            # A version of an earlier release, or one made of a bare map.
            return None, None
