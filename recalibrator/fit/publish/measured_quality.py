"""The micro-F1 of what was served, measured by its labels: beside the estimate that chose the threshold.

That estimate lies where the choice put it, and the more so the luckier the labels behind it. This one weighs labels of
served answers by inverse propensity and chooses nothing. micro-F1 is a ratio of sums; that of the scores a - f·d is 0
at the right f, and their standard error that of the ratio (delta method).

A window begins at a time that no outcome has a say in, and ends with the newest label. Its interval is a confidence
sequence: with a chance of 95 % it holds at all times until the next window takes its place. The expected score as a
control variate, as in prediction-powered inference, explains 12 to 18 % of the variance on recorded answers: an
interval 6 to 9 % narrower, at the price of matching late labels to the traffic of their time; it is left out.
"""

from __future__ import annotations

from math import inf
from typing import Any, Literal

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.codec import Kept
from recalibrator.fit.confidence_sequence import standard_errors
from recalibrator.fit.data.label_columns import (
    HITS_LARGE,
    HITS_SMALL,
    ROUTED_US,
    SERVED_LARGE,
    SERVED_SMALL,
    SIZE_LARGE,
    SIZE_SMALL,
    STANDING,
)
from recalibrator.fit.data.label_table import Change, LabelTable
from recalibrator.fit.decide.candidate import Part, View
from recalibrator.fit.decide.threshold import Policies
from schemas.event import from_us, to_us
from schemas.labelled import LabelledExample
from schemas.status import MeasuredMicroF1
from schemas.traffic import TrafficSummary

Window = Literal["fast", "slow"]
WINDOWS: dict[Window, int] = {"fast": 250, "slow": 1_000}
"""Labels after which the next window begins; one is shown until its follower has so many, hence with up to twice."""

_LEAST_LABELS = 50


class MeasuredQuality(Part):
    """The windows of one workload: when they begin, and how many labels those that are not shown yet have."""

    _shown_us: Kept[dict[str, int]]
    _next_us: Kept[dict[str, int]]
    _labels: Kept[dict[str, int]]
    _latest_us: Kept[int] = 0

    def __init__(self) -> None:
        self._shown_us, self._next_us, self._labels = {}, {}, {}

    def take(self, event: LabelledExample | TrafficSummary, change: Change | None) -> None:
        """Begin with the first traffic, since offline labels were served to nobody, and count labels from then on."""
        if isinstance(event, TrafficSummary):
            if not self._shown_us:
                begins_us = to_us(event.first_routed_at)
                for window in WINDOWS:
                    self._shown_us[window] = self._next_us[window] = begins_us
                    self._labels[window] = 0
        elif change == "added" and event.label_requested and self._shown_us:
            routed_us = to_us(event.routed_at)
            self._latest_us = max(self._latest_us, routed_us)
            for window, most in WINDOWS.items():
                self._labels[window] += routed_us >= self._next_us[window]
                if self._labels[window] >= most:
                    self._shown_us[window], self._next_us[window] = self._next_us[window], self._latest_us + 1
                    self._labels[window] = 0

    def status(self, view: View, policies: Policies | None) -> dict[str, Any]:  # noqa: ARG002
        """Return what the labels of each window show."""
        return {"measured": self.shown(view.labels)}

    def shown(self, labels: LabelTable) -> dict[Window, MeasuredMicroF1]:
        """Return what these labels show of each window, where they are enough to quote."""
        found = {window: measured(labels, since_us, WINDOWS[window]) for window, since_us in self._windows}
        return {window: one for window, one in found.items() if one is not None}

    @property
    def _windows(self) -> list[tuple[Window, int]]:
        return [(window, self._shown_us[window]) for window in WINDOWS if window in self._shown_us]


def measured(labels: LabelTable, since_us: int, tightest_at: float, until_us: float = inf) -> MeasuredMicroF1 | None:
    """Return the micro-F1 of the answers that were served since a time, by their labels; None below 50 of them.

    Parameters
    ----------
    tightest_at : float
        Labels at which the interval is to be tightest.
    until_us : float
        Labels of queries routed then or later are left out.
    """
    rows = _of_served(labels, since_us, until_us)
    small, large = rows[:, SERVED_SMALL], rows[:, SERVED_LARGE]
    hits = small * rows[:, HITS_SMALL] + large * rows[:, HITS_LARGE]
    size = small * rows[:, SIZE_SMALL] + large * rows[:, SIZE_LARGE]
    total = float(size.sum())
    if len(rows) < _LEAST_LABELS or total <= 0.0:
        return None
    estimate = float(hits.sum()) / total
    error = float(np.sqrt(np.square(hits - estimate * size).sum())) / total
    width = standard_errors(len(rows), tightest_at) * error
    return MeasuredMicroF1(
        estimate=min(1.0, estimate),
        lower=max(0.0, estimate - width),
        upper=min(1.0, estimate + width),
        labels=len(rows),
        since=from_us(since_us),
    )


def exact_share(labels: LabelTable, since_us: int) -> float | None:
    """Return the share of served answers since a time that are right in everything, by labels; None without any.

    Weighted by inverse propensity, in [0, 1]. An answer is exact where 2·TP equals predicted plus gold.
    """
    rows = _of_served(labels, since_us)
    small, large = rows[:, SERVED_SMALL], rows[:, SERVED_LARGE]
    total = float((small + large).sum())
    if total <= 0.0:
        return None
    exact = small * (rows[:, HITS_SMALL] == rows[:, SIZE_SMALL]) + large * (rows[:, HITS_LARGE] == rows[:, SIZE_LARGE])
    return min(1.0, float(exact.sum()) / total)


def _of_served(labels: LabelTable, since_us: int, until_us: float = inf) -> Floats:
    """Return the rows of labels that count, of queries routed in this time."""
    table, routed_us = labels.table, labels.table[:, ROUTED_US]
    rows: Floats = table[(routed_us >= since_us) & (routed_us < until_us) & (table[:, STANDING] > 0.0)]
    return rows
