"""What the compacted topics hold, kept for the API: statuses, instances, versions. A fold; no I/O, no clock.

One thread adds records; any thread reads immutable documents.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar, get_args

from pydantic_core import from_json

from recalibrator.api.read_model.history import History, HistoryPoint
from recalibrator.api.read_model.version_lines import VersionLine, version_line
from schemas.calibration import CalibrationVersion
from schemas.errors import DecodeError
from schemas.event import from_ms
from schemas.routed import TrialMode
from schemas.status import HappeningEvent, RecalibratorStatus, RouterStatus, WorkloadStatus
from schemas.topics import CALIBRATION_HISTORY, HAPPENINGS, RECALIBRATORS, ROUTERS, STATUS

#: Routers, and recalibrators, kept; the longest silent go first.
MOST_INSTANCES = 1_000

#: Of a workload, kept.
MOST_HAPPENINGS = 200

_Status = TypeVar("_Status", RouterStatus, RecalibratorStatus)


class Instance(NamedTuple, Generic[_Status]):
    """What a router or recalibrator said last, typed and as JSON values, to be read only."""

    status: _Status
    document: dict[str, Any]


@dataclass(slots=True)
class _Workload:
    status: WorkloadStatus | None = None
    document: dict[str, Any] | None = None
    history: History = field(default_factory=History)
    versions: dict[int, tuple[VersionLine, bytes]] = field(default_factory=dict)
    happened: deque[HappeningEvent] = field(default_factory=lambda: deque(maxlen=MOST_HAPPENINGS))
    revision: int = 0


class TopicCache:
    """What the API knows of the configured ``workloads``; others on the topics are left alone."""

    def __init__(self, workloads: Sequence[str], prefix: str) -> None:
        self._lock = Lock()
        self._workloads = {name: _Workload() for name in sorted(workloads)}
        self._routers: dict[str, Instance[RouterStatus]] = {}
        self._recalibrators: dict[str, Instance[RecalibratorStatus]] = {}
        self._takers: dict[str, Callable[[str, bytes | None, int | None], None]] = {
            STATUS.name(prefix): self._take_status,
            ROUTERS.name(prefix): partial(self._take_instance, self._routers, RouterStatus),
            RECALIBRATORS.name(prefix): partial(self._take_instance, self._recalibrators, RecalibratorStatus),
            CALIBRATION_HISTORY.name(prefix): self._take_version,
            HAPPENINGS.name(prefix): self._take_happening,
        }
        #: Grows with every record taken.
        self.revision = 0
        #: Grows with every record of a router or recalibrator.
        self.instances_revision = 0

    def take(self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int | None = None) -> bool:
        """Take one record, written at ``timestamp_ms``; returns False where it is not what the topic holds."""
        taker = self._takers.get(topic)
        if taker is None or key is None:
            return False
        try:
            with self._lock:
                taker(key.decode(), value, timestamp_ms)
                self.revision += 1
        except (DecodeError, ValueError):
            return False
        return True

    @property
    def workloads(self) -> tuple[str, ...]:
        """The configured workloads, in order of name."""
        return tuple(self._workloads)

    def revision_of(self, workload: str) -> int:
        """Return a number that grows with every status and version of this workload."""
        return self._workloads[workload].revision

    def status(self, workload: str) -> WorkloadStatus | None:
        """Return a workload's latest status as it stands in the topic, or None before the first."""
        with self._lock:
            return self._workloads[workload].status

    def document(self, workload: str) -> dict[str, Any] | None:
        """Return the same as JSON values, to be read only."""
        with self._lock:
            return self._workloads[workload].document

    def points(self, workload: str) -> tuple[HistoryPoint, ...]:
        """Return how a workload stood, oldest first."""
        with self._lock:
            return self._workloads[workload].history.points()

    def happened(self, workload: str) -> tuple[HappeningEvent, ...]:
        """Return what happened to a workload, oldest first."""
        with self._lock:
            return tuple(self._workloads[workload].happened)

    def versions(self, workload: str) -> list[VersionLine]:
        """Return a workload's versions, newest first."""
        with self._lock:
            found = self._workloads[workload].versions
            return [found[number][0] for number in sorted(found, reverse=True)]

    def line(self, workload: str, version: int | None) -> VersionLine | None:
        """Return one version's line, or None where it is not in the history."""
        with self._lock:
            found = None if version is None else self._workloads[workload].versions.get(version)
        return None if found is None else found[0]

    def version_json(self, workload: str, version: int) -> bytes | None:
        """Return one version's record, or None where it is not in the history."""
        with self._lock:
            found = self._workloads[workload].versions.get(version)
        return None if found is None else zlib.decompress(found[1])

    def routers(self) -> list[Instance[RouterStatus]]:
        """Return all routers seen, in order of name."""
        return self._in_order(self._routers)

    def recalibrators(self) -> list[Instance[RecalibratorStatus]]:
        """Return all recalibrators seen, in order of name."""
        return self._in_order(self._recalibrators)

    def _in_order(self, known: dict[str, Instance[_Status]]) -> list[Instance[_Status]]:
        with self._lock:
            return [known[name] for name in sorted(known)]

    def _take_status(self, workload: str, value: bytes | None, _timestamp_ms: int | None) -> None:
        entry = self._workloads.get(workload, _Workload())
        entry.status = None if value is None else WorkloadStatus.from_json(value)
        entry.document = None if value is None else from_json(value)
        if entry.status is not None:
            entry.history.add_status(entry.status)
        entry.revision += 1

    def _take_instance(
        self,
        known: dict[str, Instance[_Status]],
        kind: type[_Status],
        instance_id: str,
        value: bytes | None,
        _timestamp_ms: int | None,
    ) -> None:
        latest = None if value is None else Instance(kind.from_json(value), from_json(value))
        # Taken out and put in again with every record, the first is the longest silent.
        known.pop(instance_id, None)
        if latest is not None:
            known[instance_id] = latest
        if len(known) > MOST_INSTANCES:
            del known[next(iter(known))]
        self.instances_revision += 1

    def _take_version(self, key: str, value: bytes | None, timestamp_ms: int | None) -> None:
        workload, _, number = key.rpartition(":")
        entry = self._workloads.get(workload)
        if entry is None:
            return
        if value is None:
            entry.versions.pop(int(number), None)
        else:
            version = CalibrationVersion.from_json(value)
            if version.workload == workload and version.version == int(number):
                entry.versions[version.version] = (version_line(version), zlib.compress(value, 1))
                # A version carries the time of its events; the statuses beside it, that of the machine.
                published_at = version.created_at if timestamp_ms is None else from_ms(timestamp_ms)
                if version.evidence.trigger not in get_args(TrialMode):
                    # What was only tried was never how the workload stood.
                    entry.history.add_version(version, published_at)
        entry.revision += 1

    def _take_happening(self, workload: str, value: bytes | None, _timestamp_ms: int | None) -> None:
        entry = self._workloads.get(workload)
        if entry is not None and value is not None:
            entry.happened.append(HappeningEvent.from_json(value))
