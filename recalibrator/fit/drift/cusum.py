"""Drift detectors: outcomes against what was predicted flow in, alarms with the time of the change flow out.

All are sums of log likelihood ratios that restart at zero (CUSUM; Page, 1954), of "the odds are k times those
predicted, or a k-th of them" against "as predicted". While the predictions are right, an alarm comes on average
after no fewer than exp(bound) observations (Lorden, 1971), however rare the errors and whatever their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.event import from_us
from schemas.status import DetectorStatus, DriftState

_SUSPECTED_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Watch:
    """What a detector looks for.

    Parameters
    ----------
    name, watches : str
        For people.
    needs_labels : bool
    odds : float
        k > 1, the change in odds that is found fastest.
    bound : float
        Of the log likelihood ratio.
    both_ways : bool
        Whether falling odds are watched too.
    settled : int
        Observations without suspicion after which an alarm is over.
    """

    name: str
    watches: str
    needs_labels: bool
    odds: float
    bound: float
    both_ways: bool
    settled: int


@dataclass(slots=True)
class Detector:
    """One CUSUM in both directions.

    Examples
    --------
    >>> detector = Detector(Watch("errors", "errors", True, odds=2.0, bound=5.0, both_ways=True, settled=100))
    >>> [detector.observe(0.1, wrong, second) for second, wrong in enumerate([0, 1, 1, 1, 1, 1, 1, 1, 1, 1])][-1]
    1
    """

    watch: Watch
    up: float = 0.0
    down: float = 0.0
    up_since_us: int | None = None
    down_since_us: int | None = None
    alarms: int = 0
    alarmed_us: int | None = None
    since_alarm: int = 0
    observed: int = 0
    _log_odds: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._log_odds = log(self.watch.odds)

    def observe(self, predicted: float, outcome: float, now_us: int) -> int | None:
        """Take one outcome in.

        Parameters
        ----------
        predicted : float
            Its probability, inside (0, 1).
        outcome : float
            1 or 0.
        now_us : int

        Returns
        -------
        int or None
            When the change began, if this outcome raises the alarm.
        """
        odds = self.watch.odds
        gain = self._log_odds * outcome
        rising = gain - log(1.0 - predicted + odds * predicted)
        falling = -gain - log(1.0 - predicted + predicted / odds)
        return self._step(rising, falling, 1, now_us)

    def observe_ratio(self, gain: float, now_us: int) -> int | None:
        """Take one outcome in by its log likelihood ratio of after the change over before; see :meth:`observe`."""
        return self._step(gain, -gain, 1, now_us)

    def observe_many(
        self, predicted: NDArray[np.float64], trials: NDArray[np.float64], hits: NDArray[np.float64], now_us: int
    ) -> int | None:
        """Take outcomes in as counts by cell, shape (cells,) each; see :meth:`observe`."""
        odds, total = self.watch.odds, float(hits.sum())
        rising = self._log_odds * total - float(trials @ np.log(1.0 - predicted + odds * predicted))
        falling = -self._log_odds * total - float(trials @ np.log(1.0 - predicted + predicted / odds))
        return self._step(rising, falling, int(trials.sum()), now_us)

    def observe_share(self, predicted: float, trials: float, hits: float, now_us: int) -> int | None:
        """Take so many outcomes of one probability in; see :meth:`observe`."""
        odds = self.watch.odds
        rising = self._log_odds * hits - trials * log(1.0 - predicted + odds * predicted)
        falling = -self._log_odds * hits - trials * log(1.0 - predicted + predicted / odds)
        return self._step(rising, falling, int(trials), now_us)

    def _step(self, rising: float, falling: float, observations: int, now_us: int) -> int | None:
        self.observed += observations
        self.since_alarm += observations
        up = self.up + rising
        if up <= 0.0:
            up, self.up_since_us = 0.0, None
        elif self.up_since_us is None:
            self.up_since_us = now_us
        self.up = up
        if self.watch.both_ways:
            down = self.down + falling
            if down <= 0.0:
                down, self.down_since_us = 0.0, None
            elif self.down_since_us is None:
                self.down_since_us = now_us
            self.down = down
        if self.up < self.watch.bound and self.down < self.watch.bound:
            return None
        began = self.up_since_us if self.up >= self.down else self.down_since_us
        self.alarms += 1
        self.alarmed_us, self.since_alarm = now_us, 0
        self.restart()
        return now_us if began is None else began

    def restart(self) -> None:
        """Forget the sums, not the alarms: what was predicted has changed."""
        self.up = self.down = 0.0
        self.up_since_us = self.down_since_us = None

    @property
    def statistic(self) -> float:
        """The larger of both sums."""
        return max(self.up, self.down)

    @property
    def state(self) -> DriftState:
        """``drifted`` for a while after an alarm, ``suspected`` near the bound, else ``ok``."""
        if self.alarmed_us is not None and self.since_alarm < self.watch.settled:
            return "drifted"
        return "suspected" if self.statistic >= _SUSPECTED_SHARE * self.watch.bound else "ok"

    def status(self) -> DetectorStatus:
        """Return what people see of it."""
        state = self.state
        since = self.up_since_us if self.up >= self.down else self.down_since_us
        shown = self.alarmed_us if state == "drifted" else since if state == "suspected" else None
        return DetectorStatus(
            name=self.watch.name,
            watches=self.watch.watches,
            needs_labels=self.watch.needs_labels,
            state=state,
            statistic=self.statistic,
            bound=self.watch.bound,
            since=None if shown is None else from_us(shown),
            alarms=self.alarms,
        )

    def dump(self) -> list[Any]:
        """Return the state as JSON values, exact."""
        return [
            *(self.up, self.down, self.up_since_us, self.down_since_us),
            *(self.alarms, self.alarmed_us, self.since_alarm, self.observed),
        ]

    def load(self, values: list[Any]) -> None:
        """Take a former :meth:`dump` back."""
        self.up, self.down, self.up_since_us, self.down_since_us = values[:4]
        self.alarms, self.alarmed_us, self.since_alarm, self.observed = values[4:]
