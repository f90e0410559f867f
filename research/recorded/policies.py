"""Every policy of the comparison, made anew for each stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from research.recorded.clairvoyant import Clairvoyant
from research.recorded.released import Released, Reselected
from research.recorded.service import Service
from research.recorded.simulate import Policy, Routed
from research.recorded.stream import offline_outcomes
from research.recorded.tokens import offline_queries
from research.recorded.windows import KEEP_NONE, InversePropensity, NaiveRefit, PostStratified, Static
from ucci_stream.demo.scenario import offline_calibration

SAFETY = 0.5
STRICT_SAFETY = 1.0


class ByPhase(Static):
    """A threshold for each phase, told ahead: the oracle.

    Parameters
    ----------
    thresholds : list of float
        By phase.
    phase_length : int
        Queries of a phase.
    """

    def __init__(self, thresholds: list[float], phase_length: int) -> None:
        super().__init__(thresholds[0])
        self._thresholds, self._length = thresholds, phase_length

    def see(self, routed: Routed) -> None:
        """Look up the phase of the next query."""
        following = min(int(routed.rows[-1] + 1) // self._length, len(self._thresholds) - 1)
        self.threshold = self._thresholds[following]


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy of the comparison.

    Parameters
    ----------
    name, title : str
    make : callable
        From a target to a policy at its start.
    """

    name: str
    title: str
    make: Callable[[float], Policy]


@cache
def static_threshold(target: float) -> float:
    """Return the threshold that the paper's procedure chooses on the offline labels."""
    return offline_calibration(offline_queries(handoff=False), target)[1]


ENTRIES = (
    Entry("static", "Static (the paper)", lambda target: Static(static_threshold(target))),
    Entry(
        "naive",
        "Naive refit",
        lambda target: NaiveRefit(offline_outcomes(), target, static_threshold(target)),
    ),
    Entry(
        "propensity",
        "Inverse propensity, 4k labels",
        lambda target: InversePropensity(offline_outcomes(), target, static_threshold(target)),
    ),
    Entry(
        "stratified",
        "Post-stratified, 4k labels",
        lambda target: PostStratified(offline_outcomes(), target, static_threshold(target)),
    ),
    Entry("released", "ucci-router as released", lambda target: Released(offline_outcomes(), target)),
    Entry("reselected", "ucci-router, theta re-selected", lambda target: Reselected(offline_outcomes(), target)),
    Entry("service", "This project", lambda target: Service(target, SAFETY)),
    Entry("service_strict", "This project, safety 1", lambda target: Service(target, STRICT_SAFETY)),
    Entry("service_handoff", "This project, handoff", lambda target: Service(target, SAFETY, handoff=True)),
    Entry("clairvoyant", "Clairvoyant", lambda target: Clairvoyant(target, SAFETY)),
    Entry("clairvoyant_strict", "Clairvoyant, safety 1", lambda target: Clairvoyant(target, STRICT_SAFETY)),
    Entry("large", "Large only", lambda _: Static(KEEP_NONE)),
)
ORACLE = "Oracle, by phase"
