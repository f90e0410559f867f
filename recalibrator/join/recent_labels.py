"""How many labels the join has taken within the last hour, to compare those that found no result with."""

from __future__ import annotations

from collections import deque

SPAN_S = 3_600.0
_MINUTE_S = 60.0


class RecentLabels:
    """A count by minutes, of which those of the last hour are kept.

    Examples
    --------
    >>> recent = RecentLabels()
    >>> recent.add(0.0), recent.add(30.0), recent.add(3_000.0)
    (None, None, None)
    >>> recent.count(3_100.0), recent.count(3_700.0)
    (3, 1)
    """

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, int]] = deque()

    def add(self, now_s: float) -> None:
        """Count one label. ``now_s``: seconds of a clock that never goes back."""
        minute = int(now_s // _MINUTE_S)
        if self._minutes and self._minutes[-1][0] == minute:
            self._minutes[-1] = (minute, self._minutes[-1][1] + 1)
        else:
            self._minutes.append((minute, 1))
        self._forget(now_s)

    def count(self, now_s: float) -> int:
        """Return the labels of the last hour, to the minute."""
        self._forget(now_s)
        return sum(labels for _, labels in self._minutes)

    def _forget(self, now_s: float) -> None:
        first = int((now_s - SPAN_S) // _MINUTE_S)
        while self._minutes and self._minutes[0][0] < first:
            self._minutes.popleft()
