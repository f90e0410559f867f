"""The fit's loop: it folds observations, publishes versions and statuses, and is the only writer of versions.

A version is committed the moment it is made, together with the offset of the observation that led to it; then the
cores are stored with that offset. A restart restores them and folds what lies between the stored and the group's
offset with its outputs held back: the fold is deterministic, so what would come out is in the topics already.

The one input that is not in the log, versions of foreign writers, is taken only between two stored states, never
within what a restart would fold again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from recalibrator.decoding import Observation, decode_observation
from recalibrator.fit.news import happening, number_ignored, published_news, status_news
from recalibrator.fit.publish.version_topics import TopicVersionLog, VersionRecords
from recalibrator.fit.recalibrator import Recalibrator
from recalibrator.stage import TURN_S, News, NotCommitted, Stage, commit
from schemas.calibration import CalibrationVersion
from schemas.errors import DecodeError
from schemas.settings import Settings, WorkloadSettings
from schemas.signature import bound, signed, signed_trial
from schemas.status import WorkloadStatus
from schemas.trial import CalibrationTrial
from ucci_runtime.broker.dead_letters import dead_letter
from ucci_runtime.broker.ports import GroupOffsets, GroupReader, TransactionSession
from ucci_runtime.broker.records import Count, EndReached, Input, Lag, OutputRecord, Record, next_offset
from ucci_runtime.clock import Clock

STAGE = "fit"
_COMMIT_INTERVAL_S = 0.25
"""Versions never wait for a commit."""

STATUS_INTERVAL_S = 1.0
"""Shortest time between two statuses of one workload."""

SNAPSHOT_INTERVAL_S = 5.0
"""How much folding a restart may have to repeat, in seconds of folding."""

_POLL_S = 0.1
_MOST_STATUSES = 1_000
"""Committed statuses kept for who asks; the oldest go first."""


@dataclass(frozen=True, slots=True)
class FitTopics:
    """The topics of the fit, by full name; without that of trials, none reaches the routers.

    Without that of happenings, what happened is in the log alone.
    """

    observations: str
    calibration: str
    history: str
    status: str
    dead_letters: str
    trial: str | None = None
    happenings: str | None = None


class FitState(NamedTuple):
    """What the fit keeps of one partition: its cores as of an offset."""

    offset: int
    cores: Mapping[str, Recalibrator]
    history: Mapping[str, Sequence[int]]


class SnapshotStore(Protocol):
    """Cores and the offset they stand at, stored together."""

    def load(self, partition: int) -> FitState | None:
        """Return what was stored, or None where nothing is or it is damaged; raises OSError if unreadable now."""
        ...

    def save(self, partition: int, state: FitState) -> bool:
        """Replace what is stored, atomically; return False where the disk refused and the previous snapshot stays."""
        ...

    def use(self, workloads: Mapping[str, WorkloadSettings]) -> None:
        """Make and restore cores under these settings from now on."""
        ...

    def new(self, workload: str) -> Recalibrator:
        """Return a core that has seen nothing."""
        ...


class FitPorts(NamedTuple):
    """What the fit reads from and writes to."""

    log: GroupReader
    transactions: TransactionSession
    snapshots: SnapshotStore
    versions: TopicVersionLog


@dataclass(slots=True)
class _Fold:
    """The workloads of one partition of the observations.

    ``position`` is the next offset to take, ``committed`` the one that the group knows, ``limit`` the one below which
    outputs are in the topics already, ``stored`` the one that the snapshot stands at, None where the disk has none.
    """

    source: Input
    position: int
    limit: int
    committed: int
    stored: int | None
    cores: dict[str, Recalibrator]
    history: dict[str, list[int]]
    is_live: bool = False
    touched: set[str] = field(default_factory=set)


class FitStage(Stage):
    """The fit; driven by one thread through :meth:`turn`. With a key, bound to the cluster, it signs its outputs.

    ``kept_versions`` is how many versions of one workload stay in the history topic.
    """

    def __init__(
        self,
        workloads: frozenset[str],
        topics: FitTopics,
        ports: FitPorts,
        *,
        clock: Clock,
        count: Count,
        signing_key: bytes | None = None,
        kept_versions: int = 1_000,
    ) -> None:
        self._workloads, self._topics = workloads, topics
        self._records = VersionRecords(topics.calibration, topics.history, topics.trial, kept_versions)
        self._log, self._transactions, self._snapshots, self._versions = ports
        self._clock, self._count, self._signing_key = clock, count, signing_key
        self._folds: dict[int, _Fold] = {}
        self._outputs: list[OutputRecord] = []
        self._due_s = math.inf
        self._status_due_s: dict[str, float] = {}
        self._statuses_sent: dict[str, WorkloadStatus] = {}
        self._published: list[CalibrationVersion] = []
        self._ignored: dict[str, int] = {}
        self._news: list[News] = []
        self._committed: deque[WorkloadStatus] = deque(maxlen=_MOST_STATUSES)
        self._snapshot_due_s = clock.monotonic() + SNAPSHOT_INTERVAL_S
        self._is_assigned = False

    @property
    def is_ready(self) -> bool:
        """Whether partitions are assigned and all have caught up with the group."""
        return self._is_assigned and all(fold.is_live for fold in self._folds.values())

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far behind each input is."""
        return self._log.lag()

    def news(self) -> Sequence[News]:
        """Return what was published since the last call, and what has changed for the workloads."""
        found = [*published_news(self._published), *self._news]
        self._published, self._news = [], []
        return found

    def statuses(self) -> Sequence[WorkloadStatus]:
        """Return the statuses that were committed since the last call."""
        found = tuple(self._committed)
        self._committed.clear()
        return found

    def start(self) -> None:
        """End what an earlier process left open, then join the group."""
        self._transactions.start()
        self._log.subscribe(self)

    def turn(self) -> None:
        """Take what has come and commit what is due; blocks up to 0.1 s, or for a transaction."""
        items = self._log.poll(min(self._due_in_s(), _POLL_S))
        with suppress(NotCommitted):
            highest = self._versions.news()
            for fold in self._folds.values():
                self._raise_floors(fold, highest)
            self._note_ignored(self._versions.ignored())
            self._go_live()
            self._take_all(items)
            self._go_live()
            if self._due_in_s() <= 0.0:
                self._commit()
            if self._clock.monotonic() >= self._snapshot_due_s:
                self._commit_and_store()
            return
        # In no handler: see ucci_runtime.broker.errors.without_frames.
        self._drop()
        self._log.rewind()

    def use(self, settings: Settings) -> None:
        """Fold on under these settings as a restart would: commit, store, restore; nothing is folded twice."""
        with suppress(NotCommitted):
            self._commit_and_store()
        self._snapshots.use(settings.workloads)
        self._drop()
        self._log.rewind()

    def close(self) -> None:
        """Commit and store the rest, and leave."""
        try:
            self._commit_and_store()
        except NotCommitted:
            self._drop()
        self._log.close()
        self._transactions.close()
        self._versions.close()

    # --- called by the event log, from within poll ---

    def assigned(self, committed: GroupOffsets) -> Mapping[Input, int]:
        """Take over these partitions: restore their cores, hold outputs back up to what is committed."""
        self._drop()
        for source, known in committed.items():
            offset = next_offset(known)
            state = self._snapshots.load(source.partition)
            start = 0 if state is None else state.offset
            self._folds[source.partition] = _Fold(
                source,
                position=start,
                # A group whose offsets were lost is behind the snapshot, whose versions are committed all the same.
                limit=max(offset, start),
                committed=offset,
                stored=None if state is None else start,
                cores={} if state is None else dict(state.cores),
                history={} if state is None else {name: list(kept) for name, kept in state.history.items()},
            )
        self._is_assigned = True
        return {fold.source: fold.position for fold in self._folds.values()}

    def revoked(self) -> None:
        """Commit and store while the group still takes it from us."""
        try:
            self._commit_and_store()
        except NotCommitted:
            # The next owner of the partitions folds the rest.
            self._count("fit_notes", note="revoked_uncommitted")
        self.lost()

    def lost(self) -> None:
        """Forget what is not stored."""
        self._drop()
        self._is_assigned = False

    # --- folding ---

    def _take_all(self, items: Sequence[Record | EndReached]) -> None:
        until_s = self._clock.monotonic() + TURN_S
        for number, item in enumerate(items, 1):
            self._take(item)
            if number < len(items) and self._clock.monotonic() >= until_s:
                self._log.read_from({fold.source: fold.position for fold in self._folds.values()})
                return

    def _take(self, item: Record | EndReached) -> None:
        fold = self._folds.get(item.source.partition)
        if fold is None:
            return
        if isinstance(item, EndReached):
            self._reach_end(fold, item)
            return
        if item.offset < fold.position:
            # The log was made again and its offsets begin again: nothing of it was folded.
            self._count("fit_notes", note="log_went_back")
            fold.limit = item.offset
        if not fold.is_live and item.offset >= fold.limit:
            self._begin(fold)
        try:
            event = decode_observation(item.value, self._workloads)
        except DecodeError as error:
            self._move(fold, item.offset + 1)
            if fold.is_live:
                self._dead_letter(item, error)
            return
        core = fold.cores.get(event.workload) or self._begin_workload(fold, event.workload)
        self._move(fold, item.offset + 1)
        self._observe(fold, core, event)

    def _move(self, fold: _Fold, position: int) -> None:
        fold.position = position
        self._due_s = min(self._due_s, self._clock.monotonic() + _COMMIT_INTERVAL_S)

    def _observe(self, fold: _Fold, core: Recalibrator, event: Observation) -> None:
        before, version = core.trial, core.observe(event)
        fold.touched.add(event.workload)
        if fold.is_live:
            self._count("observations", workload=event.workload, kind=event.kind)
        if version is None and event.kind != "command":
            return
        if event.kind == "command":
            # Somebody waits for the outcome.
            self._status_due_s.pop(event.workload, None)
        kept = fold.history.setdefault(event.workload, [])
        # Signed as they leave: the fold, and so its snapshots, know of no key.
        trial = core.trial
        if trial is not None and trial is not before:
            trial = self._signed_trial(trial)
        records = self._records.of_trial(before, trial, event, kept)
        if version is not None:
            version = self._signed(version, self._topics.calibration)
            records += self._records.of_version(version, kept)
        if self._topics.trial is None and core.trial is not before:
            self._count("fit_notes", note="trial_without_topic")
        if fold.is_live and records:
            self._outputs.extend(records)
            self._commit(is_urgent=True)
            self._store([fold])
            if version is not None:
                self._count("versions", workload=version.workload, trigger=version.evidence.trigger)
                self._published.append(version)

    def _signed(self, version: CalibrationVersion, topic: str) -> CalibrationVersion:
        return version if self._signing_key is None else signed(version, bound(self._signing_key, topic))

    def _signed_trial(self, trial: CalibrationTrial) -> CalibrationTrial:
        if self._signing_key is None or self._topics.trial is None:
            return trial
        # The version for the history alone: signed for the calibration topic, it could be put in force there.
        kept = trial.model_copy(update={"version": self._signed(trial.version, self._topics.history)})
        return signed_trial(kept, bound(self._signing_key, self._topics.trial))

    def _reach_end(self, fold: _Fold, end: EndReached) -> None:
        if not fold.is_live and end.offset < fold.limit:
            self._count("fit_notes", note="log_shorter_than_committed")
            fold.limit = end.offset
        if end.offset > fold.position:
            # Beyond the last record stand transaction markers only; committed, they show as lag no longer.
            self._move(fold, end.offset)

    def _dead_letter(self, record: Record, error: DecodeError) -> None:
        reason = error.reason
        self._count("dead_letters", stage=STAGE, reason=reason)
        topic = self._topics.dead_letters
        self._outputs.append(dead_letter(topic, record, stage=STAGE, reason=reason, error=str(error)))

    # --- foreign versions ---

    def _go_live(self) -> None:
        for fold in self._folds.values():
            if not fold.is_live and fold.position >= fold.limit:
                self._begin(fold)

    def _begin(self, fold: _Fold) -> None:
        """Let outputs out from here on, numbered above all that an earlier owner or a foreign writer has published."""
        fold.is_live = True
        fold.position = max(fold.position, fold.limit)
        fold.committed = fold.limit
        # A status that a crash has swallowed would otherwise wait for the next observation.
        fold.touched.update(fold.cores)
        self._due_s = min(self._due_s, self._clock.monotonic() + _COMMIT_INTERVAL_S)
        highest = self._versions.highest()
        for workload, core in fold.cores.items():
            self._inherit(core, workload, is_rebuilt=fold.stored is None)
        self._raise_floors(fold, highest)

    def _inherit(self, core: Recalibrator, workload: str, *, is_rebuilt: bool) -> None:
        """Have a core go on from the newest version where the log does not tell how that came about.

        A core from a disk that knew its number knows it as foreign, and stays with its own.
        """
        version, trial = self._versions.newest(workload)
        mine = 0 if core.current is None else core.current.version
        if version is not None and (is_rebuilt or not mine < version.version <= core.version_floor):
            core.inherit(version, trial)

    def _begin_workload(self, fold: _Fold, workload: str) -> Recalibrator:
        """Make the core of a workload's first observation here, numbered above all that is published."""
        core = fold.cores[workload] = self._snapshots.new(workload)
        if fold.is_live:
            highest = self._versions.highest()
            self._inherit(core, workload, is_rebuilt=True)
            self._raise_floors(fold, highest)
        return core

    def _note_ignored(self, ignored: Mapping[str, int]) -> None:
        for workload, number in ignored.items():
            self._ignored[workload] = number
            self._news.append(number_ignored(workload, number))
            self._count("fit_notes", note="version_number_ignored")
            for fold in self._folds.values():
                if workload in fold.cores:
                    fold.touched.add(workload)
                    self._due_s = min(self._due_s, self._clock.monotonic() + _COMMIT_INTERVAL_S)

    def _raise_floors(self, fold: _Fold, highest: Mapping[str, int]) -> None:
        above = {
            core: number
            for workload, number in highest.items()
            if (core := fold.cores.get(workload)) is not None and number > core.version_floor
        }
        if not above or not fold.is_live:
            return
        # Committed before and stored after: a restart folds nothing of before under another floor.
        self._commit(is_urgent=True)
        for core, number in above.items():
            core.raise_version_floor(number)
            self._count("fit_notes", note="foreign_version")
        self._store([fold], changed=True)

    # --- committing ---

    def _due_in_s(self) -> float:
        return max(self._due_s - self._clock.monotonic(), 0.0)

    def _commit(self, *, is_urgent: bool = False) -> None:
        """Commit outputs and offsets; what is urgent does not wait for statuses to be made."""
        live = [fold for fold in self._folds.values() if fold.is_live]
        offsets = {fold.source: fold.position for fold in live if fold.position != fold.committed}
        statuses = [] if is_urgent else self._statuses()
        sent = self._statuses_sent
        news = [(new, one) for _, one, _ in statuses for new in status_news(sent.get(one.workload, one), one)]
        records = [*self._outputs, *(record for _, _, record in statuses), *self._happenings(news)]
        if offsets or records:
            commit(self._transactions, records, offsets, self._log.group())
        for fold in live:
            fold.committed = fold.position
        self._news.extend(new for new, _ in news)
        for fold, status, _ in statuses:
            workload = status.workload
            self._statuses_sent[workload] = status
            self._committed.append(status)
            fold.touched.discard(workload)
            self._status_due_s[workload] = self._clock.monotonic() + STATUS_INTERVAL_S
        self._outputs = []
        waiting = [self._status_due_s.get(workload, 0.0) for fold in live for workload in fold.touched]
        self._due_s = min(waiting, default=math.inf)

    def _happenings(self, news: Iterable[tuple[News, WorkloadStatus]]) -> Iterable[OutputRecord]:
        topic = self._topics.happenings
        for new, status in news if topic is not None else ():
            event = happening(new, status.updated_at or self._clock.now())
            if topic is not None and event is not None:
                yield OutputRecord(topic, status.workload.encode(), event.to_json())

    def _statuses(self) -> list[tuple[_Fold, WorkloadStatus, OutputRecord]]:
        """Return the statuses that are due."""
        now_s, lag = self._clock.monotonic(), self._log.lag()
        found = []
        for fold in self._folds.values():
            for workload in sorted(fold.touched) if fold.is_live else ():
                if self._status_due_s.get(workload, 0.0) > now_s:
                    continue
                behind = {"observations": lag[fold.source].records if fold.source in lag else 0}
                status = fold.cores[workload].status()
                status = status.model_copy(update={"lag": behind, "updated_at": self._clock.now()})
                if workload in self._ignored:
                    details = {**status.details, "version_number_ignored": self._ignored[workload]}
                    status = status.model_copy(update={"details": details})
                found.append((fold, status, OutputRecord(self._topics.status, workload.encode(), status.to_json())))
        return found

    def _commit_and_store(self) -> None:
        self._commit()
        self._store(self._folds.values())

    def _store(self, folds: Iterable[_Fold], *, changed: bool = False) -> None:
        for fold in folds:
            if fold.is_live and fold.position == fold.committed and (changed or fold.position != fold.stored):
                state = FitState(fold.position, fold.cores, fold.history)
                is_stored = self._snapshots.save(fold.source.partition, state)
                # What the disk refused is tried again whatever comes, since not only the position may have changed.
                fold.stored = fold.position if is_stored else None
                if not is_stored:
                    self._count("fit_notes", note="snapshot_refused")
        self._snapshot_due_s = self._clock.monotonic() + SNAPSHOT_INTERVAL_S

    def _drop(self) -> None:
        self._folds = {}
        self._outputs = []
        self._due_s = math.inf
