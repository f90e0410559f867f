"""A policy of the drift benchmark that never moves and notes what it is shown."""

from __future__ import annotations

import numpy as np

from research.drift.simulate import Alarm, Labels, TakesMess, Traffic


class FixedPolicy(TakesMess):
    """Escalates above one threshold for ever, and keeps all that it was handed."""

    def __init__(self, threshold: float, exploration: float = 0.03, audit: float = 0.0) -> None:
        super().__init__()
        self.threshold, self.exploration, self.audit, self.version = threshold, exploration, audit, 1
        self.alarms: list[Alarm] = []
        self.labels: list[Labels] = []
        self.started: Labels | None = None

    def start(self, labels: Labels) -> None:
        self.started = labels

    def escalates(self, u: np.ndarray) -> np.ndarray:
        return u > self.threshold

    def error_probability(self, u: np.ndarray) -> None:
        return None

    def on_traffic(self, traffic: Traffic) -> None:
        """Ignore traffic: the threshold never moves."""

    def on_labels(self, labels: Labels) -> None:
        self.labels.append(labels)

    @property
    def told(self) -> Labels:
        """All labels after the start, in the order in which they came."""
        return Labels(*map(np.concatenate, zip(*self.labels, strict=True)))
