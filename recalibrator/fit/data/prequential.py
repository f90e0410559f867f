"""Prequential scores: every label is held against the version that routed its query, before any fit saw it.

In-sample, an isotonic map has no calibration error at all, so that nothing here ever looks at the current map.
"""

from __future__ import annotations

import numpy as np

from recalibrator.fit.codec import Floats, Ints
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.decayed_sums import label_weights
from recalibrator.fit.data.label_columns import LEAST_PROPENSITY, Standing
from recalibrator.fit.data.label_table import LabelTable
from schemas.calibration import Z95, Interval
from schemas.status import CalibrationError, DelayQuantiles, ReliabilityBin

_BINS = 10
_LEAST_LABELS = 20
#: Labels of one labeler that are shown apart.
_LATEST = 100
_LATEST_DELAYS = 1_000
#: Labelled pairs among which a change of the large model is looked for, on either side of it, and its standard errors.
_PAIRS, _PAIRS_LEAST, _BEYOND = 2_000, 30, 4.5
#: Mean size of a standard normal.
_FOLDED = float(np.sqrt(2.0 / np.pi))
_TINY = 1e-12
#: Ranges of u.
_STRATA = 20


def calibration_error(labels: LabelTable, half_life: float) -> CalibrationError:
    """Return expected calibration error and Brier score of recently routed queries, with 95% intervals.

    Labels are weighted by inverse propensity, so that the figures are those of all routed queries with u, and by a half
    life in queries. Ten bins of equal mass; ECE is the mean over bins of |observed - predicted|, less what noise alone
    adds to it. Empty below 20 labels.
    """
    table = labels.table
    # One pass over the rows, which are far apart in memory, instead of one per column.
    counts, predicted, propensity = np.ascontiguousarray(table[:, at.STANDING : at.LABEL_PROBABILITY + 1].T)
    scored = np.flatnonzero((counts > 0.0) & ~np.isnan(predicted))
    if len(scored) < _LEAST_LABELS:
        return CalibrationError()
    weight = label_weights(labels, half_life) / np.maximum(propensity, LEAST_PROPENSITY)
    order = scored[np.argsort(predicted[scored], kind="stable")]
    weight, predicted, error = (column.take(order) for column in (weight, predicted, table[:, at.ERROR].copy()))
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
    totals = np.zeros((6, _BINS))
    squared = np.square(weight)
    values = np.array(
        (weight, weight * predicted, weight * error, squared * loss, squared, squared * predicted * (1.0 - predicted))
    )
    totals[:, filled] = np.add.reduceat(values, bounds[filled], axis=1)
    mass, forecast, seen, variance, squares, expected = totals
    bias = seen - forecast
    share_of_one = np.divide(squares, np.square(mass), out=np.zeros(_BINS), where=mass > 0.0)
    # Two labels in a bin may agree by chance: their noise is at least what the map predicts.
    variance = np.maximum(variance - np.square(bias) * share_of_one, expected)
    bins = tuple(
        ReliabilityBin(predicted=_unit(f / m), observed=_unit(s / m), count=int(c))
        for m, f, s, c in zip(mass, forecast, seen, count, strict=True)
        if m > 0.0
    )
    low, high = _unit(brier - Z95 * brier_error), _unit(brier + Z95 * brier_error)
    score = Interval(estimate=brier, lower=low, upper=high)
    return CalibrationError(ece=_sum_of_sizes(bias, np.sqrt(variance)), brier=score, bins=bins)


def _sum_of_sizes(found: Floats, error: Floats) -> Interval:
    """Return the sum of the sizes of normal means, debiased, with an interval that covers where all of them are 0.

    The sum of |found| is too large by the mean of each folded normal above its own. That excess is largest at 0, so
    that it is taken one standard error nearer to 0 than was found, and only off the lower bound: the upper one needs no
    more than the noise of the sum.
    """
    # A process without the fit has no scipy.
    from scipy.special import ndtr

    raw, noise = float(np.abs(found).sum()), Z95 * float(np.sqrt(np.square(error).sum()))
    near = np.maximum(np.abs(found) / np.maximum(error, _TINY) - 1.0, 0.0)
    folded = _FOLDED * np.exp(-np.square(near) / 2.0) - 2.0 * near * ndtr(-near)
    excess = float((error * folded).sum())
    estimate = float(np.sqrt(np.maximum(np.square(found) - np.square(error), 0.0)).sum())
    lower = max(0.0, raw - excess - noise)
    return Interval(estimate=min(1.0, max(estimate, lower)), lower=lower, upper=min(1.0, raw + noise))


def _unit(value: float) -> float:
    return float(min(1.0, max(0.0, value)))


def label_delay(labels: LabelTable) -> DelayQuantiles:
    """Return the median and the 90th percentile of the time from routing to label, in seconds, of the latest labels."""
    table = labels.table[-_LATEST_DELAYS:]
    # Examples of an offline file carry one time twice; they have waited for nobody.
    delay = (table[:, at.LABELLED_US] - table[:, at.ROUTED_US])[table[:, at.STANDING] != Standing.WITHDRAWN] / 1e6
    delay = delay[delay > 0.0]
    if not len(delay):
        return DelayQuantiles()
    p50, p90 = np.quantile(delay, (0.5, 0.9))
    return DelayQuantiles(p50=float(p50), p90=float(p90))


