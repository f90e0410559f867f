"""Prequential scores: every label is held against the version that routed its query, before any fit saw it.

In-sample, an isotonic map has no calibration error at all, so that nothing here ever looks at the current map.
"""

from __future__ import annotations

import numpy as np

from recalibrator.fit.data.decayed_sums import LEAST_PROPENSITY, label_weights
from recalibrator.fit.data.label_columns import ERROR, LABEL_PROBABILITY, LABELLED_US, ROUTED_US, STANDING, Standing
from recalibrator.fit.data.label_table import LabelTable
from schemas.calibration import Z95, Interval
from schemas.status import CalibrationError, DelayQuantiles, ReliabilityBin

_BINS = 10
_LEAST_LABELS = 20


def calibration_error(labels: LabelTable, half_life: float) -> CalibrationError:
    """Return expected calibration error and Brier score of recently routed queries, with 95 % intervals.

    Parameters
    ----------
    half_life : float
        In queries.

    Returns
    -------
    CalibrationError
        Labels are weighted by inverse propensity, so that the figures are those of all routed queries with u. Ten
        bins of equal mass; ECE is the mean over bins of |observed - predicted|. Empty below 20 labels.
    """
    table = labels.table
    # One pass over the rows, which lie far apart, instead of one a column.
    counts, predicted, propensity = np.ascontiguousarray(table[:, STANDING : LABEL_PROBABILITY + 1].T)
    scored = np.flatnonzero((counts > 0.0) & ~np.isnan(predicted))
    if len(scored) < _LEAST_LABELS:
        return CalibrationError()
    weight = label_weights(labels, half_life) / np.maximum(propensity, LEAST_PROPENSITY)
    order = scored[np.argsort(predicted[scored], kind="stable")]
    weight, predicted, error = (column.take(order) for column in (weight, predicted, table[:, ERROR].copy()))
    weight /= weight.sum()
    miss = error - predicted
    loss = np.square(miss)
    # Not by BLAS: beyond 10,000 labels it shares a sum among threads, whose number decides the last digit and which
    # cost twenty times what the sum does where other work has the processors.
    brier = float((weight * loss).sum())
    brier_error = float(np.sqrt(np.square(weight * (loss - brier)).sum()))
    # Sorted as they are, the bins are pieces; an empty one has no sum.
    bounds = np.searchsorted((np.cumsum(weight) - weight / 2.0) * _BINS, np.arange(_BINS + 1))
    bounds[-1] = len(weight)
    count = bounds[1:] - bounds[:-1]
    filled = np.flatnonzero(count)
    totals = np.zeros((5, _BINS))
    values = np.array((weight, weight * predicted, weight * error, np.square(weight * miss), np.square(weight)))
    totals[:, filled] = np.add.reduceat(values, bounds[filled], axis=1)
    mass, forecast, seen, variance, squares = totals
    bias = seen - forecast
    share_of_one = np.divide(squares, np.square(mass), out=np.zeros(_BINS), where=mass > 0.0)
    variance = np.maximum(variance - np.square(bias) * share_of_one, 0.0)
    ece, ece_error = float(np.abs(bias).sum()), float(np.sqrt(variance.sum()))
    bins = tuple(
        ReliabilityBin(predicted=_unit(f / m), observed=_unit(s / m), count=int(c))
        for m, f, s, c in zip(mass, forecast, seen, count, strict=True)
        if m > 0.0
    )
    return CalibrationError(ece=interval(ece, ece_error), brier=interval(brier, brier_error), bins=bins)


def interval(estimate: float, error: float) -> Interval:
    """Return the 95 % interval of a share by its standard error, cut to [0, 1]."""
    low, high = max(0.0, estimate - Z95 * error), min(1.0, estimate + Z95 * error)
    return Interval(estimate=estimate, lower=low, upper=high)


def _unit(value: float) -> float:
    return float(min(1.0, max(0.0, value)))


def label_delay(labels: LabelTable) -> DelayQuantiles:
    """Return the median and the 90th percentile of the time from routing to label, in seconds."""
    table = labels.table
    # Examples of an offline file carry one time twice; they have waited for nobody.
    delay = (table[:, LABELLED_US] - table[:, ROUTED_US])[table[:, STANDING] != Standing.WITHDRAWN] / 1e6
    delay = delay[delay > 0.0]
    if not len(delay):
        return DelayQuantiles()
    p50, p90 = np.quantile(delay, (0.5, 0.9))
    return DelayQuantiles(p50=float(p50), p90=float(p90))


def served_per_field(labels: LabelTable, half_life: float) -> dict[str, float]:
    """Return micro-F1 of the served answers in each field over recent labels, by inverse propensity.

    A field in which nothing was predicted and nothing was to be found is left out.
    """
    weight = label_weights(labels, half_life) / np.maximum(labels.table[:, LABEL_PROBABILITY], LEAST_PROPENSITY)
    counts = np.einsum("n,nfk->fk", weight, labels.per_field.astype(np.float64))
    return {
        name: _unit(2.0 * float(hits) / float(predicted + gold))
        for name, (hits, predicted, gold) in zip(labels.fields, counts, strict=True)
        if predicted + gold > 0.0
    }
