"""The candidate on streams of recorded answers: batches become counts by cell, labels become columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from research.candidate.core import Constants, Core
from research.candidate.curves import Bools, Floats, Labels, cells_of, counts_by_cell
from research.recorded.simulate import Routed
from research.recorded.stream import Outcomes
from research.recorded.tokens import NO_LEVERS


class OnAnswers:
    """One core, bootstrapped on the offline queries.

    ``target``: micro-F1. ``**changed``: constants that differ from the defaults.
    """

    levers = NO_LEVERS

    def __init__(self, target: float, offline: Outcomes, **changed: Any) -> None:
        self._target, self.core = target, Core(Constants(**changed))
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
        known, cell = cells_of(self.core.grid, outcomes.uncertainty)
        small = 2.0 * outcomes.small_hits - self._target * (outcomes.small_named + outcomes.gold)
        large = 2.0 * outcomes.large_hits - self._target * (outcomes.large_named + outcomes.gold)
        columns = (
            rows.astype(np.float64),
            cell,
            np.where(ran, outcomes.agree.astype(np.int64), -1),
            small,
            large,
            (outcomes.large_named + outcomes.gold).astype(np.float64),
        )
        return Labels(*(column[known] for column in columns))

    def see(self, routed: Routed) -> None:
        """Hand on a batch."""
        outcomes = routed.outcomes
        counts = counts_by_cell(self.core.grid, outcomes.uncertainty, routed.ran, outcomes.agree)
        self.core.see(float(routed.rows[0]), *counts)

    def learn(self, labelled: Routed) -> None:
        """Hand on labels."""
        self.core.learn(self._labels(labelled.outcomes, labelled.rows, labelled.ran))
