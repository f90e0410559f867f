"""Decayed sums: what labels add up to, those of queries routed long ago weighing less.

A label counts half for every half-life of labels routed after it, or of queries for which these stand, so that what is
recent does not become old where few queries are labelled. All are weighed and added up at each refit, one by
one in the order of time, so that the order in which they came leaves no trace but among equal times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats, Ints
from recalibrator.fit.data.label_columns import (
    ERROR,
    GROUP,
    LABEL_PROBABILITY,
    LEAST_PROPENSITY,
    OUTCOMES,
    PAIR,
    ROUTED_US,
    STANDING,
)
from recalibrator.fit.data.label_table import LabelTable, Span, are_in

SLOW = slice(0, OUTCOMES)
SLOW_SQUARE, SLOW_SQUARE_PAIR = OUTCOMES, OUTCOMES + 1
FAST = slice(OUTCOMES + 2, 2 * OUTCOMES + 2)
FAST_SQUARE, FAST_QUERIES, MAP_LABELS, MAP_ERRORS = range(2 * OUTCOMES + 2, 2 * OUTCOMES + 6)
SUMS = 2 * OUTCOMES + 6
"""Rows of the sums: outcomes by the slow weights, the squares of these, and those of pairs alone; outcomes by the fast
weights, their squares, and the fast weights by inverse propensity; labels and errors by the weights of the map."""


class HalfLives(NamedTuple):
    """Of the outcome curves and of the map g, in labels; of what is recent, in queries."""

    slow: float
    fast: float
    map: float


@dataclass(frozen=True, slots=True)
class DecayedSums:
    """Sums over all contributions that count, those routed before a change separate from those since.

    Parameters
    ----------
    before, since : ndarray, shape (``SUMS``, groups)
        The newest label weighs 1. Before is None where nothing has changed.
    labels, pairs, fresh : int
        Contributions that count; of these, where both models ran; of these, those since the change.
    window_us : tuple of int or None
        First and last routing time of what counts.
    """

    before: Floats | None
    since: Floats
    labels: int
    pairs: int
    fresh: int
    window_us: tuple[int, int] | None


def decayed_sums(
    labels: LabelTable, half_lives: HalfLives, changed_us: int | None, spans: tuple[Span, ...] | None = None
) -> DecayedSums:
    """Return the sums by group of all that counts, older labels weighing less.

    Parameters
    ----------
    changed_us : int or None
        Labels of queries routed before then are added up apart.
    spans : tuple of Span, optional
        Labels of queries routed at other times are left out.
    """
    rows = labels.table.take(_counting_by_time(labels), axis=0)
    if spans is not None:
        rows = rows[are_in(rows[:, ROUTED_US], spans)]
    columns = np.ascontiguousarray(rows.T)
    routed_us, group = columns[ROUTED_US], columns[GROUP].astype(np.intp)
    newer, fast = _newer(routed_us, routed_us), _recency(routed_us, columns[LABEL_PROBABILITY], half_lives.fast)
    slow, of_map = (np.exp2(newer / -half_life) for half_life in (half_lives.slow, half_lives.map))
    worth = labels.worth(rows)
    values = _weighed(columns, worth * slow, worth * fast, worth * of_map)
    old = 0 if changed_us is None else int(np.searchsorted(routed_us, changed_us))
    before, since = np.empty((2, SUMS, labels.groups))
    for row, value in enumerate(values):
        before[row] = np.bincount(group[:old], value[:old], labels.groups)
        since[row] = np.bincount(group[old:], value[old:], labels.groups)
    return DecayedSums(
        before=None if changed_us is None else before,
        since=since,
        labels=len(rows),
        pairs=int(np.count_nonzero(columns[PAIR])),
        fresh=len(rows) - old,
        window_us=(int(routed_us[0]), int(routed_us[-1])) if len(rows) else None,
    )


def label_weights(labels: LabelTable, half_life: float) -> Floats:
    """Return the weight of each label: 1 for the newest, one half ``half_life`` queries before it, shape (labels,).

    What does not count weighs nothing.

    Parameters
    ----------
    half_life : float
        In queries.
    """
    order, weight = _counting_by_time(labels), np.zeros(len(labels.table))
    routed_us, probability = labels.table[order][:, (ROUTED_US, LABEL_PROBABILITY)].T
    weight[order] = _recency(routed_us, probability, half_life)
    return weight


def recent_weight(labels: LabelTable, since_us: float, half_life: float) -> Floats:
    """Return by group the decayed weight of what was routed since a time: of all that counts, and of pairs.

    Parameters
    ----------
    half_life : float
        In queries; the newest label weighs 1.
    """
    order = _counting_by_time(labels)
    times = labels.table[order, ROUTED_US]
    first = int(np.searchsorted(times, since_us))
    order, times = order[first:], times[first:]
    weight, pair = _recency(times, labels.table[order, LABEL_PROBABILITY], half_life), labels.table[order, PAIR]
    group = labels.table[order, GROUP].astype(np.intp)
    return np.stack([np.bincount(group, mass, labels.groups) for mass in (weight, weight * pair)])


def _counting_by_time(labels: LabelTable) -> Ints:
    """Return the labels that count by routing time, those of equal times as they came."""
    counting = np.flatnonzero(labels.table[:, STANDING] > 0.0)
    return counting[np.argsort(labels.table[counting, ROUTED_US], kind="stable")]


# For the curves age is counted in labels, not in time: what makes a label old is that others have come since. Of equal
# times all have the same age, so that the order in which they came changes no weight.
def _newer(times: Floats, routed_us: Floats) -> Ints:
    """Return how many of some ordered times lie after each of others: labels of equal times are equally old."""
    return len(times) - np.searchsorted(times, routed_us, side="right")


def _recency(times: Floats, probability: Floats, half_life: float) -> Floats:
    """Return the weight of labels in the order of time, one half for so many queries for which newer ones stand.

    A label stands for the inverse of its propensity. Counted in labels, what is recent would reach back the longer the
    fewer queries are labelled, and its mean would be as certain as ever.
    """
    stand_for = np.append(np.cumsum(1.0 / np.maximum(probability[::-1], LEAST_PROPENSITY))[::-1], 0.0)
    return np.asarray(np.exp2(stand_for[np.searchsorted(times, times, side="right")] / -half_life))


def _weighed(columns: Floats, slow: Floats, fast: Floats, of_map: Floats) -> Iterator[Floats]:
    """Yield what the sums are of, each of shape (labels,), in the order of their rows."""
    square = slow * slow
    yield from (outcome * slow for outcome in columns[:OUTCOMES])
    yield from (square, square * columns[PAIR])
    yield from (outcome * fast for outcome in columns[:OUTCOMES])
    yield from (fast * fast, fast / np.maximum(columns[LABEL_PROBABILITY], LEAST_PROPENSITY))
    yield from (of_map, of_map * columns[ERROR])
