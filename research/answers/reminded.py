"""Our service if it knew when the traffic changes and whether it was like that before: a bound for remembering.

Like :class:`~research.recorded.clairvoyant.Clairvoyant`; in a world that was there before, a fresh core is given all
labels of that world, and late labels of another one are kept from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np

from recalibrator.decoding import Observation
from research.recorded.clairvoyant import Clairvoyant
from research.recorded.service import SECONDS_A_QUERY, START
from research.recorded.stream import Stream
from schemas import LabelledExample

_LABELS_LEAST = 250
_CLEAN = ("clean", 0.0)


class Reminded(Clairvoyant):
    """The service with the times of all changes known, and which phases are alike."""

    def __init__(self, target: float, safety: float, **tuned: Any) -> None:
        self._ever: list[LabelledExample] = []
        self._worlds, self._begins, self._is_known = [_CLEAN], np.zeros(1), True
        super().__init__(target, safety, **tuned)

    def foresee(self, stream: Stream, late: int = 0) -> None:
        """Learn at which queries the phases of a stream begin, and what they are."""
        super().foresee(stream, late)
        self._begins = np.array([0, *self._changes])
        self._worlds = [(phase.shift, phase.share) if phase.share else _CLEAN for phase in stream.phases]

    def _world(self, routed_at: datetime) -> tuple[str, float]:
        row = (routed_at - START).total_seconds() / SECONDS_A_QUERY - 0.5
        return self._worlds[max(0, int(np.searchsorted(self._begins, row, side="right")) - 1)]

    @property
    def exploration(self) -> float:
        """As the version in force has it where the world is known."""
        return self._version.exploration_probability if self._is_known else super().exploration

    def _start_anew(self, known: Iterable[Observation], now: datetime, floor: int = 0) -> None:
        known = list(known)
        self._ever = self._ever or [one for one in known if isinstance(one, LabelledExample)]
        super()._start_anew(known, now, floor)

    def _observe(self, event: Observation) -> None:
        if isinstance(event, LabelledExample):
            self._ever.append(event)
            if self._world(event.routed_at) != self._world(self._changed_at):
                return
        super()._observe(event)

    def _rebuild_when_due(self) -> None:
        fresh = self._fresh_labels
        if not self._rebuild_at or fresh < self._rebuild_at[0]:
            return
        same = [one for one in self._ever if self._world(one.routed_at) == self._world(self._changed_at)]
        self._is_known = len(same) - fresh >= _LABELS_LEAST
        if not self._is_known:
            super()._rebuild_when_due()
            return
        self._rebuild_at = []
        self._labels = sorted(same, key=lambda one: one.routed_at)
        self._start_anew(self._labels, self._traffic[-1].last_routed_at, self._version.version)
        self._remember(self._seen)
