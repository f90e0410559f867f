"""Records of the calibration topic → the version in force, or a reason why not.

Bytes flow in; the highest valid version that belongs to this router's configuration is in force, for each workload.
Whatever is refused changes nothing: the last good version stays, and so it does when its record is deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from schemas.calibration import CalibrationVersion, Signal
from schemas.canonical import DIGEST_FIELD, digest
from schemas.errors import DecodeError
from schemas.status import VersionInUse
from schemas.trial import CalibrationTrial
from stream_router.calibration.trial import Trials


class Refusal(StrEnum):
    """Why a record was not taken into force."""

    MALFORMED = "malformed"
    """Not a calibration version, or one that contradicts itself or its key."""

    DIGEST = "digest"
    """The digest is missing or belongs to something else: altered or cut."""

    UNKNOWN_WORKLOAD = "unknown_workload"
    """Not configured here; normal where routers serve different workloads."""

    FOREIGN_SIGNAL = "foreign_signal"
    """Made for another small model, prompt mode or decoding."""

    OLDER = "older"
    """Not above the version in force."""

    DELETED = "deleted"
    """A tombstone: the last good version stays."""


class Adopted(NamedTuple):
    """A version taken into force."""

    version: CalibrationVersion


class Refused(NamedTuple):
    """A record refused, and what is wrong with it."""

    reason: Refusal
    error: str


class _InForce(NamedTuple):
    version: CalibrationVersion
    since: datetime


class Adoption:
    """The versions in force; the router's :class:`~stream_router.ports.Calibrations`.

    Parameters
    ----------
    signals : mapping of workload to Signal
        What u is measured on under this router's configuration.

    Attributes
    ----------
    trials : Trials
        Versions on trial beside those in force.
    """

    def __init__(self, signals: Mapping[str, Signal]) -> None:
        self._signals = dict(signals)
        self._in_force: dict[str, _InForce] = {}
        self._rejected: Counter[str] = Counter()
        self.trials = Trials(signals)

    def in_force(self, workload: str) -> CalibrationVersion | None:
        """Return the version in force, or None in a cold start."""
        found = self._in_force.get(workload)
        return None if found is None else found.version

    def trial(self, workload: str) -> CalibrationTrial | None:
        """Return the version on trial, or None."""
        return self.trials.of(workload)

    def offer(self, key: bytes | None, value: bytes | None, now: datetime) -> Adopted | Refused | None:
        """Take a record into force or refuse it.

        Parameters
        ----------
        key, value : bytes or None
            As read from the topic.
        now : datetime
            Since when the version is in force, if it is taken.

        Returns
        -------
        Adopted, Refused or None
            None when it is the version in force once more.
        """
        outcome = self._judge(key, value)
        if isinstance(outcome, Refused):
            self._rejected[outcome.reason] += 1
            return outcome
        present = self.in_force(outcome.workload)
        if present is not None and present.digest == outcome.digest:
            return None
        self._in_force[outcome.workload] = _InForce(outcome, now)
        return Adopted(outcome)

    def versions(self) -> dict[str, VersionInUse]:
        """Return the version in use by workload, every configured one included."""
        found = {workload: self._in_force.get(workload) for workload in self._signals}
        return {
            workload: VersionInUse(
                version=None if entry is None else entry.version.version,
                since=None if entry is None else entry.since,
                trial=None if (trial := self.trials.of(workload)) is None else trial.version.version,
            )
            for workload, entry in found.items()
        }

    def rejected(self) -> dict[str, int]:
        """Return how many records were refused, by reason."""
        return dict(self._rejected)

    def _judge(self, key: bytes | None, value: bytes | None) -> CalibrationVersion | Refused:
        if value is None:
            return Refused(Refusal.DELETED, "the record of this version was deleted")
        if (damage := _damage(value)) is not None:
            return damage
        try:
            version = CalibrationVersion.from_json(value)
        except DecodeError as error:
            return Refused(Refusal.MALFORMED, str(error))
        if key != version.workload.encode():
            return Refused(Refusal.MALFORMED, f"the key is {key!r}, the workload {version.workload!r}")
        return self._fit(version)

    def _fit(self, version: CalibrationVersion) -> CalibrationVersion | Refused:
        signal = self._signals.get(version.workload)
        if signal is None:
            return Refused(Refusal.UNKNOWN_WORKLOAD, f"workload {version.workload!r} is not configured here")
        if version.signal != signal:
            return Refused(Refusal.FOREIGN_SIGNAL, f"made for {version.signal}, configured is {signal}")
        present = self.in_force(version.workload)
        if present is None or version.version > present.version or version.digest == present.digest:
            return version
        return Refused(Refusal.OLDER, f"version {version.version} is not above {present.version}, which is in force")


def _damage(value: bytes) -> Refused | None:
    """Hold the record against its own digest before anything in it is believed."""
    try:
        document = json.loads(value)
        if not isinstance(document, dict):
            return Refused(Refusal.MALFORMED, "the value is not a JSON object")
        fits = document.get(DIGEST_FIELD) == digest(document)
    except (ValueError, RecursionError) as error:
        return Refused(Refusal.MALFORMED, f"not valid JSON: {error}")
    return None if fits else Refused(Refusal.DIGEST, "the digest does not fit the content: altered, cut or unsealed")
