"""Prequential scores: every label is held against the version that routed its query, before any fit saw it.

The columns of the label window flow in; calibration error, Brier score and realised quality flow out. In-sample, an
isotonic map has no calibration error at all, so that nothing here ever looks at the current map.
"""

from __future__ import annotations

import numpy as np

from recalibrator.fit.data.decayed_sums import LEAST_PROPENSITY
from recalibrator.fit.data.label_table import LabelWindow, weights
from recalibrator.fit.data.table import (
    COUNTS,
    ERROR,
    LABEL_PROBABILITY,
    LABELLED_US,
    ROUTED_US,
    WITHDRAWN,
)
from schemas.calibration import Interval
from schemas.status import CalibrationError, DelayQuantiles, ReliabilityBin

_Z95 = 1.959963984540054
_BINS = 10
_LEAST_LABELS = 20


def calibration_error(window: LabelWindow, half_life: float) -> CalibrationError:
    """Return expected calibration error and Brier score of recently routed queries, with 95 % intervals.

    Parameters
    ----------
    window : LabelWindow
    half_life : float
        In labels.

    Returns
    -------
    CalibrationError
        Labels are weighted by inverse propensity, so that the figures are those of all routed queries with u. Ten
        bins of equal mass; ECE is the mean over bins of |observed - predicted|. Empty below 20 labels.
    """
    # One pass over the rows, which lie far apart, instead of one a column.
    counts, predicted, propensity = np.ascontiguousarray(window.table[:, COUNTS : LABEL_PROBABILITY + 1].T)
    scored = (counts > 0.0) & ~np.isnan(predicted)
    if np.count_nonzero(scored) < _LEAST_LABELS:
        return CalibrationError()
    weight = weights(window.newer(), scored, half_life) / np.maximum(propensity, LEAST_PROPENSITY)
    order = window.by_prediction()
    if not scored.all():
        order = order[scored[order]]
    weight, predicted, error = (column.take(order) for column in (weight, predicted, window.table[:, ERROR].copy()))
    weight /= weight.sum()
    miss = error - predicted
    loss = np.square(miss)
    brier = float(weight @ loss)
    brier_error = float(np.linalg.norm(weight * (loss - brier)))
    # Sorted as they are, the bins are pieces; an empty one has no sum.
    bounds = np.searchsorted((np.cumsum(weight) - weight / 2.0) * _BINS, np.arange(_BINS + 1))
    bounds[-1] = len(weight)
    count = bounds[1:] - bounds[:-1]
    filled = np.flatnonzero(count)
    sums = np.zeros((5, _BINS))
    values = np.array((weight, weight * predicted, weight * error, np.square(weight * miss), np.square(weight)))
    sums[:, filled] = np.add.reduceat(values, bounds[filled], axis=1)
    mass, forecast, seen, variance, squares = sums
    bias = seen - forecast
    share_of_one = np.divide(squares, np.square(mass), out=np.zeros(_BINS), where=mass > 0.0)
    variance = np.maximum(variance - np.square(bias) * share_of_one, 0.0)
    ece, ece_error = float(np.abs(bias).sum()), float(np.sqrt(variance.sum()))
    bins = tuple(
        ReliabilityBin(predicted=_unit(f / m), observed=_unit(s / m), count=int(c))
        for m, f, s, c in zip(mass, forecast, seen, count, strict=True)
        if m > 0.0
    )
    return CalibrationError(ece=_interval(ece, ece_error), brier=_interval(brier, brier_error), bins=bins)


def _interval(estimate: float, error: float) -> Interval:
    low, high = max(0.0, estimate - _Z95 * error), min(1.0, estimate + _Z95 * error)
    return Interval(estimate=estimate, lower=low, upper=high)


def _unit(value: float) -> float:
    return float(min(1.0, max(0.0, value)))


def label_delay(window: LabelWindow) -> DelayQuantiles:
    """Return the median and the 90th percentile of the time from routing to label, in seconds."""
    table = window.table
    # Examples of an offline file carry one time twice; they have waited for nobody.
    delay = (table[:, LABELLED_US] - table[:, ROUTED_US])[table[:, COUNTS] != WITHDRAWN] / 1e6
    delay = delay[delay > 0.0]
    if not len(delay):
        return DelayQuantiles()
    p50, p90 = np.quantile(delay, (0.5, 0.9))
    return DelayQuantiles(p50=float(p50), p90=float(p90))


def served_per_field(window: LabelWindow, half_life: float) -> dict[str, float]:
    """Return micro-F1 of the served answers in each field over recent labels, by inverse propensity.

    A field in which nothing was predicted and nothing was to be found is left out.
    """
    table = window.table
    counting = table[:, COUNTS] > 0.0
    weight = weights(window.newer(), counting, half_life) / np.maximum(table[:, LABEL_PROBABILITY], LEAST_PROPENSITY)
    sums = np.einsum("n,nfk->fk", weight, window.per_field.astype(np.float64))
    return {
        name: _unit(2.0 * float(hits) / float(predicted + gold))
        for name, (hits, predicted, gold) in zip(window.fields, sums, strict=True)
        if predicted + gold > 0.0
    }
