"""What a careless crowd's labels count for: by how likely each outcome is with slips and without them.

A share c of the labels says of anything that it is wrong (or, where they flatter, that it is right). Which ones nobody
knows, but of an outcome that the crowd reports with probability x, and true labels with probability r, each label is
worth r / x of one: a posterior, no verdict (importance weights; Horvitz and Thompson, 1952).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.data.label_columns import (
    ERROR,
    GROUP,
    HITS_LARGE,
    REVISION,
    ROUTED_US,
    SIZE_LARGE,
    STANDING,
    Standing,
)

_LEAST_TRUE = 0.02
"""Of the faults that the crowd reports where answers differ: some are always true."""


class Slips(NamedTuple):
    """Between which routing times labels slip, how often by cell, and how often small answers err without slips."""

    began_us: int
    #: None: they still do.
    ended_us: int | None
    #: Whether slips report errors, rather than hide them.
    too_many: bool
    #: Shape (cells,): c(u).
    share: Floats
    #: Shape (3, cells): r(u) by relation: one model answered, the answers differ, they are equal.
    error: Floats

    def covers(self, routed_us: Any) -> Any:
        """Whether queries that were routed then are labelled so."""
        return (routed_us >= self.began_us) & (routed_us < (np.inf if self.ended_us is None else self.ended_us))

    @property
    def reported(self) -> Floats:
        """P(the label says wrong), shape (3, cells)."""
        found: Floats = (
            self.error + self.share * (1.0 - self.error) if self.too_many else self.error * (1.0 - self.share)
        )
        return found

    def truth(self, group: int, error: float) -> float:
        """Return the probability that the small answer of a group is wrong, its label being what it is."""
        true, said = self.error.item(group), self.reported.item(group)
        if self.too_many:
            return error * true / said
        return 1.0 - (1.0 - error) * (1.0 - true) / (1.0 - said)

    def weights(self, table: Floats) -> Floats:
        """Return what each label is worth, shape (labels,): 1 where nothing slips."""
        cells, found = len(self.share), np.ones(len(table))
        standing, group = table[:, STANDING], table[:, GROUP].astype(np.intp)
        # What somebody has since corrected is no slip.
        crowd = ((standing == Standing.COUNTED) | (standing == Standing.ANSWERED)) & (table[:, REVISION] <= 1.0)
        rows = np.flatnonzero(crowd & self.covers(table[:, ROUTED_US]) & (group < 3 * cells))
        group, wrong = group[rows], table[rows, ERROR] > 0.0
        true, said = self.error.reshape(-1)[group], self.reported.reshape(-1)[group]
        found[rows] = np.where(wrong, true / said, (1.0 - true) / (1.0 - said))
        # Where the answers differ, one of them is wrong anyhow: a slip shows by both being so.
        apart = (group >= cells) & (group < 2 * cells)
        if self.too_many and apart.any():
            both = wrong[apart] & (table[rows[apart], HITS_LARGE] < table[rows[apart], SIZE_LARGE])
            said_both, slip = float(both.mean()), float(self.share[group[apart] - cells].mean())
            true_both = max(_LEAST_TRUE * said_both, (said_both - slip) / (1.0 - slip))
            if 0.0 < said_both < 1.0:
                found[rows[apart]] = np.where(both, true_both / said_both, (1.0 - true_both) / (1.0 - said_both))
        return found