def served_per_field(labels: LabelTable, half_life: float) -> dict[str, float]:
    """Return micro-F1 of the served answers in each field over recent labels, by inverse propensity.

    A field in which nothing was predicted and nothing was to be found is left out.
    """
    asked, small, large = labels.table[:, [at.LABEL_PROBABILITY, at.SERVED_SMALL, at.SERVED_LARGE]].T
    asked = np.maximum(asked, LEAST_PROPENSITY)
    # Here the served answer alone is known. Of kept queries those that explore are labelled by the same draw, so that
    # the others are labelled less often than all of them.
    explored = np.maximum(1.0 - small * asked, 0.0)
    others = asked * small / np.where(explored < asked, asked - explored, 1.0)
    weight = label_weights(labels, half_life) * np.where(labels.table[:, at.PAIR] > 0.0, large, others)
    counts = np.einsum("n,nfk->fk", weight, labels.per_field.astype(np.float64))
    return {
        name: _unit(2.0 * float(hits) / float(predicted + gold))
        for name, (hits, predicted, gold) in zip(labels.fields, counts, strict=True)
        if predicted + gold > 0.0
    }


def latest_by_labeler(labels: LabelTable) -> dict[str, list[int]]:
    """Return, of each labeler's latest 100 labels, how many agree with both models where these agree, and of how many.

    A mean over all that somebody ever said hides for weeks that it is worthless now.
    """
    table, cells = labels.table, labels.grid.cells
    found: dict[str, list[int]] = {}
    for number, name in enumerate(labels.labelers, 1):
        theirs = table[(table[:, at.LABELER] == number) & (table[:, at.STANDING] != Standing.WITHDRAWN)]
        latest = theirs[np.argsort(theirs[:, at.LABELLED_US], kind="stable")[-_LATEST:]]
        is_agreed = (latest[:, at.GROUP] >= 2 * cells) & (latest[:, at.GROUP] < labels.groups - 1)
        found[name] = [int((latest[is_agreed, at.ERROR] == 0.0).sum()), int(is_agreed.sum())]
    return found


def large_worse_since(labels: LabelTable) -> int | None:
    """Return when labels began to call more of the large model's answers wrong, by routing time; None where chance may.

    Where the answers differ anyway, agreement does not show that it got worse, and the small model's errors stay. By
    the test of Mantel and Haenszel, over ranges of u: a threshold that moves is no change of the model.
    """
    pairs = np.flatnonzero((labels.table[:, at.STANDING] > 0.0) & (labels.table[:, at.PAIR] > 0.0))
    rows = labels.table[pairs[np.argsort(labels.table[pairs, at.ROUTED_US], kind="stable")[-_PAIRS:]]]
    if len(rows) < 2 * _PAIRS_LEAST:
        return None
    is_wrong = (rows[:, at.HITS_LARGE] != rows[:, at.SIZE_LARGE])[:, None]
    of_range = _ranges(rows[:, at.GROUP] % labels.grid.cells)[:, None] == np.arange(_STRATA)
    before, wrong = np.cumsum(of_range, axis=0), np.cumsum(of_range & is_wrong, axis=0)
    count, errors = before[-1], wrong[-1]
    after = (count - before)[_PAIRS_LEAST - 1 : -_PAIRS_LEAST]
    share = errors / np.maximum(count, 1)
    more = (errors - wrong[_PAIRS_LEAST - 1 : -_PAIRS_LEAST] - after * share).sum(axis=1)
    variance = (after * share * (1.0 - share) * (count - after) / np.maximum(count - 1, 1)).sum(axis=1)
    surprise = more / np.sqrt(np.maximum(variance, _TINY))
    best = int(np.argmax(surprise))
    return int(rows[best + _PAIRS_LEAST, at.ROUTED_US]) if surprise[best] > _BEYOND else None


def _ranges(cell: Floats) -> Ints:
    """Return the range of u of each query, such that as many lie in each."""
    edges = np.quantile(cell, np.arange(1, _STRATA) / _STRATA) if len(cell) else cell
    return np.asarray(np.searchsorted(edges, cell, side="right"))


def wrong_around(labels: LabelTable, instant_us: int) -> dict[str, list[float | int]]:
    """Return, by model, the share of labelled answers that are wrong before a change, their number, and both since.

    Answers count by inverse label probability. Of the large model, which is asked where the small one is unsure, those
    before are weighted to the u of those since: a threshold that has moved since is no change of the model.
    """
    table = labels.table[labels.table[:, at.STANDING] > 0.0]
    wrong = np.where(table[:, at.HITS_LARGE] != table[:, at.SIZE_LARGE], 1.0, 0.0)
    pair, stratum = table[:, at.PAIR] > 0.0, np.zeros(len(table), dtype=np.intp)
    stratum[pair] = _ranges(table[pair, at.GROUP] % labels.grid.cells)
    weight = 1.0 / np.maximum(table[:, at.LABEL_PROBABILITY], LEAST_PROPENSITY)
    since = table[:, at.ROUTED_US] >= instant_us
    found: dict[str, list[float | int]] = {}
    for name, error, rows, strata in (
        ("small", table[:, at.ERROR], np.ones_like(pair), np.zeros_like(stratum)),
        ("large", wrong, pair, stratum),
    ):
        before, after = rows & ~since, rows & since
        had = np.bincount(strata[before], weight[before], _STRATA)
        share = np.bincount(strata[before], (weight * error)[before], _STRATA) / np.maximum(had, _TINY)
        mix = np.where(had > 0.0, np.bincount(strata[after], weight[after], _STRATA), 0.0)
        shares = (
            float(mix @ share / max(float(mix.sum()), _TINY)),
            float(weight[after] @ error[after] / max(float(weight[after].sum()), _TINY)),
        )
        found[name] = [round(shares[0], 4), int(before.sum()), round(shares[1], 4), int(after.sum())]
    return found
