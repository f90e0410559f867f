"""What the agreement of both models says: the tilt, and how often the small answer is wrong given agreement.

Agreement is free, undelayed and known wherever both models ran. Curves given agreement change slowly, so that a
change of agreement shifts the outcome curves at once, long before labels show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Floats
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.decayed_sums import SLOW, SLOW_SQUARE
from recalibrator.fit.estimate.calibration_map import line_basis, newton_step
from recalibrator.fit.estimate.outcome_curves import Smoothed, cell_sums
from recalibrator.fit.estimate.smoothing import Family, shrunk_local_linear
from recalibrator.fit.method_constants import MethodConstants

_NEWTON_STEPS = 6
_SETTLED = 1e-9
"""The covariance is that before the last step."""
_OF_SMALL = np.array((0, 1, 4))
_LEAST_BLAME = 0.5
"""A cell whose disagreements are mostly the large model's fault says too little to be scaled up further."""
_LEAST_ERROR = 0.005


@dataclass(frozen=True, slots=True)
class Tilt:
    """Two parameters on the logit of P(agree | u): level, and slope over the standardised logit of u."""

    level: float
    slope: float
    #: Shape (2, 2): of both, given the labelled pairs.
    covariance: Floats


@dataclass(frozen=True, slots=True)
class Shift:
    """What the tilt adds to each curve: to ``value`` and ``size`` of small and large, (2, cells), else (cells,).

    ``jacobian`` is of the values, shape (2, 2, cells): by model, and by level and slope. ``error_given`` is no shift,
    but the two curves between which the error is mixed: P(error | u, the answers differ), and where they are equal.
    ``bounds`` are the least and the greatest P(agree | u) that count as expected, (2, cells): agreement is cut to where
    its logit is finite, and labels that show less or more of it do not contradict what was cut.
    """

    value: Floats
    size: Floats
    error: Floats
    agreement: Floats
    bounds: Floats
    error_given: Floats
    jacobian: Floats


def fit_tilt(base: Floats, pairs: Floats, agreeing: Floats, place: Floats, ridge: float) -> Tilt:
    """Fit a ridge-penalised logistic regression on two parameters with the labelled curve as offset, by Newton steps.

    All of shape (cells,): ``base`` is P(agree | u) behind the labels, inside (0, 1); ``pairs`` and ``agreeing`` are
    unlabelled recent pairs and those that agree; ``place`` is the standardised logit of u. ``ridge`` is the penalty per
    squared unit of logit; in effect a number of agreeing pairs.

    Examples
    --------
    >>> base, place = np.full(3, 0.5), np.array([-1.0, 0.0, 1.0])
    >>> fit_tilt(base, np.full(3, 100.0), np.full(3, 50.0), place, 1.0).level
    0.0
    """
    filled = np.flatnonzero(pairs)
    basis, known, count, hits = line_basis(place[filled]), base[filled], pairs[filled], agreeing[filled]
    against = np.log((1.0 - known) / known)
    level = slope = 0.0
    covariance = (1.0 / ridge, 0.0, 1.0 / ridge)
    for _ in range(_NEWTON_STEPS):
        chance = 1.0 / (1.0 + np.exp(against - (level + slope * basis[1])))
        pull = (ridge * level, ridge * slope)
        (up, lean), covariance = newton_step(basis, count, hits, chance, (ridge, ridge), pull)
        level, slope = min(max(level + up, -4.0), 4.0), min(max(slope + lean, -4.0), 4.0)
        if abs(up) < _SETTLED and abs(lean) < _SETTLED:
            break
    return Tilt(level, slope, np.array((covariance[:2], covariance[1:])))


def shift_by(
    tilt: Tilt, base: Floats, place: Floats, smoothed: Smoothed, target: float, *, unlabelled: float = 0.0
) -> Shift:
    """Return what moving P(agree | u) from ``base`` by ``tilt`` does to each curve.

    E[· | u] changes by (A_now - A_labelled) · (E[· | u, agree] - E[· | u, disagree]): new disagreements are as often
    the small model's fault as those that labels know. Where no label can say so, the small model is to blame for all
    of them: what is unknown is read on the safe side. ``unlabelled`` is the share of the labels that the current
    traffic should have and has not, in [0, 1].
    """
    apart, alike = smoothed.related
    gap = alike - apart if smoothed.is_related else np.zeros_like(apart)
    logits = tilt.level + tilt.slope * place
    now = 1.0 / (1.0 + np.exp(np.log((1.0 - base) / base) - logits))
    shown = np.minimum(np.maximum(smoothed.agreement, 0.0), 1.0)
    uncut = np.where(shown == base, now, multiply_odds(shown, np.exp(logits)))
    moved = (now - base) * gap
    error_given = smoothed.related[:, 4]
    jacobian = np.empty((2, 2, len(place)))
    np.multiply(now * (1.0 - now), gap[0:4:2] - target * gap[1:4:2], out=jacobian[:, 0])
    if unlabelled > 0.0:
        blame = 1.0 + (unlabelled * (now < base)) * (1.0 / np.clip(error_given[0], _LEAST_BLAME, 1.0) - 1.0)
        moved[_OF_SMALL] *= blame
        jacobian[0, 0] *= blame
    np.multiply(jacobian[:, 0], place, out=jacobian[:, 1])
    return Shift(
        value=moved[0:4:2] - target * moved[1:4:2],
        size=moved[1:4:2],
        error=moved[4],
        agreement=now,
        bounds=np.array((np.minimum(now, uncut), np.maximum(now, uncut))),
        error_given=error_given,
        jacobian=jacobian,
    )


def error_given_agreement(groups: Floats, constants: MethodConstants) -> Floats:
    """Return P(the small answer is wrong | u, the answers differ), and the same where they are equal, by labels.

    Shape (2, cells): in [0.005, 0.995].
    """
    sums = cell_sums(groups[SLOW], groups[SLOW_SQUARE])
    related, width, wide = sums.by_relation[1:], constants.related_bandwidth_cells, constants.wide_bandwidth_cells
    family = Family(width, related[:, :, at.PAIR], sums.square[1:], related[:, :, at.ERROR], np.arange(2))
    return inside(shrunk_local_linear((family,), wide, constants.shrink_labels)[0].curves)


def inside(chance: Floats) -> Floats:
    """Return chances clipped to [0.005, 0.995]: what was never seen is not impossible."""
    clipped: Floats = np.minimum(np.maximum(chance, _LEAST_ERROR), 1.0 - _LEAST_ERROR)
    return clipped


def multiply_odds(chance: Floats, factor: float | Floats) -> Floats:
    """Return chances whose odds are multiplied.

    Examples
    --------
    >>> multiply_odds(np.array([0.5, 0.2]), np.array([1.0, 4.0])).tolist()
    [0.5, 0.5]
    """
    scaled = chance * factor
    moved: Floats = scaled / (1.0 - chance + scaled)
    return moved


class Chances(NamedTuple):
    """P(error) of each label when the odds of some errors are multiplied: rest + weight · that of these errors."""

    #: P(an error outside the kind of queries whose errors are multiplied).
    rest: Floats
    #: P(the query is of that kind): 1 where it is known to be, else by P(agree | u).
    weight: Floats
    #: P(error | that kind), inside (0, 1).
    error: Floats

    def at(self, log_odds: float | Floats) -> Floats:
        """Return P(error)."""
        odds = self.error * np.exp(log_odds)
        return np.asarray(self.rest + self.weight * odds / (1.0 - self.error + odds))
