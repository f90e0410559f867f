"""What rivals remember: labels and traffic flow in, columns of the latest by query time flow out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from research.drift.simulate import Labels, Traffic

Floats = NDArray[np.float64]

_SLACK = 1_000


class LabelMemory:
    """The latest labels by the time of their query.

    ``size``: labels kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: Labels | None = None

    def add(self, labels: Labels) -> None:
        """Take labels in."""
        both = labels if self._held is None else Labels(*map(np.concatenate, zip(self._held, labels, strict=True)))
        if len(both.u) > self._size + _SLACK or self._held is None:
            order = np.argsort(both.number, kind="stable")[-self._size :]
            both = Labels(*(column[order] for column in both))
        self._held = both

    @property
    def latest(self) -> Labels:
        """The latest labels, oldest query first."""
        if self._held is None:
            raise RuntimeError("no labels yet")
        order = np.argsort(self._held.number, kind="stable")[-self._size :]
        return Labels(*(column[order] for column in self._held))


class TrafficMemory:
    """Uncertainty of the latest queries, labelled or not.

    ``size``: queries kept.
    """

    def __init__(self, size: int = 5_000) -> None:
        self._size = size
        self.u: Floats = np.zeros(0)

    def add(self, traffic: Traffic) -> None:
        """Take one chunk in."""
        self.start(traffic.u)

    def start(self, u: Floats) -> None:
        """Take queries in."""
        self.u = np.concatenate((self.u, u))[-self._size :]
