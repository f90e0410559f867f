"""Versions as records of the calibration topics: how they are published, and which numbers the topics show as taken.

Any writer of a valid version takes its number; what is not a valid version takes none, and neither does a number that
leaves no room for the next ones. The history topic keeps the latest versions of each workload and is bounded
by records without value.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.calibration import HIGHEST_VERSION, CalibrationVersion
from schemas.command import Command
from schemas.errors import DecodeError
from schemas.event import Event
from schemas.trial import CalibrationTrial
from ucci_runtime.broker.ports import TopicReader
from ucci_runtime.broker.records import OutputRecord, Record

_ENDING = frozenset({"activate", "pin", "stop_trial"})
"""Commands after which no trial runs, whether or not the fit knew of one."""


class TopicVersionLog:
    """The reader of the calibration topic; used by the fit's thread alone.

    Parameters
    ----------
    reader : TopicReader
        Of the topics of versions in force and on trial.
    trial_topic : str or None
    """

    def __init__(self, reader: TopicReader, trial_topic: str | None) -> None:
        self._reader = reader
        self._trial_topic = trial_topic
        self._numbers = TakenNumbers()

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
        return dict(self._numbers.highest)

    def ignored(self) -> dict[str, int]:
        """Return by workload the numbers too high to be followed that came since the last call."""
        return self._numbers.ignored()

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _take(self, records: Iterable[Record]) -> dict[str, int]:
        news: dict[str, int] = {}
        for record in records:
            read = version_on_trial if record.source.topic == self._trial_topic else valid_version
            version = read(record.key, record.value)
            if version is not None and self._numbers.take(version):
                news[version.workload] = max(version.version, news.get(version.workload, 0))
        return news


class TakenNumbers:
    """Which numbers versions have taken, of any writer.

    Attributes
    ----------
    highest : dict of str to int
        By workload.
    """

    def __init__(self) -> None:
        self.highest: dict[str, int] = {}
        self._ignored: dict[str, int] = {}

    def take(self, version: CalibrationVersion) -> bool:
        """Take a valid version's number; False where it is too high for another one to follow."""
        workload, number = version.workload, version.version
        if number > HIGHEST_VERSION:
            self._ignored[workload] = number
            return False
        self.highest[workload] = max(number, self.highest.get(workload, 0))
        return True

    def ignored(self) -> dict[str, int]:
        """Return by workload the numbers too high to be followed that came since the last call."""
        ignored, self._ignored = self._ignored, {}
        return ignored


def valid_version(key: bytes | None, value: bytes | None) -> CalibrationVersion | None:
    """Return a record's version, or None where it is deleted, damaged, unsealed or under a foreign key."""
    if key is None or value is None:
        return None
    try:
        version = CalibrationVersion.from_json(value)
    except DecodeError:
        return None
    return version if version.is_sealed and key == version.workload.encode() else None


def version_on_trial(key: bytes | None, value: bytes | None) -> CalibrationVersion | None:
    """Return the version that a record puts on trial, or None where it ends one or is damaged."""
    if key is None or value is None:
        return None
    try:
        trial = CalibrationTrial.from_json(value)
    except DecodeError:
        return None
    return trial.version if key == trial.workload.encode() else None


def version_records(
    version: CalibrationVersion, kept: list[int], *, calibration: str, history: str, most: int
) -> list[OutputRecord]:
    """Return the records of a version; the same bytes under both keys.

    Parameters
    ----------
    version : CalibrationVersion
    kept : list of int
        Numbers of this workload in the history topic, oldest first; brought up to date.
    calibration, history : str
        The topics.
    most : int
        Versions that stay in the history; older ones are deleted by a record without value.
    """
    value = version.to_json()
    return [
        OutputRecord(calibration, version.workload.encode(), value),
        *_into_history(version, value, kept, history=history, most=most),
    ]


def trial_records(
    before: CalibrationTrial | None,
    after: CalibrationTrial | None,
    event: Event,
    kept: list[int],
    *,
    trial: str | None,
    history: str,
    most: int,
) -> list[OutputRecord]:
    """Return the records that begin or end a trial; none where nothing changed.

    A command to end it deletes the record in any case: a fit that has lost its state, and whose log does not reach back
    to the beginning, knows of no trial although routers run one.

    Parameters
    ----------
    before, after : CalibrationTrial or None
        Under way before and after the event.
    event : Event
    kept : list of int
        As for :func:`version_records`; what is tried has its place in the history.
    trial, history : str
        The topics; there may be none for trials.
    most : int
    """
    if trial is None:
        return []
    if after is not None:
        if after is before:
            return []
        return [
            OutputRecord(trial, after.workload.encode(), after.to_json()),
            *_into_history(after.version, after.version.to_json(), kept, history=history, most=most),
        ]
    is_ending = isinstance(event, Command) and event.action in _ENDING
    if isinstance(event, Command) and (before is not None or is_ending):
        return [OutputRecord(trial, event.workload.encode(), None)]
    return []


def _into_history(
    version: CalibrationVersion, value: bytes, kept: list[int], *, history: str, most: int
) -> list[OutputRecord]:
    kept.append(version.version)
    surplus = kept[:-most]
    del kept[: len(surplus)]
    return [
        OutputRecord(history, history_key(version.workload, version.version), value),
        *(OutputRecord(history, history_key(version.workload, old), None) for old in surplus),
    ]


def history_key(workload: str, version: int) -> bytes:
    """Return the key of a version in the history topic.

    Examples
    --------
    >>> history_key("photo-search", 7)
    b'photo-search:7'
    """
    return f"{workload}:{version}".encode()
