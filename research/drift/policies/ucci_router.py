"""The package ``ucci-router`` as a policy: static as in the paper, recalibrating as released, and with θ re-selected.

As released, :class:`ucci.online.RecalibratingRouter` refits the map g on the latest labels and keeps θ. Its
documentation leaves re-selecting θ to the caller; the fair rival does so on the same labels as everybody, by the
package's own :func:`ucci.select_threshold`, with a metric that undoes the selection of labels by inverse propensity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from ucci import InfeasibleTargetError, UCCIRouter, routed_micro_f1, select_threshold
from ucci.online import RecalibratingRouter

from research.drift.mess import EXPLORED
from research.drift.oracle import LARGE_COST, TARGET
from research.drift.policies.memory import LabelMemory
from research.drift.simulate import Alarm, Bools, Labels, Traffic
from research.recorded.released import best_theta

Floats = NDArray[np.float64]

RESELECT_LABELS = 200


class Static:
    """The paper: one map and one θ from the labelled set, for ever; no exploration is paid for.

    ``margin``: added to the target.
    """

    def __init__(self, margin: float = 0.0) -> None:
        self.exploration, self.audit = 0.0, 0.0
        self.version = 1
        self.alarms: list[Alarm] = []
        self._target = TARGET + margin
        self._router: UCCIRouter | RecalibratingRouter = UCCIRouter(cost_model="sequential")

    def start(self, labels: Labels) -> None:
        """Calibrate, and choose θ on micro-F1, as section 6.1 of the paper does."""
        router = UCCIRouter(cost_model="sequential", c_large=LARGE_COST).calibrate(labels.u, labels.wrong)
        metric = routed_micro_f1(_counts(labels.small, labels.gold), _counts(labels.large, labels.gold))
        try:
            router.choose_threshold(labels.u, None, None, self._target, metric=metric)
        except InfeasibleTargetError:
            router.theta = best_theta(np.asarray(router.error_probability(labels.u)), metric)
        self._router = router

    def escalates(self, u: Floats) -> Bools:
        """Escalate g(u) > θ."""
        return np.asarray(self._router.escalate(u))

    def error_probability(self, u: Floats) -> Floats:
        """Return g(u)."""
        return np.asarray(self._router.error_probability(u))

    def on_traffic(self, traffic: Traffic) -> None:
        """Pay no heed."""

    def on_labels(self, labels: Labels) -> None:
        """Pay no heed."""


class AsReleased(Static):
    """``RecalibratingRouter`` with its defaults: the map moves with the labels, θ stays."""

    def start(self, labels: Labels) -> None:
        """Start from the paper's router."""
        super().start(labels)
        self._router = RecalibratingRouter.from_router(self._router)

    def on_labels(self, labels: Labels) -> None:
        """Refit as the package sees fit."""
        if isinstance(self._router, RecalibratingRouter):
            self.version += self._router.update(labels.u, labels.wrong)


class Reselected(AsReleased):
    """The fair rival: every 200 labels θ is selected anew on the latest; the map keeps the package's own 5,000.

    ``margin``: added to the target. ``window``: labels remembered.
    """

    def __init__(self, margin: float = 0.0, window: int = 1_000) -> None:
        super().__init__(margin)
        self.exploration, self.audit = EXPLORED, 0.0
        self._labels = LabelMemory(window)
        self._since_selected = 0

    def start(self, labels: Labels) -> None:
        """Start from the paper's router and remember the labelled set."""
        super().start(labels)
        self._labels.add(labels)

    def on_labels(self, labels: Labels) -> None:
        """Refit as the package sees fit, and select θ when it is time."""
        super().on_labels(labels)
        self._labels.add(labels)
        self._since_selected += len(labels.u)
        if self._since_selected >= RESELECT_LABELS:
            self._since_selected = 0
            self._select(self._labels.latest)

    def _select(self, labels: Labels) -> None:
        if not isinstance(self._router, RecalibratingRouter):
            return
        forecast = np.asarray(self._router.error_probability(labels.u))
        metric = weighted_micro_f1(labels)
        try:
            choice = select_threshold(
                forecast,
                None,
                None,
                self._target,
                c_large=LARGE_COST,
                metric=metric,
                cost_model="sequential",
            )
            self._router.theta = choice.theta
        except InfeasibleTargetError:
            self._router.theta = best_theta(forecast, metric)
        self.version += 1


def weighted_micro_f1(labels: Labels) -> Callable[[Bools], float]:
    """Return micro-F1 of the routed answers as a function of what escalates, each label by inverse propensity."""
    kept = 1.0 / labels.probability
    pairs = labels.large_ran / np.maximum(labels.pair_probability, 1e-3)
    small, large = kept * labels.small, pairs * labels.large
    small_gold, large_gold = kept * labels.gold, pairs * labels.gold

    def metric(escalated: Bools) -> float:
        hits = np.where(escalated, large, small).sum()
        return float(hits / np.where(escalated, large_gold, small_gold).sum())

    return metric


def _counts(hits: NDArray[np.int64], gold: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (TP, FP, FN) per query; each answer predicts as many pairs as there are gold ones."""
    return np.stack((hits, gold - hits, gold - hits), axis=1)
