"""What people order of a core, and the note that it keeps of the last order."""

from __future__ import annotations

from typing import Any

from recalibrator.core import Recalibrator
from schemas import CalibrationMap, CalibrationVersion, Command
from tests.support.cascade_stream import START

MAP = CalibrationMap(uncertainty=(0.01, 0.2, 0.6), error_probability=(0.05, 0.4, 0.9))


def order(core: Recalibrator, action: str, **arguments: Any) -> CalibrationVersion | None:
    command = Command.model_validate(
        {"workload": "w", "action": action, "issued_by": "me", "issued_at": START, **arguments}
    )
    return core.observe(command)


def note(core: Recalibrator) -> object:
    return core.status().details["last_command"]
