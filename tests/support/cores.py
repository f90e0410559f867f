"""Cores that a stream has passed through, and what they say of it."""

from __future__ import annotations

from typing import Any, TypeVar

from recalibrator.core import Recalibrator
from schemas import CalibrationVersion
from tests.support.cascade_stream import World, drive, settings

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return what must be there."""
    assert value is not None
    return value


def in_force(core: Recalibrator) -> CalibrationVersion:
    """Return the version in force, which there must be."""
    return present(core.current)


def detail(core: Recalibrator, name: str) -> Any:
    """Return a detail of the status."""
    return core.status().details[name]


def driven(world: World, queries: int, **changed: object) -> Recalibrator:
    """Return a core through which so many queries have passed, its settings changed as given."""
    core = Recalibrator(settings(**changed))
    drive(core, world.draw, queries)
    return core


def restarted(core: Recalibrator, **changed: object) -> Recalibrator:
    """Return what a restart makes of a core, under other settings where some are given."""
    return Recalibrator.restore(settings(**changed) if changed else core.settings, core.snapshot())
