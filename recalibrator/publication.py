"""A version → the records that publish it, and that keep the history topic bounded."""

from __future__ import annotations

from runtime.records import OutputRecord
from schemas.calibration import CalibrationVersion


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
    kept.append(version.version)
    surplus = kept[:-most]
    del kept[: len(surplus)]
    return [
        OutputRecord(calibration, version.workload.encode(), value),
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
