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
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import log
from typing import Any, NamedTuple

import numpy as np

from recalibrator.fit.drift.detector import Alarm, Channel, Outcomes
from schemas.event import from_us
from schemas.status import DetectorStatus, DriftState

_SUSPECTED_SHARE = 0.6


class CusumRules(NamedTuple):
    """What a CUSUM is set to.

    Parameters
    ----------
    odds : float
        k > 1, the change in odds that is found fastest.
    bound : float
        Of the log likelihood ratio.
    both_ways : bool
        Whether falling odds are watched too.
    settled : int
        Observations without suspicion after which an alarm is over.
    """

    odds: float
    bound: float
    both_ways: bool
    settled: int


@dataclass(slots=True)
class Cusum:
    """One CUSUM in both directions.

    Examples
    --------
    >>> channel = Channel("errors", needs_labels=True, meaning="outcomes")
    >>> detector = Cusum("errors", channel, CusumRules(odds=2.0, bound=5.0, both_ways=True, settled=100))
    >>> seen = [Outcomes(0.1, 1.0, wrong, second) for second, wrong in enumerate([0.0, *[1.0] * 9])]
    >>> [alarm.began_us for alarm in map(detector.update, seen) if alarm]
    [1]
    """

    name: str
    channel: Channel
    rules: CusumRules
    up: float = 0.0
    down: float = 0.0
    up_leverage: float = 0.0
    down_leverage: float = 0.0
    up_since_us: int | None = None
    down_since_us: int | None = None
    alarms: int = 0
    alarmed_us: int | None = None
    since_alarm: int = 0
    observed: int = 0
    _log_odds: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._log_odds = log(self.rules.odds)

    def update(self, seen: Outcomes) -> Alarm | None:
        """Take outcomes in; return an alarm if they raise one."""
        rising, falling, observations = self._gains(seen)
        self.observed += observations
        self.since_alarm += observations
        leverage, at_us, bound = observations / seen.known, seen.at_us, self.rules.bound
        self.up += rising
        if self.up > 0.0:
            self.up_leverage += leverage
            if self.up_since_us is None:
                self.up_since_us = at_us
        else:
            self.up, self.up_leverage, self.up_since_us = 0.0, 0.0, None
        if self.rules.both_ways:
            self.down += falling
            if self.down > 0.0:
                self.down_leverage += leverage
                if self.down_since_us is None:
                    self.down_since_us = at_us
            else:
                self.down, self.down_leverage, self.down_since_us = 0.0, 0.0, None
        # Leverage only lowers the statistic.
        if (self.up < bound and self.down < bound) or self.statistic < bound:
            return None
        began_us = self._suspected_since_us
        self.alarms += 1
        self.alarmed_us, self.since_alarm = seen.at_us, 0
        self.restart()
        return Alarm(self.name, self.channel, seen.at_us if began_us is None else began_us)

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
        self.up = self.down = self.up_leverage = self.down_leverage = 0.0
        self.up_since_us = self.down_since_us = None

    @property
    def statistic(self) -> float:
        """The larger of both log likelihood ratios, what is expected being an estimate."""
        return max(self.up / (1.0 + self.up_leverage), self.down / (1.0 + self.down_leverage))

    @property
    def bound(self) -> float:
        """The statistic at which it fires."""
        return self.rules.bound

    @property
    def _suspected_since_us(self) -> int | None:
        rises = self.up / (1.0 + self.up_leverage) >= self.down / (1.0 + self.down_leverage)
        return self.up_since_us if rises else self.down_since_us

    @property
    def drift_state(self) -> DriftState:
        """``drifted`` for a while after an alarm, ``suspected`` near the bound, else ``ok``."""
        if self.alarmed_us is not None and self.since_alarm < self.rules.settled:
            return "drifted"
        return "suspected" if self.statistic >= _SUSPECTED_SHARE * self.rules.bound else "ok"

    def status(self) -> DetectorStatus:
        """Return its state, and the larger ratio beside the bound at which it fires."""
        state = self.drift_state
        since_us = self.alarmed_us if state == "drifted" else self._suspected_since_us
        return DetectorStatus(
            name=self.name,
            watches=self.channel.watches,
            needs_labels=self.channel.needs_labels,
            state=state,
            statistic=self.statistic,
            bound=self.rules.bound,
            since=None if state == "ok" or since_us is None else from_us(since_us),
            alarms=self.alarms,
        )

    def state(self) -> dict[str, Any]:
        """Return sums and alarms as JSON values, exact."""
        return {name: getattr(self, name) for name in _STATE}

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back; former releases knew no leverage, and took predictions for exact."""
        for name in _STATE:
            setattr(self, name, state.get(name, 0.0) if name in _LEVERAGES else state[name])


_STATE = tuple(one.name for one in fields(Cusum) if one.init)[3:]


_LEVERAGES = ("up_leverage", "down_leverage")
