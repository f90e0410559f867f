"""The calibration topics as the fit reads them: which version numbers are taken, in force or on trial, by whomever.

Records flow in; the highest valid version of each workload flows out. What is not a valid version takes no number.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.calibration import CalibrationVersion
from schemas.errors import DecodeError
from schemas.trial import CalibrationTrial
from ucci_runtime.broker.ports import TopicReader
from ucci_runtime.broker.records import Record


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
        self._highest: dict[str, int] = {}

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

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _take(self, records: Iterable[Record]) -> dict[str, int]:
        news: dict[str, int] = {}
        for record in records:
            read = version_on_trial if record.source.topic == self._trial_topic else valid_version
            version = read(record.key, record.value)
            if version is not None:
                news[version.workload] = max(version.version, news.get(version.workload, 0))
        for workload, number in news.items():
            self._highest[workload] = max(number, self._highest.get(workload, 0))
        return news


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
