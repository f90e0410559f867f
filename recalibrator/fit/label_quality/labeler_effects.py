"""Whose labels differ from everybody else's: estimates each labeler's effect, and names those to set aside.

The score z of an answer, as one labels it, is modelled as additive: what is usual for queries like this one (their u,
whether both models agree, when they were routed), plus an effect of the labeler, plus noise. Effects are fitted by
weighted least squares, for the small model's score and for the large one's. The median of all labelers' effects counts
as right, one vote each however much they label, or that of trusted labelers where they have labelled enough. A labeler
whose effect lies many standard errors away is set aside; one whose effect is indistinguishable from noise moves
micro-F1 by less than that noise times their share of the labels. This is what bounds the influence of one labeler.

The model is that of Dawid and Skene (1979) reduced to what the fit uses: means of z rather than confusion matrices,
and queries related by strata, since most are labelled by one person only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Floats

Ints = NDArray[np.intp]

LEAST_LABELS = 30
"""Labels below which a labeler is neither judged nor part of the median."""

LEAST_LABELERS = 3
"""Of fewer, none is the odd one out."""

SET_ASIDE_BEYOND, BELIEVED_WITHIN = 4.5, 3.0
"""Standard errors; the lower bound keeps verdicts from flapping."""

MATERIAL = 0.02
"""Of micro-F1 as one labeler sees it. People differ a little in what they count as right, and with enough labels every
difference is significant; of a fifth of all labels, so much moves the estimate by .004."""


class ByLabeler(NamedTuple):
    """Labels of one score, shape (labels,) each.

    Parameters
    ----------
    labeler : ndarray of int
        Numbers from 0.
    stratum : ndarray of int
        Numbers from 0; queries of one stratum are alike.
    kind : ndarray of int
        Numbers from 0; the noise is estimated apart for each, since answers that agree are seldom wrong.
    score : ndarray
    """

    labeler: Ints
    stratum: Ints
    kind: Ints
    score: Floats


class Effects(NamedTuple):
    """What is known of each labeler's effect on a score.

    Parameters
    ----------
    effect : ndarray, shape (labelers,)
    covariance : ndarray, shape (labelers, labelers)
        With the noise of everybody's labels of a kind.
    labels : ndarray, shape (labelers,)
        The labels behind it.
    dispersion : ndarray, shape (labelers,)
        Mean squared distance of a labeler's scores from those of their strata, over the noise of their kinds.
    """

    effect: Floats
    covariance: Floats
    labels: Floats
    dispersion: Floats


class Deviation(NamedTuple):
    """How far labelers lie from what is right, and the standard error of that; shape (labelers,) each."""

    distance: Floats
    error: Floats

    @property
    def in_errors(self) -> Floats:
        """In standard errors, without sign."""
        ratios: Floats = np.abs(self.distance) / np.maximum(self.error, 1e-12)
        return ratios


def labeler_effects(labels: ByLabeler, labelers: int) -> Effects:
    """Fit score = stratum + labeler + noise by weighted least squares.

    Parameters
    ----------
    labels : ByLabeler
    labelers : int

    Returns
    -------
    Effects
        Centred: only differences between labelers mean anything.

    Examples
    --------
    >>> who, like = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> made = labeler_effects(ByLabeler(who, like, np.zeros(4, dtype=int), np.array([1.0, 5.0, 3.0, 7.0])), 2)
    >>> made.effect.round(6).tolist(), made.labels.tolist()
    ([-1.0, 1.0], [2.0, 2.0])
    """
    strata = int(labels.stratum.max(initial=-1)) + 1
    residual = _residual(labels, strata)
    weight = 1.0 / _noise(labels.kind, residual)[labels.kind]
    place = labels.labeler * strata + labels.stratum
    mass = np.bincount(place, weight, labelers * strata).reshape(labelers, strata)
    scores = np.bincount(place, weight * labels.score, labelers * strata).reshape(labelers, strata)
    whole = mass.sum(axis=0)
    share = np.divide(mass, whole, out=np.zeros_like(mass), where=whole > 0.0)
    normal = np.diag(mass.sum(axis=1)) - share @ mass.T
    covariance = np.linalg.pinv(normal, hermitian=True)
    effect: Floats = covariance @ (scores.sum(axis=1) - share @ scores.sum(axis=0))
    given = np.bincount(labels.labeler, minlength=labelers).astype(np.float64)
    squares = np.bincount(labels.labeler, weight * residual * residual, labelers)
    return Effects(effect, covariance, given, squares / np.maximum(given, 1.0))


def _residual(labels: ByLabeler, strata: int) -> Floats:
    """Return how far each score lies from the mean of its stratum."""
    counts = np.maximum(np.bincount(labels.stratum, minlength=strata), 1)
    means = np.bincount(labels.stratum, labels.score, strata) / counts
    residual: Floats = labels.score - means[labels.stratum]
    return residual


def _noise(kind: Ints, residual: Floats) -> Floats:
    """Return the variance of the score around the means of its strata, for each kind."""
    squares = np.bincount(kind, residual * residual)
    # A kind in which nobody has found an error yet is not free of noise.
    floor = 0.01 * max(float(squares.sum()) / max(len(residual), 1), 1e-6)
    noise: Floats = np.maximum(squares / np.maximum(np.bincount(kind), 1), floor)
    return noise


def deviations(effects: Effects, trusted: Collection[int] = ()) -> Deviation | None:
    """Compare each labeler with what is right.

    Parameters
    ----------
    effects : Effects
    trusted : collection of int
        Labelers who are right by definition.

    Returns
    -------
    Deviation or None
        None where it cannot be said what is right: with fewer than three labelers, none of them trusted. Labelers with
        fewer than 30 labels, and trusted ones, deviate by 0.
    """
    ample = effects.labels >= LEAST_LABELS
    by_word = np.array([number in trusted for number in range(len(ample))], dtype=bool)
    spread = np.diag(effects.covariance)
    if (ample & by_word).any():
        votes = effects.labels * (ample & by_word)
        share = votes / votes.sum()
        right, error = float(share @ effects.effect), float(share @ effects.covariance @ share)
    elif np.count_nonzero(ample) >= LEAST_LABELERS:
        right = float(np.median(effects.effect[ample]))
        # Of a median of so many normal values.
        error = 0.5 * np.pi * float(np.median(spread[ample])) / np.count_nonzero(ample)
    else:
        return None
    judged = ample & ~by_word
    # Errors are rare and large: three among thirty labels may be chance where everybody's noise calls them impossible.
    own = spread * np.maximum(effects.dispersion, 1.0)
    # Where nothing is uncertain, rounding leaves either a little below 0.
    return Deviation(np.where(judged, effects.effect - right, 0.0), np.sqrt(np.maximum(own + error, 0.0)))


def set_aside(deviation: Deviation, size: float, former: Collection[int]) -> frozenset[int]:
    """Return who is to be set aside.

    Parameters
    ----------
    deviation : Deviation
    size : float
        E[d], which makes micro-F1 of a score.
    former : collection of int
        Who is now.
    """
    distance, material = deviation.in_errors, np.abs(deviation.distance) >= MATERIAL * size
    stays = np.array([number in former for number in range(len(distance))], dtype=bool) & (distance > BELIEVED_WITHIN)
    return frozenset(np.flatnonzero(stays | (material & (distance > SET_ASIDE_BEYOND))).tolist())
