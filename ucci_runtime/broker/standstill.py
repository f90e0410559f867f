"""Which partitions a client delivers nothing of, though nothing else waits in it either.

A consumer was seen to stand still on one of eight partitions after two rebalances in a row on a machine without CPU to
spare, for as long as it was watched; all others went on. An idle partition looks the same from here. Whether its log
goes on is a question to the broker, so it is asked seldom, of few partitions at a time, and never while the client
itself was not polled or has records waiting.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from ucci_runtime.broker.records import Input

#: Silence of a partition after which the broker is asked about it, in seconds.
STILL_S = 30.0

#: Longest pause between two polls; after a longer one everybody's silence begins again.
GAP_S = 5.0

#: Partitions asked about at a time.
MOST = 4


class Standstill:
    """Follows what a member hears of its partitions, by a clock that never goes back, in seconds.

    Examples
    --------
    >>> busy, idle = Input("results", 0), Input("results", 1)
    >>> watch = Standstill(still_s=2.0)
    >>> watch.assigned([busy, idle], 0.0)
    >>> for now_s in (1.0, 2.0, 3.0):
    ...     watch.polled(now_s)
    ...     watch.heard(busy, now_s)
    ...     watch.drained(now_s)
    >>> watch.suspects(paused=())
    [Input(topic='results', partition=1)]
    """

    def __init__(self, still_s: float = STILL_S) -> None:
        self._still_s = still_s
        self._heard_s: dict[Input, float] = {}
        self._polled_s = math.inf
        self._drained_s = -math.inf

    def assigned(self, sources: Iterable[Input], now_s: float) -> None:
        """Begin with these partitions."""
        self._heard_s = dict.fromkeys(sources, now_s)

    def polled(self, now_s: float) -> None:
        """Note that the client is polled now; records waited in it during a long gap."""
        if now_s - self._polled_s > GAP_S:
            self.assigned(self._heard_s, now_s)
        self._polled_s = now_s

    def heard(self, source: Input, now_s: float) -> None:
        """Note a record or the end of a partition, or an answer of the broker's about it."""
        if source in self._heard_s:
            self._heard_s[source] = now_s

    def drained(self, now_s: float) -> None:
        """Note that nothing waits in the client."""
        self._drained_s = now_s

    def suspects(self, paused: Collection[Input]) -> list[Input]:
        """Return the partitions to ask the broker about, the longest silent first."""
        silent = sorted(
            (heard_s, source)
            for source, heard_s in self._heard_s.items()
            if self._drained_s - heard_s >= self._still_s and source not in paused
        )
        return [source for _, source in silent[:MOST]]
