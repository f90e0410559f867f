"""CUSUM detectors: sums of log likelihood ratios that restart at zero (Page, 1954).

Each compares "the odds are k times those predicted, or a k-th of them" with "as predicted". While the predictions are
right, an alarm comes on average after no fewer than exp(bound) observations (Lorden, 1971), however rare the errors
and whatever their order.

Predictions are estimates, and an error of theirs is in all outcomes alike: it adds up as a change would. So what is
compared with the bound is the log likelihood ratio that allows for it. Let U be the score of the n outcomes since a sum
left zero, V = n·v their information on the log odds, and 1 / (m·v) the variance of the log odds predicted from m
observations. Where nothing has changed U is normal with mean 0 and variance V + V² / (m·v) = V·(1 + n / m); where the
odds are k times those predicted its mean is V·ln k. The log likelihood ratio is (U·ln k - V·ln² k / 2) / (1 + n / m):
the usual sum divided by 1 + n / m, and the usual CUSUM where m has no limit. That parameters estimated from little data
make charts of this kind give false alarms is known (Jones, Champ and Rigdon, 2004).

Counts of queries scatter more than those of independent ones. Where all variances are φ times as large, so is that of
U, and the ratio is divided by φ as well (:mod:`recalibrator.fit.drift.overdispersion`). Given u,
pairs and labels are as good as independent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Kept
from recalibrator.fit.drift.detector import SUSPECTED_SHARE, Alarm, Channel, Detector, Outcomes
from recalibrator.fit.drift.overdispersion import Overdispersion


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

    def add(self, gain: float, leverage: float, scatter: float, at_us: int) -> None:
        if self.ratio + gain <= 0.0:
            self.restart()
            return
        if self.since_us is None:
            self.scatter, self.since_us = scatter, at_us
        self.ratio += gain
        self.leverage += leverage

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
        self._log_odds = log(self.rules.odds)

    def update(self, seen: Outcomes) -> Alarm | None:
        """Take outcomes in; return an alarm if they raise one."""
        rising, falling, observations = self._gains(seen)
        are_counts, bound = self.channel.meaning == "traffic", self.rules.bound
        leverage, scatter = observations / seen.known, self._scatter.factor if are_counts else 1.0
        self.up.add(rising, leverage, scatter, seen.at_us)
        if self.rules.both_ways:
            self.down.add(falling, leverage, scatter, seen.at_us)
        if are_counts:
            self._scatter.add(float(seen.expected), float(seen.trials), float(seen.hits), seen.known)
        statistic = self.statistic
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
    def bound(self) -> float:
        """The statistic at which it fires."""
        return self.rules.bound

    @property
    def gathering_since_us(self) -> int | None:
        """When the larger ratio left zero."""
        return self._larger.since_us
