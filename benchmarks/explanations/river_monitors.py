"""The rival: river's detectors on the same series, in place of the evidence by which the product says that one moved.

Each category of each series has a detector of its own, which sees the category's share of each summary. Everything else
is the product's: the counts, which changes are material, the order of what is named, its segment, and what it explains.
ADWIN bounds the probability of a false alarm by ``delta``, KSWIN that of one look by ``alpha``; over several series
river corrects neither, so that both are divided by the number of detectors (Bonferroni). PageHinkley has a threshold
and no error probability: there is nothing to correct.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from river import drift

from recalibrator.fit.arrays import Bools
from recalibrator.fit.movement.causes import Compared, material, named_traits
from recalibrator.fit.movement.dispersion import dispersion
from recalibrator.fit.movement.evidence import log_bayes_factor
from recalibrator.fit.movement.monitor import MovementMonitor
from recalibrator.fit.movement.series_table import CATEGORIES
from schemas.movement import MovedTrait
from schemas.traffic import TrafficSummary

DETECTORS = 400
"""By which a bound on false alarms is divided: about as many categories as the benchmark's series have."""

_LEAST_BEFORE = 200
_LEAST_BLOCKS = 8
_LEARNED, _LEAST_SPREAD = 40, 0.01


class _Standardized:
    """A detector that sees shares in units of their standard deviation, learned from the first ones.

    ADWIN's bound holds for numbers between 0 and 1 and uses that range: of raw shares, which vary by a few hundredths,
    it misses nearly every shift. So a sixteenth of the range is one standard deviation. PageHinkley's threshold has the
    unit of its numbers.
    """

    def __init__(self, inner: Any, scale: float = 1.0, middle: float = 0.0) -> None:
        self._first: list[float] = []
        self._inner, self._scale, self._middle = inner, scale, middle
        self._mean, self._spread = 0.0, 1.0

    def update(self, value: float) -> None:
        if len(self._first) < _LEARNED:
            self._first.append(value)
            self._mean = float(np.mean(self._first))
            self._spread = max(float(np.std(self._first)), _LEAST_SPREAD)
        else:
            standardized = (value - self._mean) / self._spread * self._scale + self._middle
            self._inner.update(min(1.0, max(0.0, standardized)) if self._middle else standardized)

    @property
    def drift_detected(self) -> bool:
        return bool(self._inner.drift_detected)


def _adwin(delta: float) -> _Standardized:
    return _Standardized(drift.ADWIN(delta=delta, clock=1), 1.0 / 16.0, 0.5)


def _page_hinkley(threshold: float) -> _Standardized:
    return _Standardized(drift.PageHinkley(threshold=threshold, delta=0.1))


@dataclass(frozen=True, slots=True)
class Rival:
    """One of river's detectors as configured.

    Parameters
    ----------
    name : str
    build : callable
        Returns a fresh detector.
    quiet_share : float
        Of the quiet streams that it sees; KSWIN takes its time.
    """

    name: str
    build: Callable[[], Any]
    quiet_share: float = 1.0


RIVALS = (
    Rival("ADWIN, delta .002", lambda: _adwin(0.002)),
    Rival("ADWIN, delta .002 / detectors", lambda: _adwin(0.002 / DETECTORS)),
    Rival("ADWIN, delta .0001 / detectors", lambda: _adwin(1e-4 / DETECTORS)),
    Rival("PageHinkley, threshold 25", lambda: _page_hinkley(25.0)),
    Rival("PageHinkley, threshold 50", lambda: _page_hinkley(50.0)),
    Rival("KSWIN, alpha .005 / detectors", lambda: drift.KSWIN(alpha=0.005 / DETECTORS, seed=1), 0.1),
)


class RiverMonitor(MovementMonitor):
    """The product's monitors with a detector of river's for each category of each series.

    Parameters
    ----------
    build : callable
        Returns a fresh detector.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._detectors: dict[tuple[int, int], Any] = {}
        self._fired: set[int] = set()
        self._counted = np.zeros((0, CATEGORIES))

    def on_traffic(self, summary: TrafficSummary) -> None:
        """Take one summary in, and feed its shares to the detectors."""
        super().on_traffic(summary)
        self._feed_open()

    def _close_block(self) -> None:
        self._feed_open()
        super()._close_block()
        self._counted = np.zeros((0, CATEGORIES))

    def _feed_open(self) -> None:
        """Feed what was counted since the last time."""
        counts = self._table.open[..., 0].astype(np.float64)
        seen = counts.copy()
        seen[: len(self._counted)] -= self._counted
        self._counted = counts
        for at in np.flatnonzero(seen.sum(axis=1) > 0.0).tolist():
            self._feed(at, (seen[at] / seen[at].sum()).tolist())

    def _feed(self, at: int, shares: list[float]) -> None:
        for place in range(len(self._table.categories[at])):
            detector = self._detectors.get((at, place))
            if detector is None:
                detector = self._detectors[at, place] = self._build()
            detector.update(shares[place])
            if detector.drift_detected:
                self._fired.add(at)

    def _test(self) -> None:
        if self._table.filled < _LEAST_BLOCKS:
            self._fired.clear()
            return
        before, after = self._table.splits()
        spread = dispersion(*self._table.scatter())
        allowed = (before.sum(axis=-1) >= _LEAST_BEFORE) & material(before, after)
        flagged = self._flagged(len(self._table)) & allowed.any(axis=1)
        if not flagged.any():
            # What fired and is not material counts as noise.
            self._fired.clear()
            return
        factors = np.where(allowed, log_bayes_factor(before, after), -np.inf)
        strongest = int(np.where(flagged, factors.max(axis=1), -np.inf).argmax())
        self._begin_movement(int(factors[strongest].argmax()), spread)

    def _flagged(self, size: int) -> Bools:
        found = np.zeros(size, dtype=np.bool_)
        found[[at for at in self._fired if at < size]] = True
        return found

    def _moved_traits(self, compared: Compared) -> list[MovedTrait]:
        return named_traits(compared, self._flagged(len(compared.series)) & material(*compared.queries))

    def _settle(self, moved: Any) -> None:
        super()._settle(moved)
        self._fired.clear()
