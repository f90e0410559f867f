"""The installed package ``ucci-router`` on the stream: as released, and with theta re-selected on the same labels."""

from __future__ import annotations

import numpy as np
import ucci
from ucci.online import RecalibratingRouter

from research.recorded.simulate import Routed
from research.recorded.stream import EXPLORED, Floats, Outcomes
from research.recorded.tokens import NO_LEVERS
from research.recorded.windows import WINDOW_LABELS
from schemas.calibration import CalibrationMap


class Released:
    """Its ``RecalibratingRouter`` with the defaults: g is refitted on the last 5,000 labels, theta stays.

    Parameters
    ----------
    offline : Outcomes
        On which its ``UCCIRouter`` is calibrated and theta chosen, by micro-F1.
    target : float
    """

    exploration = 0.0
    levers = NO_LEVERS

    def __init__(self, offline: Outcomes, target: float) -> None:
        known = offline.take(np.flatnonzero(~np.isnan(offline.uncertainty)))
        router = ucci.UCCIRouter()
        router.calibrate(known.uncertainty, _errors(known))
        router.choose_threshold(known.uncertainty, None, None, target, metric=_metric(known))
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
    """The same, but after each refit theta is chosen anew on the labelled queries where both models ran.

    Parameters
    ----------
    offline : Outcomes
    target : float
    """

    exploration = EXPLORED

    def __init__(self, offline: Outcomes, target: float) -> None:
        super().__init__(offline, target)
        self._pairs = offline.take(np.flatnonzero(~np.isnan(offline.uncertainty))[-WINDOW_LABELS:])

    def learn(self, labelled: Routed) -> None:
        """Remember the pairs, then as released."""
        part = _with_uncertainty(labelled)
        both = part.outcomes.take(np.flatnonzero(part.above | part.explored))
        columns = (np.concatenate((getattr(self._pairs, n), getattr(both, n))) for n in Outcomes.__slots__)
        self._pairs = Outcomes(*(values[-WINDOW_LABELS:] for values in columns))
        super().learn(labelled)

    def _refitted(self) -> None:
        forecast = self._router.error_probability(self._pairs.uncertainty)
        try:
            choice = ucci.select_threshold(forecast, None, None, self._target, metric=_metric(self._pairs))
        except ucci.InfeasibleTargetError:
            self._router.theta = 0.0
        else:
            self._router.theta = choice.theta


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
