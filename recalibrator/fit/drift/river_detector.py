"""A detector of the river library on one of our channels.

It sees the mean residual of each outcome, hits less expected hits by trial. Its state is the inputs since its restart:
a copy that is fed with the same inputs is in the same state, so a snapshot needs to know nothing of river's insides.
The inputs kept are bounded; beyond the bound the older half is dropped and the detector rebuilt from the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from recalibrator.fit.codec import Floats, Kept
from recalibrator.fit.drift.detector import Alarm, Channel, Detector, Outcomes
from schemas.errors import ConfigError
from schemas.settings_workload import RiverArguments, RiverName

KEPT_MOST = 16_384
"""Inputs kept since the restart; half of them stay when they are cut."""

_SEEDED: dict[RiverName, RiverArguments] = {"KSWIN": {"seed": 1}}
"""What keeps those deterministic that draw at random, unless the settings say otherwise."""


class RiverDetector(Detector):
    """One drift detector of river's: a class of ``river.drift`` with its own arguments.

    Raises
    ------
    ConfigError
        If river is not installed, or refuses the arguments.
    """

    bound = 1.0
    """River does not say how close an alarm is."""
    _inputs: Kept[list[float]]
    _times_us: Kept[list[int]]
    _river: Any

    def __init__(
        self, kind: RiverName, arguments: RiverArguments, channel: Channel, kept_most: int = KEPT_MOST
    ) -> None:
        self.name, self.channel = f"river:{kind}", channel
        self._kind, self._arguments, self._kept_most = kind, _SEEDED.get(kind, {}) | arguments, kept_most
        self.restart()

    def _built(self) -> Any:
        """Return a detector of river's that has seen the inputs kept."""
        try:
            drift = import_module("river.drift")
        except ImportError:
            fault = f"river.{self._kind}: needs river: pip install 'ucci-stream[river]', or leave it out"
            raise ConfigError([fault]) from None
        try:
            built = getattr(drift, self._kind)(**self._arguments)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ConfigError([f"river.{self._kind}: {error}"]) from None
        for value in self._inputs:
            built.update(value)
        return built

    def update(self, seen: Outcomes) -> Alarm | None:
        """Take outcomes in; return an alarm if river detects drift in their residuals."""
        trials = float(np.sum(seen.trials))
        if trials <= 0.0:
            return None
        expected = float(np.sum(np.multiply(seen.trials, seen.expected)))
        self._inputs.append((float(np.sum(seen.hits)) - expected) / trials)
        self._times_us.append(seen.at_us)
        self.since_alarm += int(trials)
        self._river.update(self._inputs[-1])
        if self._river.drift_detected:
            began_us = self._times_us[change_point(np.array(self._inputs))]
            return self.alarm(seen.at_us, began_us)
        if len(self._inputs) >= self._kept_most:
            half = self._kept_most // 2
            self._inputs, self._times_us = self._inputs[-half:], self._times_us[-half:]
            self._river = self._built()
        return None

    def restart(self) -> None:
        """Forget the inputs, not the alarms."""
        self._inputs, self._times_us = [], []
        self._river = self._built()

    @property
    def statistic(self) -> float:
        """1 while it is drifted, else 0."""
        return float(self.is_drifted)

    def restored(self) -> None:
        """Feed river with its inputs again."""
        self._river = self._built()


def change_point(values: Floats) -> int:
    """Return the index from which the mean has most likely changed: the split with the largest gap for its size.

    Examples
    --------
    >>> change_point(np.array([0.0, 0.1, 0.0, 0.9, 1.0, 0.9]))
    3
    """
    count = len(values)
    if count < 2:  # noqa: PLR2004 - no split
        return 0
    left = np.arange(1, count)
    sums = np.cumsum(values)
    gap = sums[:-1] / left - (sums[-1] - sums[:-1]) / (count - left)
    return int(np.argmax(gap * gap * left * (count - left))) + 1
