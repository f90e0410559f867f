"""Ours where small calls are stopped early: what a policy no longer sees, and what it makes of what is left.

Not what is saved, which hangs on the models' tokens (``benchmarks.early_stop``): the small calls cost here what they
cost everywhere, so that the difference to ours is the price of knowing less.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.drift.mess import LABELLED_ESCALATED, LABELLED_KEPT
from benchmarks.drift.policies.ours import Ours
from benchmarks.drift.simulate import Traffic
from benchmarks.routed_batch import BatchEarlyStop, RoutedBatch

FULL_SHARE = 0.2
SHORTEST = 0.6
"""Of the longest answer: answers have between this share of its tokens and all of them."""

_TOKENS = 50
_SEED = 17


class OursEarlyStop(Ours):
    """Ours, with a share of the queries above the threshold seen in full.

    An answer of a share s of the longest one's tokens gives cause to stop where s·u lies above the threshold.
    """

    def __init__(self, safety: float = 0.5) -> None:
        super().__init__(safety, watch=True)
        self._settings["early_stop"] = {"full_share": FULL_SHARE}
        self.core = self._fresh()
        self._random = np.random.default_rng(_SEED)

    def _batch(self, traffic: Traffic) -> RoutedBatch:
        """Return what a router with early stop knows of a chunk; labels are drawn inside the full share."""
        lengths, luck = self._random.uniform(SHORTEST, 1.0, len(traffic.u)), self._random.uniform(size=len(traffic.u))
        cause = traffic.u * lengths > self._current().uncertainty_threshold
        rate = np.where(traffic.escalated, LABELLED_ESCALATED, LABELLED_KEPT)
        in_full = traffic.label_requested | (luck < (FULL_SHARE - rate) / (1.0 - rate))
        return replace(
            super()._batch(traffic),
            early_stop=BatchEarlyStop(cause, in_full),
            small_tokens=np.full(len(traffic.u), _TOKENS),
        )
