"""The demo's figures are those of its observations."""

from __future__ import annotations

import math

import pytest

from tests.support.versions import sealed_version
from ucci_demo.recorded.traffic import load_traffic
from ucci_stream.demo.scenario import Scenario, plan_stream
from ucci_stream.demo.summary import Observations, SeenVersion, first_use, held_in_words, micro_f1, phase_bounds


def test_micro_f1_of_nothing_is_not_a_number() -> None:
    assert math.isnan(micro_f1(0, 0, 0))
    assert micro_f1(2, 2, 2) == 1.0


def test_phases_follow_each_other_and_hold_their_shifts_alone() -> None:
    scenario = Scenario(queries=10_000)
    bounds = phase_bounds(scenario)
    assert bounds.pop("whole stream") == (0, 10_000)
    assert [at for at, _ in bounds.values()] == [0, *(end for _, end in bounds.values())][:-1]
    stream = plan_stream(load_traffic(), scenario)
    for one, (first, last) in zip(scenario.stretches, bounds.values(), strict=True):
        shifted = [query.recorded.shift for query in stream[first:last] if query.recorded.shift != "none"]
        assert set(shifted) <= {one.shift}
        assert len(shifted) / (last - first) == pytest.approx(one.shifted, abs=0.03)


def test_a_dead_router_is_not_charged_for_late_versions() -> None:
    seen = Observations(killed_router="router-1", killed_s=50.0, first_commit_after_kill_s=52.0)
    for published_s, delays in ((0.0, (9.0, 9.0)), (10.0, (0.02, 0.03)), (51.0, (0.04, 1.5)), (60.0, (0.05, 0.06))):
        first = {f"router-{n}": published_s + delay for n, delay in enumerate(delays)}
        seen.versions.append(SeenVersion(sealed_version(), published_s, first))
    found = first_use(seen)
    assert found["p50"] == pytest.approx(0.04)
    assert found["p99"] == pytest.approx(0.06)
    assert found["samples"] == 5


@pytest.mark.parametrize(
    ("found", "words"),
    [(0.91, "held"), (0.9042, "missed, though within the tolerance"), (0.90, "missed")],
)
def test_a_target_missed_by_a_little_is_not_called_held(found: float, words: str) -> None:
    assert held_in_words(found, 0.91, 0.0067) == words
