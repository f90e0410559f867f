"""The identity that turns a target on micro-F1 into a mean of scores, each from the counts of one answer.

With a = 2·TP and d = predicted + gold, micro-F1 of many answers is Σa / Σd, and
z = a - τ·d = 2(1-τ)·TP - τ·(FP+FN) has Σz ≥ 0 exactly when micro-F1 ≥ τ.
"""

from __future__ import annotations

import numpy as np

from recalibrator.fit.arrays import Floats


def score(hits: float, size: float, target: float) -> float:
    """Return z of one answer or of a sum of answers.

    Parameters
    ----------
    hits : float
        a = 2·TP, in pairs.
    size : float
        d = predicted + gold, in pairs.
    target : float
        τ, in (0, 1).

    Examples
    --------
    Two of three gold pairs found and one wrong pair given (TP 2, FP 1, FN 1), at a target of one half:

    >>> score(hits=4, size=6, target=0.5)
    1.0
    """
    return hits - target * size


def micro_f1(value: Floats, size: Floats, target: float) -> Floats:
    """Return micro-F1 from mean scores: τ + E[z] / E[d].

    Parameters
    ----------
    value, size : ndarray, equal shapes
        E[z] and E[d]; where d is 0 there is nothing to find, and the result is 1.
    target : float
        τ, in (0, 1).

    Examples
    --------
    >>> micro_f1(np.array([1.0]), np.array([6.0]), 0.5).round(4)
    array([0.6667])
    """
    safe = np.where(size > 0.0, size, 1.0)
    return np.where(size > 0.0, np.clip(target + value / safe, 0.0, 1.0), 1.0)
