"""Times as whole microseconds since 1970 UTC: comparable in arrays, exact in snapshots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_US = 2**53
"""Year 2255: whole numbers up to here are exact in a float, and every one of them is a datetime."""


def to_us(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time with a zone, cut at 2^53 either way.

    Examples
    --------
    >>> to_us(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC))
    1000005
    >>> to_us(datetime.max.replace(tzinfo=UTC)) == 2**53
    True
    """
    since = moment - _EPOCH
    exact = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return exact if -_MOST_US < exact < _MOST_US else _MOST_US if exact > 0 else -_MOST_US


def from_us(instant_us: int) -> datetime:
    """Return the UTC time of microseconds since 1970.

    Examples
    --------
    >>> from_us(to_us(datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC))).isoformat()
    '2026-01-31T12:00:00.123456+00:00'
    """
    return _EPOCH + timedelta(microseconds=int(instant_us))
