"""The demo's figures are those of its observations."""

from __future__ import annotations

import math

from ucci_stream.scenario import Scenario
from ucci_stream.summary import micro_f1, phase_bounds


def test_micro_f1_of_nothing_is_not_a_number() -> None:
    assert math.isnan(micro_f1(0, 0, 0))
    assert micro_f1(2, 2, 2) == 1.0


def test_phases_lie_on_their_side_of_the_drift() -> None:
    scenario = Scenario(queries=10_000)
    bounds = phase_bounds(scenario)
    assert bounds["before_drift"] == (0, scenario.drift_index)
    assert bounds["just_after_drift"][0] == scenario.drift_index
    assert bounds["after_recovery"][1] == 10_000
    assert bounds["just_after_drift"][1] < bounds["after_recovery"][0]
