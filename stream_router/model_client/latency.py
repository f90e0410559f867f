"""Latencies of recent calls → their mean and quantiles. Pure; a bounded number is kept."""

from __future__ import annotations

from collections import deque
from typing import Literal

Quantile = Literal["p50", "p90", "p99"]
_SHARES: dict[Quantile, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class LatencyWindow:
    """The last calls' latencies.

    Parameters
    ----------
    size : int
        Calls kept.

    Examples
    --------
    >>> window = LatencyWindow(size=2)
    >>> for latency_s in (9.0, 1.0, 3.0):
    ...     window.add(latency_s)
    >>> window.mean_s, window.quantiles_s()["p50"]
    (2.0, 1.0)
    """

    def __init__(self, size: int = 1_000) -> None:
        self._kept: deque[float] = deque(maxlen=size)
        self._sum_s = 0.0

    @property
    def mean_s(self) -> float | None:
        """Mean in seconds, None before the first call."""
        return max(0.0, self._sum_s) / len(self._kept) if self._kept else None

    def add(self, latency_s: float) -> None:
        """Take one call's latency, in seconds; the oldest goes when there are too many."""
        if len(self._kept) == self._kept.maxlen:
            self._sum_s -= self._kept[0]
        self._kept.append(latency_s)
        self._sum_s += latency_s

    def quantiles_s(self) -> dict[Quantile, float]:
        """Return the median, 90th and 99th percentile in seconds; empty before the first call."""
        if not self._kept:
            return {}
        ordered = sorted(self._kept)
        return {name: ordered[int(share * (len(ordered) - 1))] for name, share in _SHARES.items()}
