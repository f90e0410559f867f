"""The last change of outcomes, and taking back what labels have told of it."""

from __future__ import annotations

import pytest

from recalibrator.fit.drift.change_times import OutcomeChange


@pytest.mark.parametrize(
    ("by_labels", "wrong_since", "taken_back"), [(True, 30, True), (True, 41, False), (False, 30, False)]
)
def test_a_change_is_taken_back_if_labels_told_it_when_they_were_wrong(
    *, by_labels: bool, wrong_since: int, taken_back: bool
) -> None:
    change = OutcomeChange()
    change.note(10, 5, 20, by_labels=True, settled=True)
    change.note(30, 2, 40, by_labels=by_labels, settled=False)
    assert change.reported_by_labels(wrong_since) is taken_back
    assert change.retract(wrong_since) is taken_back
    assert change.began_us == (10 if taken_back else 30)
