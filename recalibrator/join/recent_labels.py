"""How many labels the join has taken within the last hour, to compare those that found no result with."""

from __future__ import annotations

from collections import Counter

SPAN_MS = 3_600_000
_MINUTE_MS = 60_000


class RecentLabels:
    """A count by the minute of arrival, of which those of the last hour are kept.

    A process that has just begun knows only what it took itself: both sides of a share are counted from
    :meth:`since_ms` on, so that a restart makes no share jump.

    Examples
    --------
    >>> recent = RecentLabels()
    >>> recent.add(0), recent.add(30_000), recent.add(3_000_000)
    (None, None, None)
    >>> recent.count(3_100_000), recent.count(3_700_000)
    (3, 1)
    >>> recent.since_ms(3_700_000), recent.since_ms(9_000_000)
    (3000000, 9000000)
    """

    def __init__(self) -> None:
        self._by_minute = Counter[int]()

    def add(self, arrived_ms: int) -> None:
        """Count one label. ``arrived_ms``: when it came, in Unix milliseconds."""
        self._by_minute[arrived_ms // _MINUTE_MS] += 1

    def count(self, now_ms: int) -> int:
        """Return the labels of the last hour, to the minute."""
        self._forget(now_ms)
        return self._by_minute.total()

    def since_ms(self, now_ms: int) -> int:
        """Return from when on labels of the last hour are counted here; now where there is none."""
        self._forget(now_ms)
        first = min(self._by_minute, default=None)
        return now_ms if first is None else first * _MINUTE_MS

    def _forget(self, now_ms: int) -> None:
        first = (now_ms - SPAN_MS) // _MINUTE_MS
        for minute in [one for one in self._by_minute if one < first]:
            del self._by_minute[minute]
