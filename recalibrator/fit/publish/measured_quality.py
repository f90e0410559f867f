"""The quality of what was served, measured by its labels, and what people say of it as a whole."""

from __future__ import annotations

import math
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats, Kept
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_table import Change, LabelTable
from recalibrator.fit.decide.candidate import Part, View
from recalibrator.fit.decide.threshold import Policies
from schemas.event import from_us, to_us
from schemas.labelled import LabelledExample
from schemas.status import MeasuredMicroF1, VerdictStatus
from schemas.traffic import TrafficSummary

_ALPHA = 0.05
_SPREAD = -2.0 * math.log(_ALPHA) + math.log(1.0 - 2.0 * math.log(_ALPHA))


def standard_errors(labels: int, tightest_at: float) -> float:
    """Return how many standard errors of a mean over some labels its bounds lie from it, at all times together.

    An asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2024, theorem 2.2): with a
    chance of 95% it holds the mean whenever one looks, and looking after every label costs nothing. ``tightest_at``
    are the labels at which it is to be tightest, there at 3.04.

    Examples
    --------
    >>> round(standard_errors(500, 500.0), 2), round(standard_errors(2_000, 500.0), 2)
    (3.04, 3.13)
    """
    spread = labels * _SPREAD / tightest_at
    return math.sqrt(2.0 * (spread + 1.0) / spread * math.log(math.sqrt(spread + 1.0) / _ALPHA))


Window = Literal["fast", "slow"]
WINDOWS: dict[Window, int] = {"fast": 250, "slow": 1_000}
"""Labels after which the next window begins; one is shown until its follower has so many, hence with up to twice."""

_LEAST_LABELS = 50


class MeasuredQuality(Part):
    """The micro-F1 of what was served, beside the estimate that chose the threshold.

    That estimate lies where the choice put it, and the more so the luckier the labels behind it. This one weighs labels
    of served answers by inverse propensity and chooses nothing. micro-F1 is a ratio of sums; that of the scores a - f·d
    is 0 at the right f, and their standard error that of the ratio (delta method).

    A window begins at a time that no outcome has a say in, and ends with the newest label. Its interval is a confidence
    sequence: with a chance of 95% it holds at all times until the next window takes its place. The expected score as a
    control variate, as in prediction-powered inference, explains 12 to 18% of the variance on recorded answers: an
    interval 6 to 9% narrower, at the price of matching late labels to the traffic of their time; it is left out.
    """

    _shown_us: Kept[dict[str, int]]
    _next_us: Kept[dict[str, int]]
    _labels: Kept[dict[str, int]]
    _latest_us: Kept[int] = 0

    def __init__(self) -> None:
        self._shown_us, self._next_us, self._labels = {}, {}, {}

    def take_traffic(self, summary: TrafficSummary) -> None:
        """Begin with the first traffic, since offline labels were served to nobody."""
        if not self._shown_us:
            self._shown_us = dict.fromkeys(WINDOWS, to_us(summary.first_routed_at))
            self._next_us, self._labels = dict(self._shown_us), dict.fromkeys(WINDOWS, 0)

    def take_label(self, example: LabelledExample, change: Change | None) -> None:
        """Count labels from the first traffic on."""
        if change == "added" and example.label_requested and self._shown_us:
            routed_us = to_us(example.routed_at)
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
        begun = ((window, self._shown_us[window]) for window in WINDOWS if window in self._shown_us)
        found = {window: measured(labels, since_us, WINDOWS[window]) for window, since_us in begun}
        return {window: one for window, one in found.items() if one is not None}


def measured(labels: LabelTable, since_us: int, tightest_at: float, until_us: float = inf) -> MeasuredMicroF1 | None:
    """Return the micro-F1 of the answers that were served in a time, by their labels; None below 50 of them.

    ``tightest_at``: labels at which the interval is to be tightest.
    """
    rows = _of_served(labels, since_us, until_us)
    small, large = rows[:, at.SERVED_SMALL], rows[:, at.SERVED_LARGE]
    hits = small * rows[:, at.HITS_SMALL] + large * rows[:, at.HITS_LARGE]
    size = small * rows[:, at.SIZE_SMALL] + large * rows[:, at.SIZE_LARGE]
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
    small, large = rows[:, at.SERVED_SMALL], rows[:, at.SERVED_LARGE]
    total = float((small + large).sum())
    if total <= 0.0:
        return None
    exact = small * (rows[:, at.HITS_SMALL] == rows[:, at.SIZE_SMALL]) + large * (
        rows[:, at.HITS_LARGE] == rows[:, at.SIZE_LARGE]
    )
    return min(1.0, float(exact.sum()) / total)


def _of_served(labels: LabelTable, since_us: int, until_us: float = inf) -> Floats:
    """Return the rows of labels that count, of queries routed in this time."""
    table, routed_us = labels.table, labels.table[:, at.ROUTED_US]
    return np.asarray(table[(routed_us >= since_us) & (routed_us < until_us) & (table[:, at.STANDING] > 0.0)])


KEPT_VERDICTS = 1_000


class _Judged(NamedTuple):
    """One query's verdict: when the query was routed, whether it is "right", and what a requested label says of it."""

    routed_us: int
    right: bool
    exact: bool | None


class Verdicts(Part):
    """The latest verdicts of one workload, one a query: shown, and no part of any estimate.

    Who judges an answer, and how honestly, nobody draws: verdicts are compared with the labels of the same queries,
    whose requests are drawn whatever is said. Moving the estimate by verdicts, as far as labels bear them out, was
    measured to gain nothing (docs/results/answers/verdicts.md).
    """

    _judged: Kept[dict[str, _Judged]]
    _given: Kept[int] = 0

    def __init__(self) -> None:
        self._judged = {}

    def take_label(self, example: LabelledExample, change: Change | None) -> None:  # noqa: ARG002
        """Keep what is said of a query now, and whether its label agrees; what was withdrawn goes."""
        if example.verdict is None:
            self._judged.pop(example.query_id, None)
            return
        # Labels that people choose to give would not be a fair sample of what is judged.
        exact = example.served_exact if example.label_requested and not example.retracted else None
        self._given += example.query_id not in self._judged
        self._judged[example.query_id] = _Judged(to_us(example.routed_at), example.verdict == "right", exact)
        while len(self._judged) > KEPT_VERDICTS:
            del self._judged[next(iter(self._judged))]

    def status(self, view: View, policies: Policies | None) -> dict[str, Any] | None:  # noqa: ARG002
        """Return the share that is "right", beside the share that labels find exact; None before any verdict."""
        judged = self._judged.values()
        if not judged:
            return None
        exact, wrong = ([one.right for one in judged if one.exact is is_exact] for is_exact in (True, False))
        found = VerdictStatus(
            given=self._given,
            right=_share([one.right for one in judged]),
            exact=exact_share(view.labels, min(one.routed_us for one in judged)),
            labelled=len(exact) + len(wrong),
            right_if_exact=_share(exact),
            right_if_wrong=_share(wrong),
        )
        return {"verdicts": found}


def _share(said: list[bool]) -> float | None:
    return float(np.mean(said)) if said else None
