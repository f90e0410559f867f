"""The compacted topics → what the API shows: statuses, routers, versions. A fold; no I/O, no clock.

Records flow in from one thread; readers take immutable documents from any thread. Of versions only the bytes are
kept, packed: ten thousand of them must fit beside each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from schemas.calibration import CalibrationVersion, Interval
from schemas.errors import DecodeError
from schemas.status import RouterStatus, WorkloadStatus
from schemas.topics import CALIBRATION_HISTORY, ROUTERS, STATUS

MAX_POINTS = 720
"""Points of a workload's history; when they are full, every second one goes."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """How a workload stood at one time.

    Parameters
    ----------
    at : datetime
    state : str
    version : int or None
    micro_f1 : Interval or None
    escalation_rate : float or None
    sequential_cost : float or None
    drift : str
    """

    at: datetime
    state: str
    version: int | None
    micro_f1: Interval | None
    escalation_rate: float | None
    sequential_cost: float | None
    drift: str


@dataclass(frozen=True, slots=True)
class VersionLine:
    """One version as a line of a table."""

    version: int
    created_at: datetime
    state: str
    trigger: str
    uncertainty_threshold: float
    threshold: float | None
    micro_f1: Interval | None
    escalation_rate: float | None
    labels: int
    parent_version: int | None


@dataclass(slots=True)
class _Workload:
    status: WorkloadStatus | None = None
    status_json: bytes = b""
    points: list[HistoryPoint] = field(default_factory=list)
    versions: dict[int, tuple[VersionLine, bytes]] = field(default_factory=dict)


class View:
    """What the API knows.

    Parameters
    ----------
    workloads : sequence of str
        The configured ones; others on the topics are left alone.
    prefix : str
        Of the topics.
    """

    def __init__(self, workloads: Sequence[str], prefix: str) -> None:
        self._lock = Lock()
        self._workloads = {name: _Workload() for name in sorted(workloads)}
        self._routers: dict[str, RouterStatus] = {}
        self._takers = {
            STATUS.name(prefix): self._take_status,
            ROUTERS.name(prefix): self._take_router,
            CALIBRATION_HISTORY.name(prefix): self._take_version,
        }
        self.revision = 0

    def take(self, topic: str, key: bytes | None, value: bytes | None) -> bool:
        """Take one record; returns False where it is not what the topic holds."""
        taker = self._takers.get(topic)
        if taker is None or key is None:
            return False
        try:
            with self._lock:
                taker(key.decode(), value)
                self.revision += 1
        except (DecodeError, UnicodeDecodeError, ValueError):
            return False
        return True

    @property
    def workloads(self) -> tuple[str, ...]:
        """The configured workloads, in order of name."""
        return tuple(self._workloads)

    def status(self, workload: str) -> WorkloadStatus | None:
        """Return a workload's latest status, or None before the first."""
        with self._lock:
            return self._workloads[workload].status

    def status_json(self, workload: str) -> bytes:
        """Return a workload's latest status as it stands in the topic; empty before the first."""
        with self._lock:
            return self._workloads[workload].status_json

    def points(self, workload: str) -> tuple[HistoryPoint, ...]:
        """Return how a workload stood, oldest first."""
        with self._lock:
            return tuple(self._workloads[workload].points)

    def versions(self, workload: str) -> list[VersionLine]:
        """Return a workload's versions, newest first."""
        with self._lock:
            found = self._workloads[workload].versions
            return [found[number][0] for number in sorted(found, reverse=True)]

    def version_json(self, workload: str, version: int) -> bytes | None:
        """Return one version's record, or None where it is not in the history."""
        with self._lock:
            found = self._workloads[workload].versions.get(version)
        return None if found is None else zlib.decompress(found[1])

    def routers(self) -> list[RouterStatus]:
        """Return all routers seen, in order of name."""
        with self._lock:
            return [self._routers[name] for name in sorted(self._routers)]

    def _take_status(self, workload: str, value: bytes | None) -> None:
        entry = self._workloads[workload] if workload in self._workloads else _Workload()
        if value is None:
            entry.status, entry.status_json = None, b""
            return
        status = WorkloadStatus.from_json(value)
        entry.status, entry.status_json = status, value
        if status.updated_at is not None:
            entry.points.append(_point(status, status.updated_at))
        if len(entry.points) > MAX_POINTS:
            entry.points[:-1] = entry.points[:-1:2]

    def _take_router(self, instance_id: str, value: bytes | None) -> None:
        if value is None:
            self._routers.pop(instance_id, None)
        else:
            self._routers[instance_id] = RouterStatus.from_json(value)

    def _take_version(self, key: str, value: bytes | None) -> None:
        workload, _, number = key.rpartition(":")
        entry = self._workloads.get(workload)
        if entry is None:
            return
        if value is None:
            entry.versions.pop(int(number), None)
            return
        version = CalibrationVersion.from_json(value)
        if version.workload == workload and version.version == int(number):
            entry.versions[version.version] = (_line(version), zlib.compress(value, 1))


def _point(status: WorkloadStatus, at: datetime) -> HistoryPoint:
    return HistoryPoint(
        at=at,
        state=status.state,
        version=status.calibration_version,
        micro_f1=status.micro_f1,
        escalation_rate=status.escalation_rate,
        sequential_cost=None if status.cost is None else status.cost.sequential,
        drift=status.drift.state,
    )


def _line(version: CalibrationVersion) -> VersionLine:
    evidence = version.evidence
    return VersionLine(
        version=version.version,
        created_at=version.created_at,
        state=version.state,
        trigger=evidence.trigger,
        uncertainty_threshold=version.uncertainty_threshold,
        threshold=version.threshold,
        micro_f1=evidence.micro_f1,
        escalation_rate=evidence.escalation_rate,
        labels=evidence.labels,
        parent_version=version.parent_version,
    )
