"""What the detectors of labels make of one label, against the audit's own arithmetic."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.codec import dump, load
from recalibrator.fit.drift.monitors import DriftMonitors, Predicted
from recalibrator.fit.estimate.agreement import Chances
from recalibrator.fit.label_quality.crowd import log_likelihood_ratios

AGREEMENT = np.array([0.97, 0.6, 0.2])
ERROR_GIVEN = np.array([[0.7, 0.8, 0.9], [0.01, 0.06, 0.2]])
ODDS = {"error_given_agreement": (1.6, True), "right_given_disagreement": (1.0 / 2.5, False)}


def chances_of(cell: int, agree: bool | None, *, agreeing: bool) -> Chances:
    """Return the chance of an error in one cell; where one model alone has answered, the answers agree as expected."""
    error = ERROR_GIVEN[int(agreeing)][[cell]]
    if agree is not None:
        return Chances(np.zeros(1), np.ones(1), error)
    weight = AGREEMENT[[cell]] if agreeing else 1.0 - AGREEMENT[[cell]]
    return Chances((1.0 - weight) * ERROR_GIVEN[int(not agreeing)][[cell]], weight, error)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([True, False, None]), st.booleans()), max_size=8))
def test_label_detectors_sum_likelihood_ratios(
    labels: list[tuple[int, bool | None, bool]],
) -> None:
    panel = DriftMonitors(3)
    panel.expect(AGREEMENT, ERROR_GIVEN)
    expected = dict.fromkeys(ODDS, 0.0)
    for cell, agree, wrong in labels:
        panel.on_label(None, float(wrong), agree, cell, 0, 0)
        for name, (odds, agreeing) in ODDS.items():
            if agree is None or agree is agreeing:
                chances = chances_of(cell, agree, agreeing=agreeing)
                gain = log_likelihood_ratios(chances, np.array([float(wrong)]), np.array([log(odds)]))
                expected[name] = max(0.0, expected[name] + float(gain[0]))
    found = {detector.name: detector.status().statistic for detector in panel.detectors}
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12)


def test_a_panel_read_back_weighs_the_next_label_the_same() -> None:
    panel, restored = DriftMonitors(3), DriftMonitors(3)
    panel.expect(AGREEMENT, ERROR_GIVEN)
    load(restored, dump(panel))
    for one in (panel, restored):
        one.on_label(None, 1.0, True, 1, 0, 0)
    assert dump(panel) == dump(restored)
    assert max(detector.status().statistic for detector in restored.detectors) > 0.3


def test_detectors_are_as_near_to_an_alarm_as_they_say() -> None:
    """Refits wait by a detector's own numbers, and people read the status: both are the same."""
    panel = DriftMonitors(3)
    panel.expect(AGREEMENT, ERROR_GIVEN)
    panel.on_label(Predicted(0.1), 1.0, True, 1, 0, 0)
    shown = [(one.statistic, one.bound) for one in panel.status(None).detectors]
    assert [(one.statistic, one.bound) for one in panel.detectors] == shown
    assert max(statistic for statistic, _ in shown) > 0.0
