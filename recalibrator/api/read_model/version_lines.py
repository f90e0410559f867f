"""Versions as lines of a table, and what one changed against its parent. Pure.

Only the line of a version is kept parsed; its record stays compressed, since ten thousand must fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, takewhile
from typing import get_args

import numpy as np
from pydantic import JsonValue, ValidationError

from schemas.calibration import CalibrationVersion, Interval
from schemas.costs import CostRate
from schemas.routed import TrialMode

_SAMPLED_U = (1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 0.95)
#: Smallest change of g(u) that is reported.
_NOTABLE = 0.005

#: A version that decided for so long has stood the test of traffic.
HELD = timedelta(hours=1)

#: Change of the share escalated from which a chart marks the version that made it.
VISIBLE = 0.05

_TRIALS = frozenset(get_args(TrialMode))


@dataclass(frozen=True, slots=True)
class VersionLine:
    """One version as a line; ``micro_f1`` has the bounds of the safety margin, ``micro_f1_95`` those of 95%."""

    version: int
    created_at: datetime
    state: str
    trigger: str
    uncertainty_threshold: float
    threshold: float | None
    target: float | None
    micro_f1: Interval | None
    escalation_rate: float | None
    exploration: float
    cost: CostRate | None
    labels: int
    parent_version: int | None
    #: The version whose content a roll-back or pin published again.
    content_of: int | None
    #: g at a few u, from which follows how far the map moved.
    sampled: tuple[float, ...]
    #: Whether it was made while no alarm, audit or outage was open.
    is_sound: bool = True

    micro_f1_95: Interval | None = None


def version_line(version: CalibrationVersion) -> VersionLine:
    """Return a version's line."""
    evidence, knots = version.evidence, version.map.uncertainty
    content_of, audit = evidence.details.get("content_of"), evidence.details.get("label_audit")
    is_audited = version.audit_probability > 0.0 or (isinstance(audit, dict) and audit.get("suspected") is not None)
    sampled = np.interp(_SAMPLED_U, knots, version.map.error_probability) if knots else np.zeros(0)
    return VersionLine(
        version=version.version,
        created_at=version.created_at,
        state=version.state,
        trigger=evidence.trigger,
        uncertainty_threshold=version.uncertainty_threshold,
        threshold=version.threshold,
        target=version.target.micro_f1,
        micro_f1=evidence.micro_f1,
        escalation_rate=evidence.escalation_rate,
        exploration=version.exploration_probability,
        cost=evidence.expected_cost,
        labels=evidence.labels,
        parent_version=version.parent_version,
        content_of=content_of if isinstance(content_of, int) else None,
        is_sound=version.state == "active" and evidence.drift_state in (None, "ok") and not is_audited,
        sampled=tuple(sampled.tolist()),
        micro_f1_95=interval_95(version),
    )


def interval_95(version: CalibrationVersion) -> Interval | None:
    """Return the 95% interval; versions that others make may know the one of their safety margin alone."""
    try:
        return Interval.model_validate(version.evidence.details["micro_f1_95"])
    except (KeyError, ValidationError):
        return version.evidence.micro_f1


def _comparable(line: VersionLine) -> dict[str, JsonValue]:
    names = ("state", "target", "uncertainty_threshold", "threshold", "escalation_rate", "exploration")
    return {name: getattr(line, name) for name in names} | {
        "micro_f1": None if line.micro_f1 is None else line.micro_f1.estimate,
        "sequential_cost": None if line.cost is None else line.cost.sequential,
    }


def changes(line: VersionLine, parent: VersionLine | None) -> dict[str, tuple[JsonValue, JsonValue]]:
    """Return what a version changed, by name: the value before and after; empty without a known parent.

    The map is described by the u at which g moved furthest, as ``error_probability at u = …``.
    """
    if parent is None:
        return {}
    before, after = _comparable(parent), _comparable(line)
    found = {name: (before[name], value) for name, value in after.items() if before[name] != value}
    if line.sampled and parent.sampled:
        moved = np.abs(np.subtract(line.sampled, parent.sampled))
        place = int(np.argmax(moved))
        if moved[place] >= _NOTABLE:
            found[f"error_probability at u = {_SAMPLED_U[place]:g}"] = (parent.sampled[place], line.sampled[place])
    return found


def has_held(line: VersionLine, until: datetime) -> bool:
    """Return whether a version decided for :data:`HELD` before the next came, and was made while nothing was in doubt.

    Only then may one go back to it: a detector takes a while to alarm, and versions follow within minutes meanwhile.
    """
    return line.is_sound and until - line.created_at >= HELD


def last_that_held(lines: Sequence[VersionLine], current: int | None) -> VersionLine | None:
    """Return the newest version before the one in force of which :func:`has_held` holds; ``lines``: newest first."""
    decided = (line for line in lines if line.trigger not in _TRIALS)
    held = (line for after, line in pairwise(decided) if has_held(line, after.created_at))
    return next((line for line in held if current is None or line.version < current), None)


def escalating_since(lines: Sequence[VersionLine], rate: float) -> datetime | None:
    """Return since when every version has escalated more than ``rate``, if the newest has; ``lines``: newest first."""
    decided = (line for line in lines if line.trigger not in _TRIALS)
    above = takewhile(lambda line: line.escalation_rate is not None and line.escalation_rate > rate, decided)
    return min((line.created_at for line in above), default=None)


def visible_moves(lines: Sequence[VersionLine]) -> Iterator[VersionLine]:
    """Yield, oldest first, what escalates visibly more or less than the last yielded; ``lines``: newest first."""
    shown: float | None = None
    for line in reversed(lines):
        rate = None if line.trigger in _TRIALS else line.escalation_rate
        if rate is None or (shown is not None and abs(rate - shown) < VISIBLE):
            continue
        if shown is not None:
            yield line
        shown = rate
