"""The candidate on synthetic streams: chunks become counts by cell, labels become columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from research.candidate.core import Constants, Core
from research.candidate.curves import Bools, Floats, Labels, cells_of, counts_by_cell
from research.drift.oracle import TARGET
from research.drift.simulate import Alarm, Traffic
from research.drift.simulate import Labels as DriftLabels


class OnDrift:
    """One core, without a map and without audits.

    ``**changed``: constants that differ from the defaults.
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
        ran = traffic.large_ran & ~traffic.large_failed
        before = self.core.alarms
        self.core.see(float(traffic.at_s.min()), *counts_by_cell(self.core.grid, traffic.u, ran, traffic.agree))
        if self.core.alarms > before:
            self.alarms.append(Alarm(self._seen, "change", needs_labels=True))

    def on_labels(self, labels: DriftLabels) -> None:
        """Hand on labels."""
        self.core.learn(self._labels(labels))

    def _labels(self, labels: DriftLabels) -> Labels:
        known, cell = cells_of(self.core.grid, labels.u)
        known &= ~labels.retracted
        ran = labels.large_ran & ~labels.large_failed
        columns = (
            labels.at_s,
            cell,
            np.where(ran, labels.agree.astype(np.int64), -1),
            2.0 * (labels.small - TARGET * labels.gold),
            2.0 * (labels.large - TARGET * labels.gold),
            2.0 * labels.gold,
        )
        return Labels(*(column[known] for column in columns))
