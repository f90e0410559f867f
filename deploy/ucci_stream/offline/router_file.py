"""Reads the map and threshold of a bootstrap command from a ``router.json`` of the PyPI package ``ucci-router``.

The file holds knots of g and a threshold theta on g; the service decides on u. ``g(u) > theta`` and
``u > uncertainty_threshold`` are the same rule where the latter is the largest u with ``g(u) <= theta``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.calibration import CalibrationMap
from schemas.errors import DecodeError
from schemas.event import Many, decode_error, decoded

FORMAT = "ucci-router"


class _Knots(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    x: Annotated[Many[float], Field(min_length=1)]
    y: Annotated[Many[float], Field(min_length=1)]


class _RouterFile(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    format: Literal["ucci-router"]
    version: Literal[1]
    calibrator: _Knots
    theta: float
    c_small: Annotated[float, Field(gt=0)]
    c_large: Annotated[float, Field(gt=0)]
    tau: float | None = None


@dataclass(frozen=True, slots=True)
class OfflineCalibration:
    """What a ``router.json`` says, in the terms of the service."""

    map: CalibrationMap
    uncertainty_threshold: float
    error_probability_threshold: float
    cost_ratio: float


def is_router_file(document: Any) -> bool:
    """Return whether a decoded JSON document is a ``router.json``."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def read_router_file(text: str) -> OfflineCalibration:
    """Parse the text of a ``router.json``, format version 1. Raises DecodeError, naming the faulty field."""
    parsed: _RouterFile = decoded(_RouterFile.__pydantic_validator__, text.encode())
    try:
        knots = CalibrationMap(uncertainty=parsed.calibrator.x, error_probability=parsed.calibrator.y)
    except ValidationError as error:
        raise decode_error(error) from None
    if not 0.0 <= parsed.theta <= 1.0:
        raise DecodeError("invalid_field", f"theta: must lie in [0, 1] (got {parsed.theta})", "theta")
    return OfflineCalibration(
        map=knots,
        uncertainty_threshold=knots.inverse(parsed.theta),
        error_probability_threshold=parsed.theta,
        cost_ratio=parsed.c_large / parsed.c_small,
    )
