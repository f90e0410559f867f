"""Ours if it knew when the world changes: the same labels, estimates and margins, with nothing left to detect.

It answers how much of the rest is lost to late detection, and how much to what so few labels can tell. Only the public
interface is used: at each true change a fresh core is given the labels since, and of those before as many of the latest
as the discount after an alarm lets count. Labels of a time in which labelers err are left out, being known as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from research.drift.mess import CHUNK, EXPLORED
from research.drift.policies.ours import Ours
from research.drift.simulate import Labels, Traffic
from research.drift.streams import Stream
from research.drift.world import Conditions
from schemas import LabelledExample, TrafficSummary

_NEWS = 0.15
"""Smallest move of any condition that counts as a change: of log-odds some .7 points of micro-F1."""
REBUILT_AFTER = (0, 50, 150, 350)
"""Labels since the change after which the core is made anew, with fewer labels from before."""
TRAFFIC_KEPT = 8
"""Latest summaries that a fresh core is given."""


def changes(stream: Stream) -> list[int]:
    """Return the queries at which conditions have moved since the last change; those that go gradually give several.

    Examples
    --------
    >>> from research.drift.streams import stream
    >>> changes(stream("small_abrupt", 1, 20_000)), changes(stream("stationary", 1, 20_000))
    ([8000], [])
    """
    queries = len(stream)
    moved = stream.family.world(np.arange(queries) / queries)
    conditions = Conditions.of(queries, **moved)
    columns = np.stack([getattr(conditions, name) for name in moved]) if moved else np.zeros((1, queries))
    found: list[int] = []
    held = columns[:, 0]
    for number in range(0, queries, CHUNK):
        now = columns[:, number]
        if np.abs(now - held).max() >= _NEWS:
            held = now
            found.append(number)
    return found


class Clairvoyant(Ours):
    """Ours with the times of all changes known beforehand; see :class:`~research.drift.policies.ours.Ours`."""

    def __init__(self, safety: float = 0.65, **tuned: Any) -> None:
        super().__init__(safety, **tuned)
        self._changes: list[int] = []
        self._bad: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(0, dtype=bool)
        self._rebuild_at: list[int] = []
        self._labels: list[tuple[int, LabelledExample]] = []
        self._traffic: list[tuple[int, TrafficSummary]] = []
        self._changed = -1
        self._fresh_labels = 0

    def foresee(self, stream: Stream) -> None:
        """Learn when the conditions of a stream change, and when its labelers err."""
        self._changes = changes(stream)
        progress = np.arange(len(stream)) / len(stream)
        labelers = stream.family.labelers
        self._bad = (labelers.careless(progress) > 0.0) | (labelers.flattering(progress) > 0.0)

    @property
    def exploration(self) -> float:
        """As after an alarm while few labels since the change are there."""
        alert = self._changed >= 0 and self._fresh_labels < self.constants.alert_labels
        return EXPLORED if alert else super().exploration

    def on_traffic(self, traffic: Traffic) -> None:
        """Take one chunk in; what follows it may be another world."""
        self._traffic.append((self._seen, self._summary(traffic)))
        self._seen += len(traffic.u)
        self._observe(self._traffic[-1][1])
        if self._changes and self._changes[0] <= self._seen:
            self._changed, self._fresh_labels = self._changes.pop(0), 0
            self._rebuild_at = list(REBUILT_AFTER)
            self._rebuild_when_due()

    def on_labels(self, labels: Labels) -> None:
        """Take labels in that labelers gave truly, and make the core anew while those from before still count."""
        for row in zip(*(column.tolist() for column in labels), strict=True):
            label = Labels(*row)
            if label.number >= 0 and self._bad[int(label.number)] and not label.audited:
                continue
            example = self._example(label)
            self._labels.append((int(label.number), example))
            self._fresh_labels += label.number >= self._changed
            self._observe(example)
        self._rebuild_when_due()

    def _rebuild_when_due(self) -> None:
        if not self._rebuild_at or self._fresh_labels < self._rebuild_at[0]:
            return
        while self._rebuild_at and self._fresh_labels >= self._rebuild_at[0]:
            self._rebuild_at.pop(0)
        most, least = self.constants.old_labels_most, self.constants.old_labels_least
        kept = int(max(least, most - self._fresh_labels))
        before = sorted((one for one in self._labels if one[0] < self._changed), key=lambda one: one[0])[-kept:]
        since = [one for one in self._labels if one[0] >= self._changed]
        self._labels = before + since
        self._traffic = self._traffic[-TRAFFIC_KEPT:]
        self.core = self._fresh()
        for _, example in self._labels:
            self.core.observe(example)
        for _, summary in self._traffic:
            self.core.observe(summary)
        self._bootstrap(self._traffic[-1][1].last_routed_at)
