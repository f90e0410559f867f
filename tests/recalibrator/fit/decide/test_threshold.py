"""The threshold against brute force, and against the truth of a known world."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.core import Recalibrator
from recalibrator.fit.decide.threshold import Policies, choose
from recalibrator.grid import Grid
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, example, settings, typo_world

THRESHOLDS = np.concatenate(([-1.0], np.linspace(0.05, 0.95, 19), [1.0]))


def policies(value: list[float], error: list[float]) -> Policies:
    ones = np.ones(len(THRESHOLDS))
    rate = np.linspace(1.0, 0.0, len(THRESHOLDS))
    return Policies(THRESHOLDS, np.array(value), np.array(error), 12.0 * ones, rate, 0.9)


@given(
    st.lists(st.floats(-1.0, 1.0), min_size=21, max_size=21),
    st.lists(st.floats(0.0, 0.5), min_size=21, max_size=21),
    st.floats(0.0, 3.0),
)
def test_threshold_is_the_largest_that_meets_the_target(value: list[float], error: list[float], safety: float) -> None:
    found = choose(policies(value, error), safety)
    meeting = [k for k in range(21) if value[k] - safety * error[k] >= 0.0]
    if meeting:
        assert (found.index, found.feasible) == (meeting[-1], True)
    elif max(value) >= 0.0:
        assert found.feasible
        assert value[found.index] - safety * error[found.index] == max(
            v - safety * e for v, e in zip(value, error, strict=True)
        )
    else:
        assert not found.feasible
        assert value[found.index] == max(value)


@given(
    st.lists(st.floats(-1.0, -0.01), min_size=21, max_size=21),
    st.lists(st.floats(0.0, 0.5), min_size=21, max_size=21),
    st.booleans(),
    st.floats(0.0, 0.05),
)
def test_unsecured_targets_pay_for_no_useless_call(
    value: list[float], error: list[float], met: bool, gain_least: float
) -> None:
    """Expected scores are those of answers of 12 pairs: a difference of 12 x in them is one of x in micro-F1."""
    if met:
        value = [v + 1.0 if k == 7 else v for k, v in enumerate(value)]
        error = [1.5 if k == 7 else e for k, e in enumerate(error)]
    found = choose(policies(value, error), 1.0, gain_least)
    scores = [v - e for v, e in zip(value, error, strict=True)] if met else value
    assert found.feasible is met
    assert scores[found.index] >= max(scores) - 12.0 * gain_least - 1e-12
    assert all(score < max(scores) - 12.0 * gain_least + 1e-12 for score in scores[found.index + 1 :])


def test_policies_micro_f1_is_that_of_counted_labels() -> None:
    """With both models run on every query F(t) is plain counting, but for what smoothing moves between cells."""
    core, world = Recalibrator(settings()), typo_world(6_000, 6_000, seed=5)
    for number in range(6_000):
        core._labels.offer(example(world.draw(number), f"q-{number}", "w", START)[1])
    weighed = core.evaluate().policies
    for t in np.quantile(world.uncertainty, [0.1, 0.3, 0.5, 0.7, 0.9]):
        served = np.where(world.uncertainty > t, world.large, world.small)
        counted = 2.0 * served.sum() / (12.0 * len(served))
        index = weighed.index(t)
        assert abs(float(weighed.micro_f1[index]) - counted) < 0.004
        assert abs(float(weighed.escalation_rate[index]) - float((world.uncertainty > t).mean())) < 0.02


def test_threshold_is_as_cheap_as_the_best_in_hindsight() -> None:
    core, world = Recalibrator(settings()), typo_world(8_000, 8_000, seed=6)
    for number in range(8_000):
        core._labels.offer(example(world.draw(number), f"q-{number}", "w", START)[1])
    view = core.evaluate()
    chosen = float(view.policies.thresholds[view.choice.index])
    every = slice(0, 8_000)
    meeting = [t for t in view.policies.thresholds if world.expected_micro_f1(float(t), every) >= 0.93]
    best_rate = float((world.uncertainty > max(meeting)).mean())
    assert world.expected_micro_f1(chosen, every) >= 0.925
    assert abs(float((world.uncertainty > chosen).mean()) - best_rate) < 0.08


def test_policies_are_found_by_their_threshold() -> None:
    """A threshold is found again by its value and the ends escalate all and none."""
    weighed = policies([0.0] * 21, [0.0] * 21)
    assert [weighed.index(float(t)) for t in THRESHOLDS] == list(range(21))


@given(st.floats(0.0, 1.0))
def test_one_u_and_many_u_fall_into_the_same_cell(u: float) -> None:
    grid = Grid(GridSpec())
    assert grid.index(u) == int(grid.indices(np.array([u]))[0])
