"""Results that a slow large model holds back: what the mix of queries is judged by waits for them.

Results come as calls end. While the large model is slow those of escalated queries are missing, and then they come all
at once. Summary by summary that looks like easier queries, and then like harder ones; over the whole spell it is
neither. So what comes meanwhile is held together, and judged as one when the large model is as fast as before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recalibrator.fit.arrays import Floats, Ints
from recalibrator.fit.codec import Kept
from recalibrator.fit.data.traffic_window import COUNT, Batch

_SLOWER = 2.0
"""Times the usual latency of large calls, from which they count as slow."""

_FEWER = 0.5
"""Of the usual share of escalated queries, below which some count as missing."""

_RECENT_HALF_LIFE_QUERIES, _USUAL_HALF_LIFE_QUERIES = 50.0, 2_000.0
_HELD_MOST_US = 120_000_000
"""No call takes longer (the router's ``query_deadline_s``); what does is how the large model is now."""


class LateResults:
    """The queries of one workload by their u, held together while results are missing."""

    _held: Kept[Floats]
    _since_us: Kept[int | None] = None
    _usual_s: Kept[float] = 0.0
    _usual_share: Kept[float | None] = None
    _recent_share: Kept[float] = 0.0

    def __init__(self, cells: int) -> None:
        self._held = np.zeros(cells)

    def take(self, batch: Batch) -> tuple[Ints, Floats] | None:
        """Take the queries of one summary in, and return what can be judged.

        These are cells and the queries in them, those that were held among them. None while results are missing; what
        took too long is never judged, since the results that would complete it may be any time away.
        """
        cell, queries = batch.cell, batch.counts[COUNT].astype(np.float64)
        if batch.sums["small_skipped"]:
            # All escalate, whatever u is: that is not what is usual.
            return cell, queries
        if self._lacks_results(batch.sums):
            if self._since_us is None:
                self._since_us = batch.first_us
            self._held[cell] += queries
            if batch.last_us - self._since_us > _HELD_MOST_US:
                self._release()
                self._usual_s, self._usual_share = 0.0, None
            return None
        self._learn(batch.sums)
        if self._since_us is None:
            return cell, queries
        self._held[cell] += queries
        return np.arange(len(self._held)), self._release()

    def _release(self) -> Floats:
        held, self._held, self._since_us = self._held, np.zeros(len(self._held)), None
        return held

    def _lacks_results(self, sums: Mapping[str, float]) -> bool:
        queries = sums["queries"]
        if self._usual_share is None or queries <= 0.0:
            return False
        self._recent_share += (sums["escalated"] / queries - self._recent_share) * _weight(
            queries, _RECENT_HALF_LIFE_QUERIES
        )
        is_slow = self._usual_s > 0.0 and sums["large_latency_s"] > _SLOWER * self._usual_s * _answered(sums)
        return is_slow or self._recent_share < _FEWER * self._usual_share

    def _learn(self, sums: Mapping[str, float]) -> None:
        """Let what is usual follow what is."""
        queries, calls = sums["queries"], _answered(sums)
        if queries <= 0.0:
            return
        share, weight = sums["escalated"] / queries, _weight(queries, _USUAL_HALF_LIFE_QUERIES)
        if self._usual_share is None:
            self._usual_share = self._recent_share = share
        self._usual_share += (share - self._usual_share) * weight
        if calls > 0.0:
            latency_s = sums["large_latency_s"] / calls
            self._usual_s += (latency_s - self._usual_s) * (weight if self._usual_s > 0.0 else 1.0)


def _answered(sums: Mapping[str, float]) -> float:
    return sums["large_calls"] - sums["degraded"]


def _weight(queries: float, half_life: float) -> float:
    return 1.0 - float(0.5 ** (queries / half_life))
