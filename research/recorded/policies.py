"""What runs on recorded streams share: target, lengths, margins, the paper's threshold and the oracle's."""

from __future__ import annotations

from functools import cache

from research.recorded.simulate import Routed
from research.recorded.tokens import offline_queries
from research.recorded.windows import Static
from ucci_stream.demo.scenario import offline_calibration

TARGET = 0.91
QUERIES = 30_000
"""In each phase."""
SAFETY = 0.5
STRICT_SAFETY = 1.0


class ByPhase(Static):
    """A threshold for each phase, told ahead: the oracle.

    ``thresholds``: by phase. ``phase_length``: queries of a phase.
    """

    def __init__(self, thresholds: list[float], phase_length: int) -> None:
        super().__init__(thresholds[0])
        self._thresholds, self._length = thresholds, phase_length

    def see(self, routed: Routed) -> None:
        """Look up the phase of the next query."""
        following = min(int(routed.rows[-1] + 1) // self._length, len(self._thresholds) - 1)
        self.threshold = self._thresholds[following]


@cache
def static_threshold(target: float) -> float:
    """Return the threshold that the paper's procedure chooses on the offline labels."""
    return offline_calibration(offline_queries(handoff=False), target)[1]
