"""The agreement tilt: what a change of agreement says of both models, with labels of the present and without them."""

from __future__ import annotations

import numpy as np
import pytest

from recalibrator.fit.data import label_columns as at
from recalibrator.fit.estimate.agreement import Shift, Tilt, shift_by
from recalibrator.fit.estimate.outcome_curves import CellSums, smooth_outcomes
from recalibrator.fit.method_constants import DEFAULT

CELLS, TARGET, LABELS = 8, 0.9, 1e6
SIZE, RIGHT, WRONG = 4.0, 4.0, 2.0
#: Share of the disagreements in which the small answer is the wrong one.
BLAMED = 0.6
BEFORE = np.full(CELLS, 0.8)
#: By how much z of a right answer lies above that of a wrong one.
GAIN = (1.0 - TARGET) * SIZE - (WRONG - TARGET * SIZE)


def labelled() -> CellSums:
    """Return so many labels that nothing is shrunk: equal answers are right, of different ones one is wrong."""
    by_relation = np.zeros((3, CELLS, at.OUTCOMES))
    for relation, small_wrong, large_wrong in ((1, BLAMED, 1.0 - BLAMED), (2, 0.0, 0.0)):
        part = by_relation[relation]
        part[:, [at.ONE, at.PAIR]] = LABELS
        part[:, [at.SIZE_SMALL, at.SIZE_LARGE]] = LABELS * SIZE
        part[:, at.HITS_SMALL] = LABELS * (small_wrong * WRONG + (1.0 - small_wrong) * RIGHT)
        part[:, at.HITS_LARGE] = LABELS * (large_wrong * WRONG + (1.0 - large_wrong) * RIGHT)
        part[:, at.ERROR] = LABELS * small_wrong
    return CellSums(by_relation, by_relation.sum(axis=0), np.zeros(at.OUTCOMES), np.full((3, CELLS), LABELS), 0.0)


def moved(level: float, unlabelled: float) -> tuple[Shift, float]:
    """Return the shift when the log-odds of agreement move, and by how much agreement itself does."""
    place = np.linspace(-1.0, 1.0, CELLS)
    tilt = Tilt(level, 0.0, np.eye(2))
    found = shift_by(tilt, BEFORE, place, smooth_outcomes(labelled(), DEFAULT), TARGET, unlabelled=unlabelled)
    return found, float(found.agreement[0] - BEFORE[0])


def test_lost_agreement_is_shared_as_labels_show_it() -> None:
    found, change = moved(-0.7, unlabelled=0.0)
    assert change < 0.0
    assert found.value[0] == pytest.approx(np.full(CELLS, change * BLAMED * GAIN), rel=1e-4)
    assert found.value[1] == pytest.approx(np.full(CELLS, change * (1.0 - BLAMED) * GAIN), rel=1e-4)
    assert found.error == pytest.approx(np.full(CELLS, -change * BLAMED), rel=1e-4)


def test_without_labels_the_small_model_bears_the_tilt() -> None:
    """Without labels the small model is to blame for all of it and the large one no less than before."""
    shared, change = moved(-0.7, unlabelled=0.0)
    found, _ = moved(-0.7, unlabelled=1.0)
    assert found.value[0] == pytest.approx(np.full(CELLS, change * GAIN), rel=1e-4)
    assert found.error == pytest.approx(np.full(CELLS, -change), rel=1e-4)
    assert (found.value[1] == shared.value[1]).all()
    half, _ = moved(-0.7, unlabelled=0.5)
    assert half.value[0] == pytest.approx((shared.value[0] + found.value[0]) / 2.0)


def test_more_agreement_credits_both_models() -> None:
    (shared, change), (found, _) = moved(0.7, unlabelled=0.0), moved(0.7, unlabelled=1.0)
    assert change > 0.0
    assert (found.value[0] == shared.value[0]).all()
