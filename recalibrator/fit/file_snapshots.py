"""The cores of one partition in one file, with the offset that they stand at; replaced whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import structlog

from recalibrator.core import Recalibrator, WorkloadSettings
from recalibrator.fit.stage import FitState
from ucci_runtime.file_replace import replace_file

_log = structlog.get_logger()
_FORMAT = 1


class SnapshotFiles:
    """Snapshots under one directory, a file for each partition; those of workloads that are not given are dropped."""

    def __init__(self, directory: Path, workloads: Mapping[str, WorkloadSettings]) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory, self._workloads = directory, workloads
        self._is_failing = False

    def use(self, workloads: Mapping[str, WorkloadSettings]) -> None:
        """Make and restore cores under these settings from now on."""
        self._workloads = workloads

    def new(self, workload: str) -> Recalibrator:
        """Return a core that has seen nothing."""
        return Recalibrator(self._workloads[workload])

    def load(self, partition: int) -> FitState | None:
        """Return what was stored, or None where nothing is, or it is damaged or of another format.

        Raises
        ------
        OSError
            When it cannot be read now: folded from what the topic still holds, it could be replaced by less.
        """
        path = self._path(partition)
        try:
            return self._decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OSError(f"{path}: {error.strerror}; make it readable for this process and start again") from None
        except Exception as error:  # noqa: BLE001 whatever stops its reading, the log says it all again
            _log.warning("snapshot not usable; folding the log again", path=str(path), error=str(error))
            return None

    def save(self, partition: int, state: FitState) -> bool:
        """Replace what is stored, atomically and durably; blocks for the disk.

        False where the disk refused, logged once: the former snapshot stays, and the caller tries again later.
        """
        path = self._path(partition)
        try:
            replace_file(path, _encode(state))
        except OSError as error:
            if not self._is_failing:
                remedy = "the former one stays and is replaced as soon as the disk takes it"
                _log.warning(f"snapshot not stored; {remedy}", path=str(path), error=str(error))
            self._is_failing = True
            return False
        if self._is_failing:
            _log.info("snapshot stored again", path=str(path))
        self._is_failing = False
        return True

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
        cores: dict[str, Recalibrator] = {}
        history: dict[str, list[int]] = {}
        for entry in head["workloads"]:
            snapshot, body = body[: entry["bytes"]], body[entry["bytes"] :]
            if entry["name"] in self._workloads:
                cores[entry["name"]] = Recalibrator.restore(self._workloads[entry["name"]], snapshot)
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
