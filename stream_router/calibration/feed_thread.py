"""The calibration topics, read from their beginning and then on: every router reads all of them, in no group.

Each record is offered to the active versions or to the trials. The first query is routed only when the topics were read
to their ends as of the start, so that a restart never routes by a version older than it had. With a state directory the
versions in force are kept on disk, where the next start finds them: should the topic be slow, or have lost them, the
router decides by these.

The file holds records as they came from the topic, so that they are checked as if they came from there again: digest,
signature, signal. With each goes a fingerprint of the workload's settings: a version that was fitted for another
prompt, model or target is left alone. Without a file, or a disk that takes it, the router goes on by the topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any

import structlog

from schemas.settings import Settings, WorkloadSettings
from schemas.topics import CALIBRATION_TRIAL
from stream_router.calibration.active_versions import Activated, ActiveVersions, Rejected, RejectionReason
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.ports import TopicReader
from ucci_runtime.broker.records import Record
from ucci_runtime.clock import Clock
from ucci_runtime.file_replace import replace_file

_log = structlog.get_logger()
_POLL_S = 0.2
_FORMAT = 1
#: Of the file: a hundred workloads with the longest records there can be.
_MAX_BYTES = 100_000_000


class VersionFile:
    """One router's file for the versions of one cluster's topics; used by one thread at a time.

    ``root``: ``router.state_dir``; created where missing. ``owner``: instance id, cluster id and topic prefix: versions
    are never taken for another cluster's, and no two routers share a file.
    """

    def __init__(self, root: Path, owner: tuple[str, str, str], workloads: Mapping[str, WorkloadSettings]) -> None:
        self._owner = owner
        # One name for all three: an id of the user's choice is no path.
        name = sha256(json.dumps(owner).encode()).hexdigest()[:20]
        self.path = root / f"router-versions-{name}.json"
        self._fingerprints = {name: settings.fingerprint for name, settings in workloads.items()}
        self._kept: dict[str, str] = {}
        self._is_failing = False

    def load(self) -> dict[str, bytes]:
        """Return the records kept for workloads configured as then, by name; nothing where the file is damaged."""
        try:
            if self.path.stat().st_size > _MAX_BYTES:
                raise ValueError(f"is larger than {_MAX_BYTES} bytes")  # noqa: TRY301 one place says what follows
            found = self._decode(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            line = "kept calibration versions not usable; going on by the topic"
            _log.warning(line, path=str(self.path), error=str(error))
            return {}
        self._kept = {name: value.decode() for name, value in found.items()}
        return found

    def keep(self, workload: str, value: bytes) -> None:
        """Take a record that is in force from now on; :meth:`save` writes it."""
        self._kept[workload] = value.decode()

    def save(self) -> bool:
        """Write what was kept; blocks. False where the disk refused, logged once: what was written before stays."""
        marks = self._fingerprints
        entries = {name: {"settings": marks[name], "record": record} for name, record in sorted(self._kept.items())}
        document = {"format": _FORMAT, "owner": list(self._owner), "versions": entries}
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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

    def _decode(self, data: bytes) -> dict[str, bytes]:
        document: Any = json.loads(data)
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise ValueError(f"is not of format {_FORMAT}, which this release reads")
        if document.get("owner") != list(self._owner):
            raise ValueError("belongs to another router, cluster or topic prefix")
        entries = document.get("versions")
        if not isinstance(entries, dict):
            raise ValueError("versions: must be an object")  # noqa: TRY004 the file's fault, not a caller's
        found = {}
        for name, entry in entries.items():
            if name not in self._fingerprints or not isinstance(entry, dict):
                continue
            record = entry.get("record")
            if entry.get("settings") != self._fingerprints[name] or not isinstance(record, str):
                _log.warning("kept calibration version left alone: the workload's settings changed", workload=name)
                continue
            found[name] = record.encode()
        return found


class CalibrationFeed(Thread):
    """The thread that reads calibration versions; ``caught_up`` is set once the topics were read to their ends."""

    def __init__(
        self,
        settings: Settings,
        active: ActiveVersions,
        *,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name="calibration-feed", daemon=True)
        self._reader: TopicReader | None = None
        self._file: VersionFile | None = None
        self._records: dict[str, bytes] = {}
        self._trial_topic = CALIBRATION_TRIAL.name(settings.topics.prefix)
        self.active = active
        self._clock = clock
        self._on_failure = on_failure
        self._metrics = metrics
        self.caught_up = Event()
        self._closing = Event()
        for workload in settings.workloads:
            metrics.gauge("calibration_version", 0, workload=workload)
            metrics.gauge("trial_version", 0, workload=workload)

    def open(self, reader: TopicReader, file: VersionFile | None = None) -> None:
        """Take the reader of versions and trials, before the thread starts; without a file nothing is kept on disk."""
        self._reader, self._file = reader, file
        for workload, value in ({} if file is None else file.load()).items():
            outcome = self.active.restore(workload.encode(), value, self._clock.now())
            if isinstance(outcome, Rejected):
                _log.warning("kept calibration version refused", reason=outcome.reason.value, error=outcome.error)
            else:
                self._note(outcome, "calibration from disk in force until the topic brings one")

    def close(self) -> None:
        """Let the thread end after its present poll; :meth:`join` waits for it."""
        self._closing.set()

    def run(self) -> None:
        """Read until closed. An error that ends the thread is handed on."""
        assert self._reader is not None
        try:
            while not self._closing.is_set():
                self.turn()
            self._reader.close()
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            self._on_failure(error)

    def turn(self) -> None:
        """Take what has come; blocks up to 0.2 s."""
        assert self._reader is not None
        for record in self._reader.poll(_POLL_S):
            if record.source.topic == self._trial_topic:
                self._offer_trial(record)
            else:
                self._offer(record)
        if self._reader.has_reached_ends and not self.caught_up.is_set():
            for outcome in self.active.topic_read(self._clock.now()):
                self._take(outcome, None)
            self._save()
            self.caught_up.set()

    def _offer(self, record: Record) -> None:
        outcome = self.active.offer(record.key, record.value, self._clock.now())
        if not isinstance(outcome, Rejected) and record.key is not None and record.value is not None:
            self._records[record.key.decode()] = record.value
        if outcome is not None:
            self._take(outcome, record.offset)
        if isinstance(outcome, Activated) and self.caught_up.is_set():
            self._save()

    def _take(self, outcome: Activated | Rejected, offset: int | None) -> None:
        if isinstance(outcome, Activated):
            self._note(outcome, "calibration in force")
            if self._file is not None:
                self._file.keep(outcome.version.workload, self._records[outcome.version.workload])
            return
        self._metrics.count("calibrations_rejected", reason=outcome.reason.value)
        expected = outcome.reason in (RejectionReason.UNKNOWN_WORKLOAD, RejectionReason.DELETED)
        level = _log.debug if expected else _log.warning
        line = "calibration refused; the last good one stays"
        level(line, reason=outcome.reason.value, error=outcome.error, offset=offset)

    def _note(self, outcome: Activated, line: str) -> None:
        version = outcome.version
        self._metrics.count("calibrations_adopted", workload=version.workload)
        self._metrics.gauge("calibration_version", version.version, workload=version.workload)
        _log.info(line, workload=version.workload, version=version.version, state=version.state)
        if outcome.lineage == "forks":
            _log.warning(
                "calibration does not follow the one that was in force: the fit that made it did not know that one; "
                "is a second fit at work, or one that lost its state?",
                workload=version.workload,
                version=version.version,
                parent_version=version.parent_version,
            )

    def _save(self) -> None:
        if self._file is not None:
            self._file.save()

    def _offer_trial(self, record: Record) -> None:
        change = self.active.trials.offer(record.key, record.value)
        if change is None:
            return
        trial = change.trial
        self._metrics.gauge("trial_version", 0 if trial is None else trial.version.version, workload=change.workload)
        if change.problem is not None:
            self._metrics.count("trials_rejected")
            _log.warning("trial refused; none runs", error=change.problem, offset=record.offset)
        elif trial is None:
            _log.info("no trial", workload=change.workload)
        else:
            _log.info("trial", workload=change.workload, mode=trial.mode, version=trial.version.version)
