"""The calibration versions that a router decides by: for each workload the one in force, and the one on trial.

The highest valid version that belongs to this router's configuration is in force. A rejected record changes nothing:
the last good version stays, and so it does when its record is deleted. A version from the router's own disk stands in
until the topic brings one: it passes the same checks, and as soon as the topic was read to its end, whatever version
that holds takes its place, be its number lower, unless it was made earlier as well. A trial never decides whether
queries are answered: without one, or with one that does not fit, the version in force decides alone, as it does in
routers that do not know of trials.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from schemas.calibration import HIGHEST_VERSION, CalibrationVersion
from schemas.errors import DecodeError, one_line
from schemas.made_for import MadeFor, misfit
from schemas.signature import SignatureFault, bound, signature_fault
from schemas.status import VersionInUse, VersionLineage, VersionSource
from schemas.trial import CalibrationTrial

_SIGNATURE_FAULTS: Mapping[SignatureFault, str] = {
    "unsigned": "the version is not signed, and calibration.signing_key is set here; set it for the fit too",
    "bad_signature": "signed with another key or for another place: compare calibration.signing_key with the fit's",
}


class RejectionReason(StrEnum):
    """Why a record was not put in force."""

    #: Not a calibration version, or one that contradicts itself or its key.
    MALFORMED = "malformed"
    #: The digest is missing or belongs to something else: altered or cut.
    DIGEST = "digest"
    #: Not configured here; normal where routers serve different workloads.
    UNKNOWN_WORKLOAD = "unknown_workload"
    #: Made for another uncertainty signal, small model or decoding.
    FOREIGN_SIGNAL = "foreign_signal"
    #: Made with another prompt, other fields, another model or another form of request than configured here.
    FOREIGN_BASIS = "foreign_basis"
    #: Made for another handoff, or for none where one is configured.
    FOREIGN_HANDOFF = "foreign_handoff"
    #: Without a signature, where a key is configured.
    UNSIGNED = "unsigned"
    #: Signed with a key that is not configured, or for another cluster or topic, or altered since.
    BAD_SIGNATURE = "bad_signature"
    #: Above any number that the fit gives: in force, it would shut out every version to come.
    NUMBER_TOO_HIGH = "number_too_high"
    #: Not above the version in force, or lower than the one from disk and made earlier.
    OLDER = "older"
    #: Made longer ago than is taken where no version is known.
    TOO_OLD = "too_old"
    #: Expected to escalate a share of queries too far from that of the version in force.
    ESCALATION_JUMP = "escalation_jump"
    #: A tombstone: the last good version stays.
    DELETED = "deleted"


#: Decimals to which rates are compared.
_PLACES = 9

#: Triggers of versions that a person asked for.
BY_COMMAND = frozenset({"activate", "pin", "promote", "bootstrap"})


class Activated(NamedTuple):
    """A version put in force, and how it follows the one before it."""

    version: CalibrationVersion
    lineage: VersionLineage = "first"


class Rejected(NamedTuple):
    """A record rejected, and what is wrong with it."""

    reason: RejectionReason
    error: str

    @classmethod
    def by(cls, reason: RejectionReason | str, error: str) -> Rejected:
        """Say what is wrong in a line of bounded length: it may be as long as the record."""
        return cls(RejectionReason(reason), one_line(error))


class _InForce(NamedTuple):
    version: CalibrationVersion
    since: datetime
    source: VersionSource
    lineage: VersionLineage


class ActiveVersions:
    """The versions in force, and those on ``trials`` beside them: :class:`~stream_router.ports.Calibrations`.

    One of ``keys`` must have signed a version; without any, none need be signed. ``max_jump``: most by which the
    escalation rate of a version may differ from that of the one in force; any thread may set it. ``max_age_s``: how
    long ago a version may have been made where none is in force.
    """

    def __init__(
        self,
        wanted: Mapping[str, MadeFor],
        keys: Sequence[bytes] = (),
        max_jump: float | None = None,
        max_age_s: float | None = None,
    ) -> None:
        self._wanted = dict(wanted)
        self._keys = tuple(keys)
        self.max_jump = max_jump
        self._max_age_s = max_age_s
        self._too_old: dict[str, Rejected] = {}
        self._in_force: dict[str, _InForce] = {}
        self._from_topic: dict[str, CalibrationVersion] = {}
        self._restored: set[str] = set()
        self._is_topic_read = False
        self._rejected: Counter[str] = Counter()
        self.trials = ActiveTrials(wanted, keys, self._jump_of)

    def bind(self, cluster_id: str, versions: str, trials: str) -> None:
        """Take only what was signed for these topics of this cluster; once, before anything is offered."""
        keys = [bound(key, cluster_id) for key in self._keys]
        self._keys = tuple(bound(key, versions) for key in keys)
        self.trials.keys = tuple(bound(key, trials) for key in keys)

    def in_force(self, workload: str) -> CalibrationVersion | None:
        """Return the version in force, or None in a cold start."""
        found = self._in_force.get(workload)
        return None if found is None else found.version

    @property
    def is_complete(self) -> bool:
        """Whether every configured workload has a version in force."""
        return self._wanted.keys() <= self._in_force.keys()

    def trial(self, workload: str) -> CalibrationTrial | None:
        """Return the version on trial, or None."""
        return self.trials.of(workload)

    def offer(self, key: bytes | None, value: bytes | None, now: datetime) -> Activated | Rejected | None:
        """Put a record in force or reject it; None when it is in force, or too old and the topic may hold a newer."""
        outcome = self._check(key, value)
        if isinstance(outcome, CalibrationVersion) and (aged := self._aged(outcome, now)) is not None:
            if not self._is_topic_read:
                self._too_old[outcome.workload] = aged
                return None
            outcome = aged
        if isinstance(outcome, Rejected):
            self._rejected[outcome.reason] += 1
            return outcome
        self._from_topic[outcome.workload] = outcome
        present = self._in_force.get(outcome.workload)
        if present is not None and present.version.digest == outcome.digest:
            self._in_force[outcome.workload] = present._replace(source="topic")
            return None
        if self._stands_in(present, outcome):
            return None
        return self._put_in_force(outcome, now, "topic")

    def restore(self, key: bytes, value: bytes, now: datetime) -> Activated | Rejected:
        """Put a version from this router's disk in force until the topic brings one; before the topic is read.

        It passes the checks of :meth:`offer`, and is not counted among the rejected where it fails them.
        """
        outcome = self._check(key, value)
        if isinstance(outcome, Rejected):
            return outcome
        self._restored.add(outcome.workload)
        return self._put_in_force(outcome, now, "disk")

    def topic_read(self, now: datetime) -> list[Activated | Rejected]:
        """Note that the topic was read to its end: what it holds takes the place of what came from disk.

        Returns what became of each version that came from the topic and was not in force yet.
        """
        self._is_topic_read = True
        waiting = [one for name, one in self._from_topic.items() if self._in_force[name].source == "disk"]
        too_old = [one for name, one in self._too_old.items() if name not in self._in_force]
        self._rejected.update(one.reason for one in too_old)
        return [*(self._settle(version, now) for version in waiting), *too_old]

    def _aged(self, version: CalibrationVersion, now: datetime) -> Rejected | None:
        """Refuse an old version where nothing shows whether it was the newest: somebody may have sent it again."""
        limit_s = self._max_age_s
        if limit_s is None or version.workload in self._in_force or now - version.created_at <= timedelta(0, limit_s):
            return None
        problem = (
            f"created_at: version {version.version} is of {version.created_at:%Y-%m-%d %H:%M}: calibration.max_age_s "
            f"allows {limit_s:g} s where no version is known; have the fit publish another (`refit`)"
        )
        return Rejected.by(RejectionReason.TOO_OLD, problem)

    def _settle(self, version: CalibrationVersion, now: datetime) -> Activated | Rejected:
        outcome = self._compare_with(version, self._in_force[version.workload].version)
        if isinstance(outcome, Rejected):
            self._rejected[outcome.reason] += 1
            return outcome
        return self._put_in_force(version, now, "topic")

    def _stands_in(self, present: _InForce | None, found: CalibrationVersion) -> bool:
        """Return whether a version from disk stays for now: older ones are read before the topic's end is."""
        if present is None or present.source != "disk" or self._is_topic_read:
            return False
        return found.version < present.version.version

    def _put_in_force(self, version: CalibrationVersion, now: datetime, source: VersionSource) -> Activated:
        lineage = _lineage(self.in_force(version.workload), version)
        self._in_force[version.workload] = _InForce(version, now, source, lineage)
        return Activated(version, lineage)

    def versions(self) -> dict[str, VersionInUse]:
        """Return the version in use by workload, every configured one included."""
        return {workload: self._in_use(workload, wanted.signal.kind) for workload, wanted in self._wanted.items()}

    def _in_use(self, workload: str, signal: str) -> VersionInUse:
        trial, entry = self.trials.of(workload), self._in_force.get(workload)
        found = {} if entry is None else entry._asdict() | {"version": entry.version.version}
        tried = None if trial is None else trial.version.version
        return VersionInUse.model_validate({"version": None, "trial": tried, "signal": signal, **found})

    def rejected(self) -> dict[str, int]:
        """Return how many records were rejected, by reason."""
        return dict(self._rejected)

    def _check(self, key: bytes | None, value: bytes | None) -> CalibrationVersion | Rejected:
        if value is None:
            return Rejected.by(RejectionReason.DELETED, "the record of this version was deleted")
        try:
            version = CalibrationVersion.from_json(value)
        except DecodeError as error:
            damaged = error.reason == RejectionReason.DIGEST
            return Rejected.by(RejectionReason.DIGEST if damaged else RejectionReason.MALFORMED, str(error))
        if not version.is_sealed:
            return Rejected.by(RejectionReason.DIGEST, "the version has no digest: it was altered or never sealed")
        if key != version.workload.encode():
            return Rejected.by(RejectionReason.MALFORMED, f"the key is {key!r}, the workload {version.workload!r}")
        if self._keys and (fault := signature_fault(json.loads(value), self._keys)) is not None:
            return Rejected.by(fault, _SIGNATURE_FAULTS[fault])
        return self._compare(version)

    def _compare(self, version: CalibrationVersion) -> CalibrationVersion | Rejected:
        wanted = self._wanted.get(version.workload)
        if wanted is None:
            problem = f"workload {version.workload!r} is not configured here"
            return Rejected.by(RejectionReason.UNKNOWN_WORKLOAD, problem)
        if (unfit := _unfit(version, wanted)) is not None:
            return unfit
        present = self._in_force.get(version.workload)
        newest = self._from_topic.get(version.workload)
        if newest is not None and version.version <= newest.version and version.digest != newest.digest:
            problem = f"version {version.version} is not above {newest.version}, which is in force"
            return Rejected.by(RejectionReason.OLDER, problem)
        # What was taken before the start is not judged again, unless the disk says which version was in force then.
        is_judged = self._is_topic_read or version.workload in self._restored
        if present is None or not is_judged or self._stands_in(present, version):
            return version
        return self._compare_with(version, present.version)

    def _compare_with(self, version: CalibrationVersion, present: CalibrationVersion) -> CalibrationVersion | Rejected:
        """Refuse a version of before the present one, and, unless a person asked for it, one that changes too much."""
        if version.version < present.version and version.created_at < present.created_at:
            problem = f"version {version.version} was made before {present.version}, which is in force"
            return Rejected.by(RejectionReason.OLDER, problem)
        limit, found, usual = self.max_jump, escalation_rate(version), escalation_rate(present)
        is_wanted = version.evidence.trigger in BY_COMMAND or version.digest == present.digest
        if limit is None or found is None or usual is None or is_wanted or round(abs(found - usual), _PLACES) <= limit:
            return version
        problem = (
            f"evidence.escalation_rate: version {version.version} expects to escalate {found:.3g} of the queries, "
            f"version {present.version}, which is in force, {usual:.3g}: calibration.max_escalation_jump allows "
            f"{limit:.3g}; activate the version to take it all the same"
        )
        return Rejected.by(RejectionReason.ESCALATION_JUMP, problem)

    def _jump_of(self, trial: CalibrationTrial) -> str | None:
        limit, present, found = self.max_jump, self.in_force(trial.workload), escalation_rate(trial.version)
        usual = None if present is None else escalation_rate(present)
        if limit is None or found is None or usual is None:
            return None
        if (moved := round((trial.share or 0.0) * abs(found - usual), _PLACES)) <= limit:
            return None
        return (
            f"share: {trial.share} of the queries by version {trial.version.version} would move escalation by "
            f"{moved:.3g}: calibration.max_escalation_jump allows {limit:.3g}; try a smaller share"
        )


