"""The prototype as a policy of both benchmarks: batches become counts by cell, labels become columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.blocks.core import Constants, Core
from benchmarks.blocks.curves import Floats, Labels
from benchmarks.drift.oracle import TARGET
from benchmarks.drift.simulate import Alarm, Bools, Traffic
from benchmarks.drift.simulate import Labels as DriftLabels
from benchmarks.recorded.simulate import Routed
from benchmarks.recorded.stream import Outcomes, offline_outcomes
from benchmarks.recorded.tokens import NO_LEVERS


class OnRecorded:
    """On streams of recorded answers.

    Parameters
    ----------
    target : float
    **changed
        Constants that differ from the defaults.
    """

    levers = NO_LEVERS

    def __init__(self, target: float, **changed: Any) -> None:
        self._target, self.core = target, Core(Constants(**changed))
        offline = offline_outcomes()
        count = len(offline)
        self.core.bootstrap(self._labels(offline, np.arange(-count, 0), np.ones(count, dtype=bool)))

    @property
    def threshold(self) -> float:
        """On u, in force."""
        return self.core.threshold

    @property
    def exploration(self) -> float:
        """In force."""
        return self.core.exploration

    def _labels(self, outcomes: Outcomes, rows: Floats, ran: Bools) -> Labels:
        known = ~np.isnan(outcomes.uncertainty)
        small = 2.0 * outcomes.small_hits - self._target * (outcomes.small_named + outcomes.gold)
        large = 2.0 * outcomes.large_hits - self._target * (outcomes.large_named + outcomes.gold)
        columns = (
            rows.astype(np.float64),
            self.core.grid.indices(np.where(known, outcomes.uncertainty, 0.5)),
            np.where(ran, outcomes.agree.astype(np.int64), -1),
            small,
            large,
            (outcomes.large_named + outcomes.gold).astype(np.float64),
        )
        return Labels(*(column[known] for column in columns))

    def see(self, routed: Routed) -> None:
        """Hand on a batch."""
        u, ran = routed.outcomes.uncertainty, routed.ran
        known = ~np.isnan(u)
        cell = self.core.grid.indices(np.where(known, u, 0.5))
        self.core.see(float(routed.rows[0]), *_counts(self.core.grid.cells, cell, known, ran, routed.outcomes.agree))

    def learn(self, labelled: Routed) -> None:
        """Hand on labels."""
        self.core.learn(self._labels(labelled.outcomes, labelled.rows, labelled.ran))


class OnDrift:
    """On synthetic streams.

    Parameters
    ----------
    **changed
        Constants that differ from the defaults.
    """

    audit = 0.0

    def __init__(self, **changed: Any) -> None:
        self.core = Core(Constants(**changed))
        self.alarms: list[Alarm] = []
        self.version = 0
        self._seen = 0

    @property
    def exploration(self) -> float:
        """In force."""
        return self.core.exploration

    def start(self, labels: DriftLabels) -> None:
        """Bootstrap."""
        self.core.bootstrap(self._labels(labels))

    def escalates(self, u: Floats) -> Bools:
        """Decide."""
        return u > self.core.threshold

    def error_probability(self, u: Floats) -> None:
        """Hold no map."""
        del u

    def on_traffic(self, traffic: Traffic) -> None:
        """Hand on a chunk."""
        self._seen += len(traffic.u)
        known = ~np.isnan(traffic.u)
        cell = self.core.grid.indices(np.where(known, traffic.u, 0.5))
        ran = traffic.large_ran & ~traffic.large_failed
        before = self.core.alarms
        self.core.see(float(traffic.at_s.min()), *_counts(self.core.grid.cells, cell, known, ran, traffic.agree))
        if self.core.alarms > before:
            self.alarms.append(Alarm(self._seen, "change", needs_labels=True))

    def on_labels(self, labels: DriftLabels) -> None:
        """Hand on labels."""
        self.core.learn(self._labels(labels))

    def _labels(self, labels: DriftLabels) -> Labels:
        known = ~np.isnan(labels.u) & ~labels.retracted
        ran = labels.large_ran & ~labels.large_failed
        columns = (
            labels.at_s,
            self.core.grid.indices(np.where(known, labels.u, 0.5)),
            np.where(ran, labels.agree.astype(np.int64), -1),
            2.0 * (labels.small - TARGET * labels.gold),
            2.0 * (labels.large - TARGET * labels.gold),
            2.0 * labels.gold,
        )
        return Labels(*(column[known] for column in columns))


def _counts(cells: int, cell: Floats, known: Bools, ran: Bools, agree: Bools) -> tuple[Floats, Floats, Floats]:
    return tuple(
        np.bincount(cell[which], minlength=cells).astype(np.float64)
        for which in (known, known & ran, known & ran & agree)
    )
