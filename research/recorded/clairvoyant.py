"""Our service if it knew when the traffic changes: the same labels, estimates and margins, with nothing left to detect.

What it lacks is what so few labels cannot tell; what the service lacks beyond that is the price of detecting. As in
:mod:`research.drift.policies.clairvoyant`, and by the same rule, only the public interface of the core is used: after
each change a fresh core is given the labels since, and ever fewer of those before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recalibrator.decoding import Observation
from research.drift.policies.clairvoyant import REBUILT_AFTER, TRAFFIC_KEPT
from research.recorded.service import START, Service, time_of
from research.recorded.simulate import Routed
from research.recorded.stream import Stream
from schemas import LabelledExample, TrafficSummary


class Clairvoyant(Service):
    """The service with the times of all changes known beforehand; see :class:`~research.recorded.service.Service`."""

    def __init__(self, target: float, safety: float, **tuned: Any) -> None:
        self._labels: list[LabelledExample] = []
        self._traffic: list[TrafficSummary] = []
        self._changes: list[int] = []
        self._late = 0
        self._changed_at = START
        self._rebuild_at: list[int] = []
        super().__init__(target, safety, **tuned)

    def foresee(self, stream: Stream, late: int = 0) -> None:
        """Learn at which queries the phases of a stream begin, each so many queries late."""
        self._late = late
        self._changes = (np.flatnonzero(np.diff(stream.phase)) + 1).tolist()

    @property
    def exploration(self) -> float:
        """As after an alarm while few labels since the change are there."""
        alert = self._changed_at > START and self._fresh_labels < self.core.constants.alert_labels
        return self._explored if alert else super().exploration

    @property
    def _fresh_labels(self) -> int:
        return sum(one.routed_at >= self._changed_at for one in self._labels)

    def see(self, routed: Routed) -> None:
        """Hand on a batch of traffic; what follows it may be another world."""
        super().see(routed)
        following = int(routed.rows[-1]) + 1
        if self._changes and self._changes[0] + self._late <= following:
            self._changed_at, self._rebuild_at = time_of(self._changes.pop(0)), list(REBUILT_AFTER)
            self._rebuild_when_due()

    def learn(self, labelled: Routed) -> None:
        """Hand on labels, and make the core anew while those from before still count."""
        super().learn(labelled)
        self._rebuild_when_due()

    def _observe(self, event: Observation) -> None:
        super()._observe(event)
        if isinstance(event, LabelledExample):
            self._labels.append(event)
        elif isinstance(event, TrafficSummary):
            self._traffic = [*self._traffic, event][-TRAFFIC_KEPT:]

    def _rebuild_when_due(self) -> None:
        fresh = self._fresh_labels
        if not self._rebuild_at or fresh < self._rebuild_at[0]:
            return
        self._rebuild_at = [labels for labels in self._rebuild_at if labels > fresh]
        decay = self.core.constants
        kept = int(max(decay.old_labels_least, decay.old_labels_most - fresh))
        in_turn = sorted(self._labels, key=lambda one: one.routed_at)
        self._labels = in_turn[-(kept + fresh) :]
        self._start_anew([*self._labels, *self._traffic], self._traffic[-1].last_routed_at, self._version.version)
        self._remember(self._seen)
