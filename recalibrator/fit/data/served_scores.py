"""micro-F1 of the answers served, by groups of labelled queries, each with how well it is known.

micro-F1 of a group is a ratio of two weighted sums, R = Σ w a / Σ w d, with a = 2·TP, d = predicted + gold and w the
inverse propensity of the label. Its variance is Σ w² (a - R d)² / (Σ w d)²: linearised, as for a ratio of Horvitz and
Thompson's estimators (Särndal, Swensson and Wretman, 1992, "Model Assisted Survey Sampling", section 5.6).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Bools, Floats, Ints
from recalibrator.fit.data.decayed_sums import LEAST_PROPENSITY, label_weights
from recalibrator.fit.data.label_columns import LABEL_PROBABILITY, STANDING
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import interval
from schemas.status import SegmentScore
from schemas.traffic import SEGMENT

LEAST_LABELS = 50
"""Fewer say nothing of a group."""

_SHOWN_VALUES = 8


class GroupScores(NamedTuple):
    """Sums over the labels of each group, shape (groups,) each.

    Parameters
    ----------
    effective : ndarray
        Kish's number of labels: (Σ w)² / Σ w².
    hits, size : ndarray
        Σ w a and Σ w d.
    error : ndarray
        Standard error of their ratio.
    """

    effective: Floats
    hits: Floats
    size: Floats
    error: Floats

    @property
    def ratio(self) -> Floats:
        """micro-F1; 0 where nothing was predicted or to be found."""
        return self.hits / np.where(self.size > 0.0, self.size, 1.0)


def hits_and_size(labels: LabelTable) -> tuple[Floats, Floats]:
    """Return a and d of each label's answer as served, shape (labels,) each."""
    served = labels.per_field.sum(axis=1, dtype=np.float64)
    return 2.0 * served[:, 0], served[:, 1] + served[:, 2]


def inverse_propensity(labels: LabelTable, counting: Bools) -> Floats:
    """Return how many queries each label stands for; 0 for those that do not count."""
    return np.where(counting, 1.0 / np.maximum(labels.table[:, LABEL_PROBABILITY], LEAST_PROPENSITY), 0.0)


def group_scores(weight: Floats, hits: Floats, size: Floats, group: Ints, groups: int) -> GroupScores:
    """Return the scores of each group.

    Parameters
    ----------
    weight, hits, size : ndarray, shape (labels,)
        w, a and d.
    group : ndarray of int, shape (labels,)

    Examples
    --------
    >>> one = group_scores(np.ones(4), np.array([2.0, 2.0, 0.0, 2.0]), np.full(4, 2.0), np.array([0, 0, 1, 1]), 2)
    >>> one.ratio.tolist(), one.effective.tolist(), one.error.round(3).tolist()
    ([1.0, 0.5], [2.0, 2.0], [0.0, 0.354])
    """

    def summed(values: Floats) -> Floats:
        return np.bincount(group, weights=values, minlength=groups).astype(np.float64)

    square = weight * weight
    mass, squares = summed(weight), summed(square)
    above, below = summed(weight * hits), summed(weight * size)
    safe = np.where(below > 0.0, below, 1.0)
    residual = hits - (above / safe)[group] * size
    return GroupScores(
        effective=mass**2 / np.where(squares > 0.0, squares, 1.0),
        hits=above,
        size=below,
        error=np.sqrt(summed(square * residual * residual)) / safe,
    )


def served_per_segment(labels: LabelTable, half_life: float) -> tuple[SegmentScore, ...]:
    """Return micro-F1 of recent answers in each segment, the values with the most labels first.

    Parameters
    ----------
    half_life : float
        In labels. A value with fewer than 50 effective labels is left out.
    """
    columns = [name for name in labels.traits.names if name.startswith(SEGMENT)]
    if not columns:
        return ()
    counting = labels.table[:, STANDING] > 0.0
    weight = label_weights(labels, half_life) * inverse_propensity(labels, counting)
    hits, size = hits_and_size(labels)
    found: list[SegmentScore] = []
    for name in columns:
        column = labels.traits.column(name, len(labels))
        assert column is not None
        scores = group_scores(weight, hits, size, column.codes, len(column.categories) + 1)
        enough = (scores.effective >= LEAST_LABELS) & (scores.size > 0.0)
        order = [at for at in np.argsort(-scores.effective, kind="stable").tolist() if at and enough[at]]
        found += (
            SegmentScore(
                segment=name.removeprefix(SEGMENT),
                value=column.categories[at - 1],
                effective_labels=float(scores.effective[at]),
                micro_f1=interval(min(1.0, float(scores.ratio[at])), float(scores.error[at])),
            )
            for at in order[:_SHOWN_VALUES]
        )
    return tuple(found)
