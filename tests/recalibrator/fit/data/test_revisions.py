"""First labels against corrected ones, from the first label on."""

from __future__ import annotations

import pytest

from recalibrator.fit.data.revisions import Revisions

LABELS = 300


def corrected(wrong: int, corrections: int) -> float:
    """Return the factor after labels of which some are wrong, and some others were at first."""
    revisions = Revisions(relations=1, half_life=1_200.0)
    for number in range(LABELS):
        first = float(number < wrong + corrections)
        revisions.first(0, first)
        if wrong <= number < wrong + corrections:
            revisions.moved(0, number, first, 0.0)
    return float(revisions.odds(LABELS)[0])


@pytest.mark.parametrize(("wrong", "corrections"), [(15, 15), (150, 15), (270, 15)])
def test_early_corrections_count_at_the_rate_of_errors(wrong: int, corrections: int) -> None:
    """Of labels none of which has settled, first errors are compared with those that stand, whatever their rate."""
    first, standing = (wrong + corrections) / LABELS, wrong / LABELS
    ratio = first / (1.0 - first) / (standing / (1.0 - standing))
    assert corrected(wrong, corrections) == pytest.approx(ratio, rel=0.1)


def test_labels_never_corrected_leave_odds_as_they_are() -> None:
    assert corrected(15, 0) == 1.0
