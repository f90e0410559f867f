"""The rectifier: what recent labels say, how far they are believed, and what remains unknown without them."""

from __future__ import annotations

import numpy as np
import pytest

from recalibrator.fit.data.label_columns import HITS_SMALL, ONE, OUTCOMES, SIZE_SMALL, SQUARE_SMALL
from recalibrator.fit.estimate.outcome_curves import CellSums
from recalibrator.fit.estimate.rectifier import Change, Rectifier, rectify

CELLS, SPLIT, TARGET, DRIFT, UNSEEN = 8, 4, 0.9, 0.01, 0.04
SIZE = 12.0


def recent_labels(score: float, spread: float, count: int) -> CellSums:
    """Return so many labels in cell 2, whose small answers' z has this mean and standard deviation."""
    by_relation = np.zeros((3, CELLS, OUTCOMES))
    by_relation[0, 2, ONE] = count
    by_relation[0, 2, SIZE_SMALL] = count * SIZE
    by_relation[0, 2, HITS_SMALL] = count * (score + TARGET * SIZE)
    by_relation[0, 2, SQUARE_SMALL] = count * (score**2 + spread**2)
    square = np.zeros((3, CELLS))
    square[0, 2] = count
    return CellSums(by_relation, by_relation.sum(axis=0), np.zeros(OUTCOMES), square, 0.0)


def rectified(recent: CellSums, shift: float = 0.0, shifted: float = 0.0, missing: float = 0.0) -> Rectifier:
    zero = np.zeros(CELLS)
    weights = np.zeros((2, CELLS))
    weights[0, 2] = shifted
    return rectify(
        recent,
        (zero, zero),
        np.array((np.full(CELLS, shift), zero)),
        weights,
        target=TARGET,
        split=SPLIT,
        change=Change(DRIFT, UNSEEN, (missing, 0.0)),
    )


@pytest.mark.parametrize("count", [2, 50, 5_000])
def test_rectifier_is_the_posterior_of_a_normal_mean(count: int) -> None:
    """Correction and what remains unknown are posteriors of a normal mean, under a small and a large prior."""
    score, spread, expected_change = -0.3, 0.8, DRIFT * SIZE
    found = rectified(recent_labels(score, spread, count))
    precision = 1.0 / expected_change**2 + count / spread**2
    assert found.value[0, 0] == pytest.approx(score * (count / spread**2) / precision)
    assert found.variance[0, 0] == pytest.approx(1.0 / (1.0 / (UNSEEN * SIZE) ** 2 + count / spread**2))
    assert not found.value[0, SPLIT + 1 :].any()


def test_labels_that_stop_coming_leave_all_of_a_change_unknown() -> None:
    """Plenty of labels of earlier queries narrowed the margin for ever; a side without new ones has the widest."""
    known, stopped = (rectified(recent_labels(-0.3, 0.8, 4_000), missing=missing) for missing in (0.0, 1.0))
    assert stopped.variance[0, 0] == pytest.approx((UNSEEN * SIZE) ** 2)
    assert known.variance[0, 0] < stopped.variance[0, 0] / 10.0
    np.testing.assert_array_equal(stopped.value[0], known.value[0])


def test_only_labels_since_the_tilt_can_cancel_it() -> None:
    """Labels from before the tilt do not cancel it and later ones that agree with it confirm it."""
    tilt = -0.2
    before, confirming, denying = (
        rectified(recent_labels(score, 0.8, 500), shift=tilt, shifted=shifted).value[0, 0]
        for score, shifted in ((0.0, 0.0), (tilt, 500.0), (0.0, 500.0))
    )
    assert (before, confirming) == pytest.approx((0.0, 0.0))
    assert denying > 0.05
