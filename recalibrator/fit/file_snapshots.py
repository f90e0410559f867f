"""The cores of one partition in one file, with the offset that they stand at; replaced whole or not at all.

A file that is torn, damaged or of another format counts as none: the cores are then folded from the log again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import structlog

from recalibrator.core import Recalibrator, WorkloadSettings
from recalibrator.fit.ports import Core, FitState

_log = structlog.get_logger()
_FORMAT = 1
Restore = Callable[[WorkloadSettings, bytes], Core]


class SnapshotFiles:
    """Snapshots under one directory, a file for each partition of the observations.

    Parameters
    ----------
    directory : Path
        Created where missing.
    workloads : mapping of name to WorkloadSettings
        Snapshots of others are dropped.
    make : callable
        Makes a core that has seen nothing.
    restore : callable
        Makes one from its snapshot; raises ValueError where it cannot.
    """

    def __init__(
        self,
        directory: Path,
        workloads: Mapping[str, WorkloadSettings],
        make: Callable[[WorkloadSettings], Core] = Recalibrator,
        restore: Restore = Recalibrator.restore,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._workloads = workloads
        self._make = make
        self._restore = restore

    def new(self, workload: str) -> Core:
        """Return a core that has seen nothing."""
        return self._make(self._workloads[workload])

    def load(self, partition: int) -> FitState | None:
        """Return what was stored, or None where nothing is or it cannot be read."""
        path = self._path(partition)
        if not path.exists():
            return None
        try:
            return self._decode(path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("snapshot not usable; folding the log again", path=str(path), error=str(error))
            return None

    def save(self, partition: int, state: FitState) -> None:
        """Replace what is stored, atomically and durably; blocks for the disk."""
        path = self._path(partition)
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(_encode(state))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _path(self, partition: int) -> Path:
        return self._directory / f"fit-{partition}.snapshot"

    def _decode(self, data: bytes) -> FitState:
        digest, _, content = data.partition(b"\n")
        if sha256(content).hexdigest().encode() != digest:
            raise ValueError("the checksum does not fit the content")
        head_line, _, body = content.partition(b"\n")
        head = json.loads(head_line)
        if head["format"] != _FORMAT:
            raise ValueError(f"format is {head['format']}, this release reads {_FORMAT}")
        cores: dict[str, Core] = {}
        history: dict[str, list[int]] = {}
        for entry in head["workloads"]:
            snapshot, body = body[: entry["bytes"]], body[entry["bytes"] :]
            if entry["name"] in self._workloads:
                cores[entry["name"]] = self._restore(self._workloads[entry["name"]], snapshot)
                history[entry["name"]] = list(entry["history"])
        return FitState(int(head["offset"]), cores, history)


def _encode(state: FitState) -> bytes:
    snapshots = {name: core.snapshot() for name, core in sorted(state.cores.items())}
    workloads = [
        {"name": name, "bytes": len(snapshot), "history": list(state.history.get(name, ()))}
        for name, snapshot in snapshots.items()
    ]
    head = json.dumps({"format": _FORMAT, "offset": state.offset, "workloads": workloads}).encode()
    content = b"\n".join((head, b"".join(snapshots.values())))
    return b"\n".join((sha256(content).hexdigest().encode(), content))