def _unfit(version: CalibrationVersion, wanted: MadeFor) -> Rejected | None:
    if (found := misfit(version, wanted)) is not None:
        return Rejected.by(found.reason, found.problem)
    if version.version > HIGHEST_VERSION:
        problem = f"version {version.version} is above {HIGHEST_VERSION}, the highest that is taken"
        return Rejected.by(RejectionReason.NUMBER_TOO_HIGH, problem)
    return None


def escalation_rate(version: CalibrationVersion) -> float | None:
    """Return the share of queries that a version is expected to escalate; 1 in a cold start, None where not known."""
    return 1.0 if version.state == "cold_start" else version.evidence.escalation_rate


def _lineage(present: CalibrationVersion | None, version: CalibrationVersion) -> VersionLineage:
    """Return how a version follows the one in force, by the parent that it names."""
    if present is None:
        return "first"
    parent = version.parent_version
    if parent is None or parent < present.version:
        return "forks"
    return "follows" if parent == present.version else "skips"


class TrialChange(NamedTuple):
    """What a record changed."""

    workload: str
    trial: CalibrationTrial | None
    #: Why the record was rejected.
    problem: str | None = None


class ActiveTrials:
    """The trials under way, by workload.

    ``jump``: returns why a trial may not act beside the version in force, or None; asked anew, since that one changes.
    """

    def __init__(
        self, wanted: Mapping[str, MadeFor], keys: Sequence[bytes], jump: Callable[[CalibrationTrial], str | None]
    ) -> None:
        self._wanted = dict(wanted)
        self.keys = tuple(keys)
        self._jump = jump
        self._trials: dict[str, CalibrationTrial] = {}

    def of(self, workload: str) -> CalibrationTrial | None:
        """Return a workload's trial, or None."""
        found = self._trials.get(workload)
        return None if found is None or self._jump(found) is not None else found

    def offer(self, key: bytes | None, value: bytes | None) -> TrialChange | None:
        """Take a record, which replaces the workload's trial whatever it holds; None for a workload not known here."""
        workload = (key or b"").decode("utf-8", "replace")
        wanted = self._wanted.get(workload)
        if wanted is None:
            return None
        trial, problem = (None, None) if value is None else _read_trial(workload, value, wanted, self.keys)
        if trial is not None and (problem := self._jump(trial)) is not None:
            trial = None
        if trial is None:
            self._trials.pop(workload, None)
        else:
            self._trials[workload] = trial
        return TrialChange(workload, trial, None if problem is None else one_line(problem))


def _read_trial(
    workload: str, value: bytes, wanted: MadeFor, keys: Sequence[bytes]
) -> tuple[CalibrationTrial | None, str | None]:
    try:
        trial = CalibrationTrial.from_json(value)
    except DecodeError as error:
        return None, str(error)
    if trial.workload != workload:
        return None, f"the key is {workload!r}, the workload {trial.workload!r}"
    if keys and (fault := signature_fault(json.loads(value), keys)) is not None:
        return None, _SIGNATURE_FAULTS[fault]
    unfit = _unfit(trial.version, wanted)
    return (trial, None) if unfit is None else (None, unfit.error)
