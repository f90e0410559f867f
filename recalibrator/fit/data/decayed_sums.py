"""Decayed sums: what labels add up to, those of queries routed long ago weighing less.

A label counts half for every half-life of labels routed after it, or of queries for which these stand, so that what is
recent does not become old where few queries are labelled. All are weighed and added up at each refit, one by
one in the order of time, so that the order in which they came leaves no trace but among equal times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from recalibrator.fit.codec import Floats
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_columns import LEAST_PROPENSITY, OUTCOMES
from recalibrator.fit.data.label_table import LabelTable, Span, are_in
from recalibrator.fit.method_constants import MethodConstants

SLOW = slice(0, OUTCOMES)
SLOW_SQUARE, SLOW_SQUARE_PAIR = OUTCOMES, OUTCOMES + 1
FAST = slice(OUTCOMES + 2, 2 * OUTCOMES + 2)
FAST_SQUARE, FAST_QUERIES = 2 * OUTCOMES + 2, 2 * OUTCOMES + 3
SUMS = 2 * OUTCOMES + 4
"""Rows of the sums: outcomes by the slow weights, the squares of these, and those of pairs alone; outcomes by the fast
weights, their squares, and the fast weights by inverse propensity."""


@dataclass(frozen=True, slots=True)
class DecayedSums:
    """Sums over all contributions that count, those routed before a change separate from those since."""

    #: ``before`` and ``since``, shape (``SUMS``, groups): the newest label weighs 1. Before is None where nothing has
    #: changed.
    before: Floats | None
    since: Floats
    #: Shape (2, groups): fast weights of those that the current traffic has brought: of all, and of pairs.
    current: Floats
    #: ``labels``, ``pairs`` and ``fresh``: contributions that count; of these, where both models ran; of these, those
    #: since the change.
    labels: int
    pairs: int
    fresh: int
    #: First and last routing time of what counts.
    window_us: tuple[int, int] | None


def decayed_sums(
    labels: LabelTable,
    constants: MethodConstants,
    changed_us: int | None,
    spans: tuple[Span, ...] | None = None,
    current_us: float = inf,
) -> DecayedSums:
    """Return the sums by group of all that counts, older labels weighing less.

    Labels of queries routed before ``changed_us`` are added up apart, those of queries routed outside ``spans`` are
    left out. The current traffic began at ``current_us``.
    """
    _, columns = labels.by_time()
    if spans is not None:
        columns = np.compress(are_in(columns[at.ROUTED_US], spans), columns, axis=1)
    routed_us, group = columns[at.ROUTED_US], columns[at.GROUP].astype(np.intp)
    # For the curves age is counted in labels, not in time: what makes a label old is that others have come since. Of
    # equal times all have the same age, so that the order in which they came changes no weight.
    newer = len(routed_us) - np.searchsorted(routed_us, routed_us, side="right")
    slow = np.exp2(newer / -constants.half_life_slow)
    fast = _recency(columns, constants.half_life_fast)
    worth = labels.worth(columns.T)
    values = _weighed(columns, worth * slow, worth * fast)
    old = 0 if changed_us is None else int(np.searchsorted(routed_us, changed_us))
    before, since = np.empty((2, SUMS, labels.groups))
    for row, value in enumerate(values):
        before[row] = np.bincount(group[:old], value[:old], labels.groups)
        since[row] = np.bincount(group[old:], value[old:], labels.groups)
    latest = slice(int(np.searchsorted(routed_us, current_us)), None)
    current = (fast[latest], fast[latest] * columns[at.PAIR, latest])
    return DecayedSums(
        before=None if changed_us is None else before,
        since=since,
        current=np.array([np.bincount(group[latest], weight, labels.groups) for weight in current]),
        labels=len(group),
        pairs=int(np.count_nonzero(columns[at.PAIR])),
        fresh=len(group) - old,
        window_us=(int(routed_us[0]), int(routed_us[-1])) if len(group) else None,
    )


def label_weights(labels: LabelTable, half_life: float) -> Floats:
    """Return the weight of each label, shape (labels,): 1 for the newest, one half ``half_life`` queries before it.

    What does not count weighs nothing.
    """
    order, columns = labels.by_time()
    weight = np.zeros(len(labels))
    weight[order] = _recency(columns, half_life)
    return weight


def _recency(columns: Floats, half_life: float) -> Floats:
    """Return the weight of labels in the order of time, one half for so many queries for which newer ones stand.

    A label stands for the inverse of its propensity. Counted in labels, what is recent would reach back the longer the
    fewer queries are labelled, and its mean would be as certain as ever.
    """
    times, probability = columns[at.ROUTED_US], columns[at.LABEL_PROBABILITY]
    stand_for = np.append(np.cumsum(1.0 / np.maximum(probability[::-1], LEAST_PROPENSITY))[::-1], 0.0)
    return np.asarray(np.exp2(stand_for[np.searchsorted(times, times, side="right")] / -half_life))


def _weighed(columns: Floats, slow: Floats, fast: Floats) -> Iterator[Floats]:
    """Yield what the sums are of, each of shape (labels,), in the order of their rows."""
    square = slow * slow
    yield from (outcome * slow for outcome in columns[:OUTCOMES])
    yield from (square, square * columns[at.PAIR])
    yield from (outcome * fast for outcome in columns[:OUTCOMES])
    yield from (fast * fast, fast / np.maximum(columns[at.LABEL_PROBABILITY], LEAST_PROPENSITY))
