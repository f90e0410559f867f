"""Finds which counts have grown since the last line that people were shown, at most one a minute. Pure.

A producer that sends thousands of bad records a second must not fill the log, and must not go unnoticed either.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

INTERVAL_S = 60.0


class Tally:
    """What was counted since the last line.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.grown({"not_json": 2}, now_s=0.0)
    {'not_json': 2}
    >>> tally.grown({"not_json": 9}, now_s=1.0)
    {}
    >>> tally.grown({"not_json": 9, "empty": 1}, now_s=60.0)
    {'not_json': 7, 'empty': 1}
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._said: dict[str, int] = {}
        self._said_s = -inf

    def grown(self, totals: Mapping[str, int], now_s: float) -> dict[str, int]:
        """Return by how much each count has grown since the last line; empty while nothing has or no line is due."""
        more = {name: total - self._said.get(name, 0) for name, total in totals.items()}
        more = {name: count for name, count in more.items() if count > 0}
        if not more or now_s < self._said_s + self._interval_s:
            return {}
        self._said, self._said_s = dict(totals), now_s
        return more
