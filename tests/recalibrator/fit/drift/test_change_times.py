"""The last change of outcomes, and taking back what labels have told of it."""

from __future__ import annotations

import pytest

from recalibrator.fit.change_monitor import OutcomeChange


@pytest.mark.parametrize(
    ("by_labels", "wrong_since", "taken_back"), [(True, 30, True), (True, 41, False), (False, 30, False)]
)
def test_a_change_reported_by_wrong_labels_is_retracted(*, by_labels: bool, wrong_since: int, taken_back: bool) -> None:
    change = OutcomeChange()
    change.note(10, 5, 20, by_labels=True, settled=True)
    change.note(30, 2, 40, by_labels=by_labels, settled=False)
    assert change.reported_by_labels(wrong_since) is taken_back
    assert change.retract(wrong_since) is taken_back
    assert change.began_us == (10 if taken_back else 30)
