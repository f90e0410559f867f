"""What a drift detector is: the base of ours and of river's, and what passes through it.

A detector compares outcomes with the probabilities that were predicted for them. It listens to one channel, which says
what its outcomes are and what an alarm on them means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import Literal, NamedTuple

from recalibrator.fit.arrays import Floats
from recalibrator.fit.codec import Kept
from schemas.event import from_us
from schemas.status import DetectorStatus, DriftState

SETTLED = 400
"""Observations that fit what is expected, after which an alarm is over."""

SUSPECTED_SHARE = 0.6
"""Of the bound, from which a change is suspected."""

Meaning = Literal["outcomes", "traffic", "labels"]


class Channel(NamedTuple):
    """A stream of outcomes, and what a change of them means."""

    #: For people: what is compared with what.
    watches: str
    needs_labels: bool
    #: Of an alarm. ``outcomes``: answers have become better or worse than u says. ``traffic``: the mix of queries has
    #: changed. ``labels``: labels are wrong, or both models have changed alike.
    meaning: Meaning
    #: Of an alarm about labels: whether errors are too many where answers agree, or too few where they differ.
    agreeing: bool = True


class Alarm(NamedTuple):
    """A detector has fired: which one, on which channel, and when the change began."""

    detector: str
    channel: Channel
    began_us: int


class Outcomes(NamedTuple):
    """What a detector sees at a time: one label, or the counts of a whole summary of traffic."""

    #: Shape (cells,): probability of a hit, inside (0, 1).
    expected: float | Floats
    #: ``trials`` and ``hits``, shape (cells,): observations, and how many of them are hits.
    trials: float | Floats
    hits: float | Floats
    at_us: int
    #: Log likelihood ratio of these outcomes after the suspected change over before, where the channel knows it.
    log_ratio: float | None = None
    #: The least and the greatest probability that still count as expected, where ``expected`` was cut to a range.
    bounds: tuple[float, float] | tuple[Floats, Floats] | None = None
    #: Effective observations that ``expected`` was estimated from; infinite where it is known.
    known: float = inf


class Detector(ABC):
    """Looks for a change on one channel. Deterministic: equal outcomes give equal alarms, across restarts too."""

    name: str
    """As settings and status call it."""
    channel: Channel
    alarms: Kept[int] = 0
    alarmed_us: Kept[int | None] = None
    since_alarm: Kept[int] = 0
    """Observations since the last alarm that fit what is expected."""

    @property
    @abstractmethod
    def statistic(self) -> float:
        """How near an alarm is."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """The statistic at which it fires."""

    @property
    def gathering_since_us(self) -> int | None:
        """Since when there is evidence of a change."""
        return None

    @abstractmethod
    def update(self, seen: Outcomes) -> Alarm | None:
        """Take outcomes in; return an alarm if they raise one."""

    @abstractmethod
    def restart(self) -> None:
        """Forget the evidence, not the alarms: what is expected has changed."""

    def alarm(self, at_us: int, began_us: int) -> Alarm:
        """Fire, and begin again."""
        self.alarms, self.alarmed_us, self.since_alarm = self.alarms + 1, at_us, 0
        self.restart()
        return Alarm(self.name, self.channel, began_us)

    @property
    def is_drifted(self) -> bool:
        """Whether it has fired, and what is expected does not hold again yet."""
        return self.alarmed_us is not None and self.since_alarm < SETTLED

    @property
    def drift_state(self) -> DriftState:
        """``drifted`` from an alarm until what is expected holds again, ``suspected`` near the bound, else ``ok``."""
        if self.is_drifted:
            return "drifted"
        return "suspected" if self.statistic >= SUSPECTED_SHARE * self.bound else "ok"

    def status(self) -> DetectorStatus:
        """Return its state, and its statistic beside the bound at which it fires."""
        state = self.drift_state
        since_us = self.alarmed_us if state == "drifted" else self.gathering_since_us
        return DetectorStatus(
            name=self.name,
            watches=self.channel.watches,
            needs_labels=self.channel.needs_labels,
            state=state,
            statistic=self.statistic,
            bound=self.bound,
            since=None if state == "ok" or since_us is None else from_us(since_us),
            alarms=self.alarms,
        )
