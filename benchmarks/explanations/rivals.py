"""River's detectors on the same series: the share of every category in every block, each with its own detector.

They give neither p-values nor e-values, so that what controls them over all series is Bonferroni's rule on their own
parameter: delta or alpha, divided by the number of detectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from river.drift import ADWIN, KSWIN

from recalibrator.fit.movement.monitor import BLOCK_QUERIES, MovementMonitor
from recalibrator.fit.movement.series_table import Series, SeriesTable
from recalibrator.fit.movement.vocabulary import LEARNED_QUERIES
from schemas import LabelledExample, TrafficSummary

_SERIES_EXPECTED = 200
_LEAST_BLOCKS = 8
_SCALE = 8.0

Made = Callable[[], Any]
RIVALS: dict[str, Made] = {
    "ADWIN(.002)": lambda: ADWIN(delta=0.002, clock=1, grace_period=4, min_window_length=2),
    "ADWIN(.05 / series)": lambda: ADWIN(delta=0.05 / _SERIES_EXPECTED, clock=1, grace_period=4, min_window_length=2),
    "KSWIN(.05 / series)": lambda: KSWIN(alpha=0.05 / _SERIES_EXPECTED, window_size=24, stat_size=8, seed=1),
}


class Fired(NamedTuple):
    """The series that a rival called changed after a block, and the query that ended it."""

    number: int
    series: tuple[Series, ...]


class Rivals:
    """All rivals on the series of one stream."""

    def __init__(self) -> None:
        # It counts as the monitors do, and itself finds nothing.
        self._counted = MovementMonitor(alpha=1e-300)
        self._queries = -LEARNED_QUERIES
        self._rivals = {name: Rival(made) for name, made in RIVALS.items()}
        self.fired: dict[str, list[Fired]] = {name: [] for name in RIVALS}

    def take(self, number: int, event: TrafficSummary | LabelledExample) -> None:
        """Take an event in, and note what fires after the block that it ends."""
        if isinstance(event, LabelledExample):
            self._counted.on_label(event)
            return
        self._counted.on_traffic(event)
        self._queries += event.profiles[0].queries
        if self._queries > 0 and self._queries % BLOCK_QUERIES == 0:
            for name, rival in self._rivals.items():
                if series := rival.update(self._counted.table):
                    self.fired[name].append(Fired(number, tuple(series)))


class Rival:
    """One of river's detectors on each category of each series; shares are put to scale by the first blocks."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self._detectors: dict[tuple[Series, int], Any] = {}
        self._first: dict[tuple[Series, int], list[float]] = {}

    def update(self, table: SeriesTable) -> list[Series]:
        """Take the latest block in; return the series that are called changed."""
        fired = []
        latest = table.recent[:, -1, :, 0].astype(np.float64)
        for at, series in enumerate(table.series):
            whole = latest[at].sum()
            places = range(len(table.categories[at]) if whole else 0)
            # Every detector sees its share, also behind one that has fired.
            fired += [series for place in places if self._one((series, place), latest[at, place] / whole)]
        return list(dict.fromkeys(fired))

    def _one(self, key: tuple[Series, int], share: float) -> bool:
        first = self._first.setdefault(key, [])
        if len(first) < _LEAST_BLOCKS:
            first.append(share)
            return False
        # ADWIN expects values in [0, 1]: eight standard deviations of a block's share span it.
        spread = max(float(np.std(first)), 1e-3)
        value = min(1.0, max(0.0, 0.5 + (share - float(np.mean(first))) / (2.0 * _SCALE * spread)))
        detector = self._detectors.setdefault(key, self._made())
        detector.update(value)
        return bool(detector.drift_detected)
