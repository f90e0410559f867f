"""Threshold rules on a score: every threshold weighed at once, the cheapest that meets a target chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from research.paper.workloads import Floats, Workload

KEEP_NONE = -np.inf


@dataclass(frozen=True, slots=True)
class Curve:
    """All thresholds of one score on one set of queries, rising; a query is kept when its score is not above.

    ``threshold``, ``micro_f1``, ``escalated``: ndarray of float, shape (thresholds,); the first threshold keeps
    nothing. ``escalated`` is a share of the queries.
    """

    threshold: Floats
    micro_f1: Floats
    escalated: Floats

    def cheapest(self, target: float) -> int:
        """Return the place of the largest threshold that meets the target; the most accurate one where none does."""
        feasible = np.flatnonzero(self.micro_f1 >= target)
        return int(feasible[-1]) if len(feasible) else int(np.argmax(self.micro_f1))

    def within(self, rate: float) -> int:
        """Return the place of the smallest threshold that escalates no more than a share of the queries."""
        return int(np.flatnonzero(self.escalated <= rate + 1e-12)[0])


class Sweep:
    """A score sorted once, to be swept under many weightings of the queries.

    ``score``: ndarray of float, shape (queries,). ``candidates``: the only thresholds allowed, besides keeping nothing;
    by default every score that occurs.
    """

    def __init__(self, score: Floats, workload: Workload, candidates: Floats | None = None) -> None:
        self._order = np.argsort(score, kind="stable")
        ranked = score[self._order]
        allowed = np.unique(ranked if candidates is None else candidates)
        self._threshold = np.concatenate(([KEEP_NONE], allowed))
        self._kept = np.searchsorted(ranked, self._threshold, side="right")
        (small_top, small_bottom), (large_top, large_bottom) = workload.pairs("small"), workload.pairs("large")
        self._large = large_top[self._order], large_bottom[self._order]
        self._gain = small_top[self._order] - self._large[0], small_bottom[self._order] - self._large[1]

    def curve(self, weights: Floats | None = None) -> Curve:
        """Return the curve, with each query counted ``weights`` times (once by default)."""
        weight = np.ones(len(self._order)) if weights is None else weights[self._order]
        top, bottom = (
            float(large @ weight) + _before(gain * weight)[self._kept]
            for large, gain in zip(self._large, self._gain, strict=True)
        )
        kept = _before(weight)[self._kept]
        return Curve(self._threshold, top / bottom, 1.0 - kept / weight.sum())


def _before(values: Floats) -> Floats:
    """Return the sums of the first 0, 1, 2 … values."""
    return np.concatenate(([0.0], np.cumsum(values)))
