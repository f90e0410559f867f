"""The last good version of each workload on the router's own disk, to decide by until the topic brings one.

The file holds records as they came from the topic, so that they are checked as if they came from there again: digest,
signature, signal. With each goes a fingerprint of the workload's settings. A version that was fitted for another
prompt, another model or another target is left alone, and so is a file that is damaged or of another format. A disk
that refuses is logged once: the router goes on by the topic, as it does without a state directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from schemas.settings import WorkloadSettings
from ucci_runtime.file_replace import replace_file

_log = structlog.get_logger()
_FORMAT = 1
#: Of the file: a hundred workloads with the longest records there can be.
_MAX_BYTES = 100_000_000


class KeptVersion(NamedTuple):
    """A version's record as it came from the topic."""

    workload: str
    value: bytes


class VersionFile:
    """One router's file for the versions of one cluster's topics; used by one thread at a time.

    Parameters
    ----------
    root : Path
        ``router.state_dir``; created where missing.
    owner : tuple of str
        Instance id, cluster id and topic prefix: versions are never taken for another cluster's, and no two routers
        share a file.
    """

    def __init__(self, root: Path, owner: tuple[str, str, str], workloads: Mapping[str, WorkloadSettings]) -> None:
        self._root = root
        self._owner = owner
        # One name for all three: an id of the user's choice is no path.
        name = sha256(json.dumps(owner).encode()).hexdigest()[:20]
        self.path = root / f"router-versions-{name}.json"
        self._fingerprints = {name: settings.fingerprint for name, settings in workloads.items()}
        self._kept: dict[str, str] = {}
        self._is_failing = False

    def load(self) -> list[KeptVersion]:
        """Return what was kept for workloads that are configured as they were then; nothing where it is damaged."""
        try:
            if self.path.stat().st_size > _MAX_BYTES:
                raise ValueError(f"is larger than {_MAX_BYTES} bytes")  # noqa: TRY301 one place says what follows
            found = self._decode(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError) as error:
            line = "kept calibration versions not usable; going on by the topic"
            _log.warning(line, path=str(self.path), error=str(error))
            return []
        self._kept = {one.workload: one.value.decode() for one in found}
        return found

    def keep(self, workload: str, value: bytes) -> None:
        """Take a record that is in force from now on; :meth:`save` writes it."""
        self._kept[workload] = value.decode()

    def save(self) -> bool:
        """Write what was kept; blocks for the disk.

        False where the disk refused, logged once; what was written before stays.
        """
        marks = self._fingerprints
        entries = {name: {"settings": marks[name], "record": record} for name, record in sorted(self._kept.items())}
        document = {"format": _FORMAT, "owner": list(self._owner), "versions": entries}
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(document).encode())
        except OSError as error:
            if not self._is_failing:
                _log.warning("calibration versions not kept on disk", path=str(self.path), error=str(error))
            self._is_failing = True
            return False
        if self._is_failing:
            _log.info("calibration versions kept on disk again", path=str(self.path))
        self._is_failing = False
        return True

    def _decode(self, data: bytes) -> list[KeptVersion]:
        document: Any = json.loads(data)
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise ValueError(f"is not of format {_FORMAT}, which this release reads")
        if document.get("owner") != list(self._owner):
            raise ValueError("belongs to another router, cluster or topic prefix")
        entries = document.get("versions")
        if not isinstance(entries, dict):
            raise ValueError("versions: must be an object")  # noqa: TRY004 the file's fault, not a caller's
        found = []
        for name, entry in entries.items():
            if name not in self._fingerprints or not isinstance(entry, dict):
                continue
            record = entry.get("record")
            if entry.get("settings") != self._fingerprints[name] or not isinstance(record, str):
                _log.warning("kept calibration version left alone: the workload's settings changed", workload=name)
                continue
            found.append(KeptVersion(name, record.encode()))
        return found
