"""What a drift detector is: the protocol that ours and river's follow, and what passes through it.

A detector compares outcomes with the probabilities that were predicted for them. It listens to one channel, which says
what its outcomes are and what an alarm on them means.
"""

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple, Protocol

from recalibrator.fit.arrays import Floats
from schemas.status import DetectorStatus, DriftState

SETTLED = 400
"""Observations that fit what is expected, after which an alarm is over."""

Meaning = Literal["outcomes", "traffic", "labels"]


class Channel(NamedTuple):
    """A stream of outcomes, and what a change of them means.

    Parameters
    ----------
    watches : str
        For people: what is compared with what.
    needs_labels : bool
    meaning : str
        Of an alarm. ``outcomes``: answers have become better or worse than u says. ``traffic``: the mix of queries has
        changed. ``labels``: labels are wrong, or both models have changed alike.
    agreeing : bool
        Of an alarm about labels: whether errors are too many where answers agree, or too few where they differ.
    """

    watches: str
    needs_labels: bool
    meaning: Meaning
    agreeing: bool = True


class Alarm(NamedTuple):
    """A detector has fired: which one, on which channel, and when the change began."""

    detector: str
    channel: Channel
    began_us: int


class Outcomes(NamedTuple):
    """What a detector sees at a time: one label, or the counts of a whole summary of traffic.

    Parameters
    ----------
    expected : float or ndarray, shape (cells,)
        Probability of a hit, inside (0, 1).
    trials, hits : float or ndarray, shape (cells,)
        Observations, and how many of them are hits.
    at_us : int
    log_ratio : float, optional
        Log likelihood ratio of these outcomes after the suspected change over before, where the channel knows it.
    bounds : tuple of float or of ndarray, optional
        The least and the greatest probability that still count as expected, where ``expected`` was cut to a range.
    known : float
        Effective observations that ``expected`` was estimated from; infinite where it is known.
    """

    expected: float | Floats
    trials: float | Floats
    hits: float | Floats
    at_us: int
    log_ratio: float | None = None
    bounds: tuple[float, float] | tuple[Floats, Floats] | None = None
    known: float = inf


class Detector(Protocol):
    """Looks for a change on one channel. Deterministic: equal outcomes give equal alarms, across restarts too."""

    @property
    def name(self) -> str:
        """As settings and status call it."""
        ...

    @property
    def channel(self) -> Channel:
        """What it listens to."""
        ...

    @property
    def drift_state(self) -> DriftState:
        """``ok``, ``suspected`` or ``drifted``."""
        ...

    @property
    def statistic(self) -> float:
        """How near an alarm is."""
        ...

    @property
    def bound(self) -> float:
        """The statistic at which it fires."""
        ...

    def update(self, seen: Outcomes) -> Alarm | None:
        """Take outcomes in; return an alarm if they raise one."""
        ...

    def restart(self) -> None:
        """Forget the evidence, not the alarms: what is expected has changed."""
        ...

    def status(self) -> DetectorStatus:
        """Return its state, and its statistic beside the bound at which it fires."""
        ...
