"""The installed package ``ucci-router`` on the stream: as released, and with theta re-selected on the same labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ucci
from ucci.online import RecalibratingRouter

from research.recorded.simulate import Routed
from research.recorded.stream import EXPLORED, LABELLED_ESCALATED, LABELLED_KEPT, Floats, Mask, Outcomes
from research.recorded.tokens import NO_LEVERS
from schemas.calibration import CalibrationMap


class Released:
    """Its ``RecalibratingRouter`` with the defaults: g is refitted on the last 5,000 labels, theta stays.

    ``offline``: on which its ``UCCIRouter`` is calibrated and theta chosen, by micro-F1.
    """

    exploration = 0.0
    levers = NO_LEVERS

    def __init__(self, offline: Outcomes, target: float) -> None:
        known = offline.take(np.flatnonzero(~np.isnan(offline.uncertainty)))
        router = ucci.UCCIRouter()
        router.calibrate(known.uncertainty, _errors(known))
        try:
            router.choose_threshold(known.uncertainty, None, None, target, metric=_metric(known))
        except ucci.InfeasibleTargetError:
            router.theta = best_theta(np.asarray(router.error_probability(known.uncertainty)), _metric(known))
        self._target = target
        self._router = RecalibratingRouter.from_router(router)
        self.threshold = self._on_uncertainty()

    def see(self, routed: Routed) -> None:
        """Look at nothing."""

    def learn(self, labelled: Routed) -> None:
        """Hand the labels on; the package decides when to refit."""
        part = _with_uncertainty(labelled)
        if self._router.update(part.outcomes.uncertainty, _errors(part.outcomes)):
            self._refitted()
            self.threshold = self._on_uncertainty()

    def _refitted(self) -> None:
        """Leave theta as it is."""

    def _on_uncertainty(self) -> float:
        """Return the threshold on u that theta means under the map in force."""
        knots = self._router.calibrator.to_dict()
        knot_map = CalibrationMap(uncertainty=tuple(knots["x"]), error_probability=tuple(knots["y"]))
        return knot_map.inverse(self._router.theta)


class Reselected(Released):
    """The same, but after each refit theta is chosen anew on the latest labels, by inverse propensity.

    ``window``: labels remembered; the map keeps the package's own 5,000.
    """

    def __init__(self, offline: Outcomes, target: float, window: int = 1_000, exploration: float = EXPLORED) -> None:
        super().__init__(offline, target)
        self.exploration, self._window = exploration, window
        self._latest = offline.take(np.flatnonzero(~np.isnan(offline.uncertainty))[-window:])
        self._small_weight = np.full(len(self._latest), 1.0 / LABELLED_KEPT)
        self._large_weight = self._small_weight

    def learn(self, labelled: Routed) -> None:
        """Remember the labels, then as released."""
        part = _with_uncertainty(labelled)
        columns = (np.concatenate((getattr(self._latest, n), getattr(part.outcomes, n))) for n in Outcomes.__slots__)
        self._latest = Outcomes(*(values[-self._window :] for values in columns))
        small = 1.0 / np.where(part.above, LABELLED_ESCALATED, LABELLED_KEPT)
        seen = np.where(part.above, 1.0 / LABELLED_ESCALATED, part.explored / max(self.exploration, 1e-9))
        self._small_weight = np.concatenate((self._small_weight, small))[-self._window :]
        self._large_weight = np.concatenate((self._large_weight, seen))[-self._window :]
        super().learn(labelled)

    def _refitted(self) -> None:
        forecast, metric = self._router.error_probability(self._latest.uncertainty), self._micro_f1()
        try:
            self._router.theta = ucci.select_threshold(forecast, None, None, self._target, metric=metric).theta
        except ucci.InfeasibleTargetError:
            self._router.theta = best_theta(np.asarray(forecast), metric)

    def _micro_f1(self) -> Callable[[Mask], float]:
        """Return micro-F1 of what is served as a function of what escalates, each label by inverse propensity."""
        known, small, large = self._latest, self._small_weight, self._large_weight
        hits = 2.0 * small * known.small_hits, 2.0 * large * known.large_hits
        sizes = small * (known.small_named + known.gold), large * (known.large_named + known.gold)

        def metric(escalated: Mask) -> float:
            return float(np.where(escalated, *hits[::-1]).sum() / max(np.where(escalated, *sizes[::-1]).sum(), 1e-9))

        return metric


def best_theta(forecast: Floats, metric: Callable[[Mask], float]) -> float:
    """Return the theta of the highest micro-F1: the package leaves open what to serve where none meets the target."""
    grid = ucci.make_grid()
    return float(grid[int(np.argmax([metric(forecast > theta) for theta in grid]))])


def _with_uncertainty(labelled: Routed) -> Routed:
    return labelled.take(np.flatnonzero(~np.isnan(labelled.outcomes.uncertainty)))


def _errors(outcomes: Outcomes) -> Floats:
    return (~outcomes.exact).astype(np.float64)


def _metric(outcomes: Outcomes) -> ucci.RoutedMicroF1:
    counts = [
        np.column_stack((hits, named - hits, outcomes.gold - hits))
        for hits, named in (
            (outcomes.small_hits, outcomes.small_named),
            (outcomes.large_hits, outcomes.large_named),
        )
    ]
    return ucci.routed_micro_f1(*counts)
