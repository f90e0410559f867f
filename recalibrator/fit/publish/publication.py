"""A version, or its trial → the records that publish it, and that keep the history topic bounded."""

from __future__ import annotations

from schemas.calibration import CalibrationVersion
from schemas.command import Command
from schemas.event import Event
from schemas.trial import CalibrationTrial
from ucci_runtime.broker.records import OutputRecord

_ENDING = frozenset({"activate", "pin", "stop_trial"})
"""Commands after which no trial runs, whether or not the fit knew of one."""


def publication(
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


def trial_publication(
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

    A command to end it deletes the record in any case: a fit that has lost its state and whose log does not reach back
    to the beginning knows of no trial, and routers run one all the same.

    Parameters
    ----------
    before, after : CalibrationTrial or None
        Under way before and after the event.
    event : Event
    kept : list of int
        As for :func:`publication`; what is tried has its place in the history.
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
