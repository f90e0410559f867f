"""A change of a rate, taken apart: what other shares of the groups explain, and what changed within each of them.

With shares s and rates r of the groups g before (b) and after (a), exactly (Kitagawa, 1955, "Components of a Difference
Between Two Rates"):

    R_a - R_b = Σ_g (s_ga - s_gb) · (r_ga + r_gb) / 2  +  Σ_g (r_ga - r_gb) · (s_ga + s_gb) / 2

The first sum is the effect of the composition, the second what changed within groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats


class Effects(NamedTuple):
    """The parts of a change of a rate by group, shape (groups,) each; together they are the change.

    ``composition`` is counted from the mean rate, so that a group which grows adds only where its rate is above it.
    """

    composition: Floats
    within: Floats

    @property
    def change(self) -> float:
        """The whole change of the rate."""
        return float(self.composition.sum() + self.within.sum())


def decompose(size_before: Floats, hits_before: Floats, size_after: Floats, hits_after: Floats) -> Effects:
    """Take the change of Σ hits / Σ size apart.

    Parameters
    ----------
    size_before, hits_before, size_after, hits_after : ndarray, shape (groups,)
        A group that is missing on one side has the rate of the other side there.

    Examples
    --------
    Half of the queries come from a group that escalates, instead of a tenth; within groups nothing changed:

    >>> effects = decompose(np.array([90.0, 10.0]), np.array([9.0, 8.0]), np.array([50.0, 50.0]), np.array([5.0, 40.0]))
    >>> round(effects.change, 3), effects.composition.round(3).tolist(), effects.within.round(3).tolist()
    (0.28, [0.084, 0.196], [0.0, 0.0])
    """
    if size_before.sum() <= 0.0 or size_after.sum() <= 0.0:
        return Effects(np.zeros(len(size_before)), np.zeros(len(size_before)))
    share_before, share_after = size_before / size_before.sum(), size_after / size_after.sum()
    rate_before = hits_before / np.where(size_before > 0.0, size_before, 1.0)
    rate_after = hits_after / np.where(size_after > 0.0, size_after, 1.0)
    before = np.where(size_before > 0.0, rate_before, rate_after)
    after = np.where(size_after > 0.0, rate_after, rate_before)
    rate, share = (before + after) / 2.0, (share_before + share_after) / 2.0
    mean = float(share @ rate)
    return Effects((share_after - share_before) * (rate - mean), (after - before) * share)
