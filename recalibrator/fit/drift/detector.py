"""What a drift detector is, and ours: CUSUMs, sums of log likelihood ratios that restart at zero (Page, 1954).

A detector compares outcomes with the probabilities that were predicted for them. It listens to one channel, which says
what its outcomes are and what an alarm on them means.

A CUSUM compares "the odds are k times those predicted, or a k-th of them" with "as predicted". While the predictions
are right, an alarm comes on average after no fewer than exp(bound) observations (Lorden, 1971), however rare the errors
and whatever their order.

Predictions are estimates, and an error of theirs is in all outcomes alike: it adds up as a change would. So what is
compared with the bound is the log likelihood ratio that allows for it. Let U be the score of the n outcomes since a sum
left zero, V = n·v their information on the log odds, and 1 / (m·v) the variance of the log odds predicted from m
observations. Where nothing has changed U is normal with mean 0 and variance V + V² / (m·v) = V·(1 + n / m); where the
odds are k times those predicted its mean is V·ln k. The log likelihood ratio is (U·ln k - V·ln² k / 2) / (1 + n / m):
the usual sum divided by 1 + n / m, and the usual CUSUM where m has no limit. That parameters estimated from little data
make charts of this kind give false alarms is known (Jones, Champ and Rigdon, 2004).

Counts of queries scatter more than those of independent ones. Where all variances are φ times as large, so is that of
U, and the ratio is divided by φ as well (:class:`Overdispersion`). Given u, pairs and labels are as good as
independent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import inf, log
from typing import Literal, NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats, Kept
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
    bound: float
    """The statistic at which it fires."""
    alarms: Kept[int] = 0
    alarmed_us: Kept[int | None] = None
    since_alarm: Kept[int] = 0
    """Observations since the last alarm that fit what is expected."""

    @property
    @abstractmethod
    def statistic(self) -> float:
        """How near an alarm is."""

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


_BLOCK = 1_000
"""Observations in a block, at least."""

_HALF_LIFE_BLOCKS = 20.0
_PRIOR_BLOCKS = 4.0
"""Without overdispersion: a handful of blocks must not make the factor extreme."""


@dataclass(slots=True)
class Overdispersion:
    """By how much counts scatter more than those of independent queries: the decayed variance of blocks over theirs.

    Queries come in bursts, and change with the hours of a day: a thousand of them tell less than as many independent
    ones would (McCullagh and Nelder, 1989, chapter 4.5). Blocks are longer than bursts and shorter than days, so that
    they show both. A lasting change fills one or two before its alarm.

    Examples
    --------
    >>> bursts = Overdispersion()
    >>> for hits in (600.0, 400.0) * 50:
    ...     bursts.add(0.5, 1_000.0, hits, known=1e9)
    >>> round(bursts.factor)
    35
    """

    #: ``squares`` and ``blocks``: decayed sums over blocks: of squared standardised residuals, and of 1.
    squares: float = 0.0
    blocks: float = 0.0
    #: ``residual``, ``variance`` and ``observations``: of the block that is not full yet; the variance as if its
    #: observations were independent.
    residual: float = 0.0
    variance: float = 0.0
    observations: float = 0.0

    @property
    def factor(self) -> float:
        """By which variances exceed those of independent observations; at least 1."""
        return max(1.0, (self.squares + _PRIOR_BLOCKS) / (self.blocks + _PRIOR_BLOCKS))

    def add(self, expected: float, trials: float, hits: float, known: float) -> None:
        """Take counts in; ``known`` is the number of observations that ``expected`` was estimated from."""
        self.residual += hits - trials * expected
        # What is expected is an estimate, too.
        self.variance += trials * expected * (1.0 - expected) * (1.0 + trials / known)
        self.observations += trials
        if self.observations >= _BLOCK:
            self.close()

    def close(self) -> None:
        """End a block, full or not: what comes next is compared with something else."""
        if self.variance > 0.0:
            kept = 0.5 ** (1.0 / _HALF_LIFE_BLOCKS)
            self.squares = kept * self.squares + self.residual**2 / self.variance
            self.blocks = kept * self.blocks + 1.0
        self.residual = self.variance = self.observations = 0.0


class CusumRules(NamedTuple):
    """What a CUSUM is set to."""

    #: k > 1, the change in odds that is found fastest.
    odds: float
    #: Of the log likelihood ratio.
    bound: float
    #: Whether falling odds are watched too.
    both_ways: bool


@dataclass(slots=True)
class _Sum:
    """The log likelihood ratio in one direction since it left zero."""

    #: ``ratio`` and ``leverage``: as if what is expected were exact, and n / m.
    ratio: float = 0.0
    leverage: float = 0.0
    #: Overdispersion when it left zero: what it gathers may be a change, and says nothing of scatter.
    scatter: float = 1.0
    since_us: int | None = None

    def add(self, gain: float, leverage: float, scatter: float, at_us: int) -> float:
        if self.ratio + gain <= 0.0:
            self.restart()
            return 0.0
        if self.since_us is None:
            self.scatter, self.since_us = scatter, at_us
        self.ratio += gain
        self.leverage += leverage
        return self.statistic

    def restart(self) -> None:
        self.ratio, self.leverage, self.scatter, self.since_us = 0.0, 0.0, 1.0, None

    @property
    def statistic(self) -> float:
        """What is expected being an estimate, and counts overdispersed."""
        return self.ratio / (1.0 + self.leverage) / self.scatter


@dataclass
class Cusum(Detector):
    """One CUSUM in both directions.

    Examples
    --------
    >>> channel = Channel("errors", needs_labels=True, meaning="outcomes")
    >>> detector = Cusum("errors", channel, CusumRules(odds=2.0, bound=5.0, both_ways=True))
    >>> seen = [Outcomes(0.1, 1.0, wrong, second) for second, wrong in enumerate([0.0, *[1.0] * 9])]
    >>> [alarm.began_us for alarm in map(detector.update, seen) if alarm]
    [1]
    """

    name: str
    channel: Channel
    rules: CusumRules
    up: Kept[_Sum] = field(default_factory=_Sum)
    down: Kept[_Sum] = field(default_factory=_Sum)
    _scatter: Kept[Overdispersion] = field(default_factory=Overdispersion, init=False, repr=False)
    _log_odds: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._log_odds, self.bound = log(self.rules.odds), self.rules.bound

    def update(self, seen: Outcomes) -> Alarm | None:
        """Take outcomes in; return an alarm if they raise one."""
        rising, falling, observations = self._gains(seen)
        are_counts, bound = self.channel.meaning == "traffic", self.bound
        leverage, scatter = observations / seen.known, self._scatter.factor if are_counts else 1.0
        statistic = self.up.add(rising, leverage, scatter, seen.at_us)
        if self.rules.both_ways:
            statistic = max(statistic, self.down.add(falling, leverage, scatter, seen.at_us))
        if are_counts:
            self._scatter.add(float(seen.expected), float(seen.trials), float(seen.hits), seen.known)
        if statistic < bound:
            self.since_alarm += observations if statistic < SUSPECTED_SHARE * bound else 0
            return None
        began_us = self._larger.since_us
        return self.alarm(seen.at_us, seen.at_us if began_us is None else began_us)

    def _gains(self, seen: Outcomes) -> tuple[float, float, int]:
        """Return what both sums gain, and the number of observations."""
        expected, trials, hits, _, log_ratio, bounds, _ = seen
        if log_ratio is not None:
            return log_ratio, -log_ratio, int(trials)
        # Against a range the least favourable of its probabilities counts: no value in it is a change.
        lowest, highest = (expected, expected) if bounds is None else bounds
        odds = self.rules.odds
        # Plain arithmetic for a single label: many times faster than arrays of one value.
        if isinstance(trials, float):
            assert isinstance(lowest, float)
            assert isinstance(highest, float)
            assert isinstance(hits, float)
            rising = self._log_odds * hits - trials * log(1.0 - highest + odds * highest)
            falling = -self._log_odds * hits - trials * log(1.0 - lowest + lowest / odds)
            return rising, falling, int(trials)
        total = float(np.add.reduce(hits))
        rising = self._log_odds * total - float(trials @ np.log(1.0 - highest + odds * highest))
        falling = -self._log_odds * total - float(trials @ np.log(1.0 - lowest + lowest / odds))
        return rising, falling, int(np.add.reduce(trials))

    def restart(self) -> None:
        """Forget the sums, not the alarms."""
        self.up.restart()
        self.down.restart()
        self._scatter.close()

    @property
    def _larger(self) -> _Sum:
        return self.up if self.up.statistic >= self.down.statistic else self.down

    @property
    def statistic(self) -> float:
        """The larger of both log likelihood ratios."""
        return max(self.up.statistic, self.down.statistic)

    @property
    def gathering_since_us(self) -> int | None:
        """When the larger ratio left zero."""
        return self._larger.since_us
