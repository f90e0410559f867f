"""Versions as records of the calibration topics: how they are published, and which numbers the topics show as taken.

Any writer of a valid version takes its number; what is not a valid version takes none, and neither does a number that
leaves no room for the next ones. The history topic keeps the latest versions of each workload and is bounded
by records without value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.calibration import HIGHEST_VERSION, CalibrationVersion
from schemas.command import Command
from schemas.errors import DecodeError
from schemas.event import Event
from schemas.signature import bound, signature_fault, unsigned
from schemas.trial import CalibrationTrial
from ucci_runtime.broker.ports import TopicReader
from ucci_runtime.broker.records import OutputRecord, Record

_Found = CalibrationVersion | CalibrationTrial
_ENDING = frozenset({"activate", "pin", "stop_trial", "large_only"})
"""Commands after which no trial runs, whether or not the fit knew of one."""


class TopicVersionLog:
    """The reader of the topics of versions in force and on trial; used by the fit's thread alone.

    One of the keys, bound to the cluster, must have signed a version that is gone on from; empty: none need be signed.
    """

    def __init__(self, reader: TopicReader, trial_topic: str | None, keys: Sequence[bytes] = ()) -> None:
        self._reader = reader
        self._trial_topic = trial_topic
        self._keys = tuple(keys)
        self._highest: dict[str, int] = {}
        self._ignored: dict[str, int] = {}
        self._newest: dict[str, CalibrationVersion] = {}
        self._trials: dict[str, CalibrationTrial] = {}

    def news(self) -> dict[str, int]:
        """Return the highest valid version of each workload that came since the last call; never blocks."""
        return self._take(self._reader.poll(0.0))

    def highest(self) -> dict[str, int]:
        """Read to the end as of now, then return the highest valid version of each workload; blocks.

        Raises
        ------
        AccessDenied, BrokerUnreachable
        """
        self._take(self._reader.up_to_end())
        return dict(self._highest)

    def newest(self, workload: str) -> tuple[CalibrationVersion | None, CalibrationTrial | None]:
        """Return a workload's newest trusted version as far as was read, unsigned, and the trial under way."""
        version = self._newest.get(workload)
        return None if version is None else unsigned(version), self._trials.get(workload)

    def ignored(self) -> dict[str, int]:
        """Return by workload the numbers too high to be followed that came since the last call."""
        ignored, self._ignored = self._ignored, {}
        return ignored

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _take(self, records: Iterable[Record]) -> dict[str, int]:
        news: dict[str, int] = {}
        for record in records:
            is_trial = record.source.topic == self._trial_topic
            if is_trial:
                # As at the routers, it takes the place of the trial under way whatever it holds.
                self._trials.pop((record.key or b"").decode(errors="replace"), None)
            found = _valid(CalibrationTrial if is_trial else CalibrationVersion, record)
            version = found.version if isinstance(found, CalibrationTrial) else found
            if version is None or not version.is_sealed:
                continue
            workload, number = version.workload, version.version
            if number > HIGHEST_VERSION:
                self._ignored[workload] = number
                continue
            news[workload] = max(number, news.get(workload, 0))
            self._highest[workload] = max(number, self._highest.get(workload, 0))
            keys = [bound(key, record.source.topic) for key in self._keys]
            if keys and signature_fault(json.loads(record.value or b""), keys):
                continue
            if isinstance(found, CalibrationTrial):
                self._trials[workload] = found.model_copy(update={"signature": ""})
            elif workload not in self._newest or number > self._newest[workload].version:
                self._newest[workload] = version
        return news


def _valid(kind: type[_Found], record: Record) -> _Found | None:
    """Return what a record holds, or None where it is deleted, damaged, of another kind or under a foreign key."""
    if record.key is None or record.value is None:
        return None
    try:
        found = kind.from_json(record.value)
    except DecodeError:
        return None
    return found if record.key == found.workload.encode() else None


class VersionRecords(NamedTuple):
    """Where versions are published: the topics, and how many versions of a workload stay in the history.

    ``kept`` are the numbers of a workload in the history topic, oldest first; it is brought up to date. Older ones are
    deleted by a record without value.
    """

    calibration: str
    history: str
    trial: str | None
    most: int

    def of_version(self, version: CalibrationVersion, kept: list[int]) -> list[OutputRecord]:
        """Return the records of a version; the same bytes under both keys."""
        return [
            OutputRecord(self.calibration, version.workload.encode(), version.to_json()),
            *self._into_history(version, kept),
        ]

    def of_trial(
        self, before: CalibrationTrial | None, after: CalibrationTrial | None, event: Event, kept: list[int]
    ) -> list[OutputRecord]:
        """Return the records that begin or end a trial, under way before and after an event.

        A command to end it deletes the record in any case: a fit that has lost its state, and whose log does not reach
        back to the beginning, knows of no trial although routers run one.
        """
        if self.trial is None or (after is not None and after is before):
            return []
        if after is not None:
            begun = OutputRecord(self.trial, after.workload.encode(), after.to_json())
            return [begun, *self._into_history(after.version, kept)]
        if isinstance(event, Command) and (before is not None or event.action in _ENDING):
            return [OutputRecord(self.trial, event.workload.encode(), None)]
        return []

    def _into_history(self, version: CalibrationVersion, kept: list[int]) -> list[OutputRecord]:
        kept.append(version.version)
        surplus = kept[: -self.most]
        del kept[: len(surplus)]
        return [
            OutputRecord(self.history, history_key(version.workload, version.version), version.to_json()),
            *(OutputRecord(self.history, history_key(version.workload, old), None) for old in surplus),
        ]


def history_key(workload: str, version: int) -> bytes:
    """Return the key of a version in the history topic.

    Examples
    --------
    >>> history_key("photo-search", 7)
    b'photo-search:7'
    """
    return f"{workload}:{version}".encode()
