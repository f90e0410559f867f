"""The threshold against brute force, and against the truth of a known world.

Thresholds under several targets, a cap or a budget, against brute force over all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.core import Recalibrator
from recalibrator.fit.decide.candidate import Candidate
from recalibrator.fit.decide.threshold import (
    Affordable,
    Choice,
    Policies,
    capped,
    choose,
    choose_for,
    choose_for_all,
    choose_within,
    large_rate,
    reference,
)
from schemas.calibration import Evidence, Interval, Target
from tests.support.cascade_stream import START, World, example, settings, typo_world
from tests.support.cores import present
from tests.support.versions import sealed_version

COUNT = 9
THRESHOLDS = np.concatenate(([-1.0], np.linspace(0.1, 0.9, COUNT - 2), [1.0]))
ROUNDING = 1e-9

# Not so near 0 that dividing by a size rounds to it, which decides what meets a target.
values = st.lists(st.floats(-1.0, 1.0, allow_subnormal=False), min_size=COUNT, max_size=COUNT)
errors = st.lists(st.floats(0.0, 0.5), min_size=COUNT, max_size=COUNT)
sizes = st.lists(st.just(0.0) | st.floats(0.01, 12.0), min_size=COUNT, max_size=COUNT)
#: Their sums and products are equal, or differ by more than what either side takes for rounding.
shares = st.integers(0, 10_000).map(lambda one: one / 10_000)
rates = st.lists(shares, min_size=COUNT, max_size=COUNT).map(lambda one: sorted(one, reverse=True))


def weighed(value: Any, error: Any = None, size: Any = None, rate: Any = None, target: float = 0.9) -> Policies:
    """Return policies of which some columns are given."""
    return Policies(
        THRESHOLDS,
        np.asarray(value, dtype=float),
        np.zeros(COUNT) if error is None else np.asarray(error, dtype=float),
        np.full(COUNT, 12.0) if size is None else np.asarray(size, dtype=float),
        np.linspace(1.0, 0.0, COUNT) if rate is None else np.asarray(rate, dtype=float),
        target,
    )


some = st.builds(weighed, values, errors, sizes, target=st.sampled_from([0.5, 0.9]))


@given(values, errors, st.floats(0.0, 3.0))
def test_threshold_is_the_largest_that_meets_the_target(value: list[float], error: list[float], safety: float) -> None:
    found = choose(weighed(value, error), safety)
    meeting = [k for k in range(COUNT) if value[k] - safety * error[k] >= 0.0]
    secured = [v - safety * e for v, e in zip(value, error, strict=True)]
    assert found.feasible == (max(value) >= 0.0)
    if meeting:
        assert found.index == meeting[-1]
    else:
        score = secured if found.feasible else value
        assert score[found.index] == max(score)


@given(st.lists(st.floats(-1.0, -0.01), min_size=COUNT, max_size=COUNT), errors, st.booleans(), st.floats(0.0, 0.05))
def test_unsecured_targets_pay_for_no_useless_call(
    value: list[float], error: list[float], met: bool, gain_least: float
) -> None:
    """Expected scores are those of answers of 12 pairs: a difference of 12 x in them is one of x in micro-F1."""
    if met:
        value = [v + 1.0 if k == 7 else v for k, v in enumerate(value)]
        error = [1.5 if k == 7 else e for k, e in enumerate(error)]
    found = choose(weighed(value, error), 1.0, gain_least)
    scores = [v - e for v, e in zip(value, error, strict=True)] if met else value
    assert found.feasible is met
    assert scores[found.index] >= max(scores) - 12.0 * gain_least - 1e-12
    assert all(score < max(scores) - 12.0 * gain_least + 1e-12 for score in scores[found.index + 1 :])


def labelled(queries: int, seed: int) -> tuple[World, Candidate]:
    """Return a world all of whose queries both models have answered, and what a core with all their labels finds."""
    core, world = Recalibrator(settings()), typo_world(queries, queries, seed=seed)
    for number in range(queries):
        core._labels.offer(example(world.draw(number), f"q-{number}", "w", START)[1])
    return world, core.evaluate()


def test_policies_micro_f1_is_that_of_counted_labels() -> None:
    """With both models run on every query F(t) is plain counting, but for what smoothing moves between cells."""
    world, found = labelled(6_000, seed=5)
    weighed = found.policies
    for t in np.quantile(world.uncertainty, [0.1, 0.3, 0.5, 0.7, 0.9]):
        served = np.where(world.uncertainty > t, world.large, world.small)
        counted = 2.0 * served.sum() / (12.0 * len(served))
        index = weighed.index(t)
        assert abs(float(weighed.micro_f1[index]) - counted) < 0.004
        assert abs(float(weighed.escalation_rate[index]) - float((world.uncertainty > t).mean())) < 0.02


def test_threshold_is_as_cheap_as_the_best_in_hindsight() -> None:
    world, found = labelled(8_000, seed=6)
    thresholds, every = found.policies.thresholds, slice(0, 8_000)
    chosen = float(thresholds[found.choice.index])
    best = max(t for t in thresholds if world.expected_micro_f1(float(t), every) >= 0.93)
    assert world.expected_micro_f1(chosen, every) >= 0.925
    assert abs(float((world.uncertainty > chosen).mean()) - float((world.uncertainty > best).mean())) < 0.08


@given(st.lists(some, min_size=2, max_size=3), st.floats(0.0, 2.0))
def test_several_targets_take_the_intersection(targets: list[Policies], safety: float) -> None:
    """The threshold is the largest in the intersection of the sets that meet each target with its margin."""
    found = choose_for_all({str(place): one for place, one in enumerate(targets)}, safety)

    def meets(one: Policies, k: int) -> bool:
        empty = one.size[k] <= 0.0
        return bool(empty or one.value[k] - safety * one.error[k] >= 0.0)

    meeting = [k for k in range(COUNT) if all(meets(one, k) for one in targets)]
    if meeting:
        assert (found.index, found.feasible) == (meeting[-1], True)
    else:
        hoped = any(all(one.size[k] <= 0.0 or one.value[k] >= 0.0 for one in targets) for k in range(COUNT))
        assert found.feasible == hoped


@given(st.lists(some, min_size=2, max_size=3), st.floats(0.0, 2.0))
def test_what_binds_rules_out_the_next_cheaper(targets: list[Policies], safety: float) -> None:
    """Without the target that binds, the threshold would be larger; without another one it need not be."""
    named = {str(place): one for place, one in enumerate(targets)}
    found = choose_for_all(named, safety)
    slack = {
        name: np.where(
            one.size > 0.0, (one.value - safety * one.error) / np.where(one.size > 0.0, one.size, 1.0), 1.0 - one.target
        )
        for name, one in named.items()
    }
    if min(one[found.index] for one in slack.values()) < 0.0:
        return
    after = {name: one[found.index + 1] for name, one in slack.items() if found.index < COUNT - 1}
    assert (found.binds is None) == (not after)
    assert not after or after[present(found.binds)] == min(after.values()) < 0.0


@given(values, values, st.floats(0.0, 0.05))
def test_missed_targets_fall_short_the_least(first: list[float], second: list[float], gain_least: float) -> None:
    """Where no threshold meets both, the scarcer shortfall is the smallest that there is, within the least gain."""
    one, other = weighed([v - 1.01 for v in first]), weighed([v - 1.01 for v in second])
    found = choose_for_all({"micro_f1": one, "fields.a": other}, 0.0, gain_least)
    assert not found.feasible
    scarcest = [min(a, b) / 12.0 for a, b in zip(one.value, other.value, strict=True)]
    assert scarcest[found.index] >= max(scarcest) - gain_least - ROUNDING
    assert all(s < max(scarcest) - gain_least for s in scarcest[found.index + 1 :])


@given(rates, shares, shares, st.integers(0, COUNT - 1))
def test_a_cap_moves_the_threshold_no_further_than_it_must(
    rate: list[float], most: float, exploration: float, index: int
) -> None:
    """Under a cap the threshold is the smallest within it, and stays where it lies within it anyway."""
    one = weighed(np.zeros(COUNT), rate=rate)
    found = capped(Choice(index, feasible=True), one, most, exploration)
    called = large_rate(one, exploration)
    within = [k for k in range(COUNT) if called[k] <= most + ROUNDING]
    if index in within:
        assert found == Choice(index, feasible=True)
    else:
        assert found.index == (within[0] if within else COUNT - 1)
        if found.index != index:
            assert (found.binds, found.wanted) == ("max_escalation", index)


@given(values, rates, shares, shares, st.floats(0.0, 0.05))
def test_a_budget_buys_the_best_quality_within_it(
    value: list[float], rate: list[float], most: float, exploration: float, gain_least: float
) -> None:
    """No threshold within the budget is expected to serve better by more than the least gain."""
    one = weighed(value, rate=rate)
    found = choose_within(one, most, exploration, gain_least)
    called = large_rate(one, exploration)
    within = [k for k in range(COUNT) if called[k] <= most + 1e-12]
    assert found.feasible == bool(within)
    assert found.index in (within or [COUNT - 1])
    if not within:
        return
    assert one.micro_f1[found.index] >= max(one.micro_f1[k] for k in within) - gain_least
    assert (found.binds == "cost") == (found.index == within[0] > 0)


def test_what_was_overdrawn_makes_no_budget_infeasible() -> None:
    """While what was overdrawn is saved nothing may be affordable; the promise is within reach all the same."""
    one = weighed(np.zeros(COUNT), rate=np.linspace(1.0, 0.02, COUNT))
    saved = choose_for(Target(cost=1.7), {"micro_f1": one}, Affordable(-0.1, 0.2), 0.03, 0.0)
    assert (saved.index, saved.feasible) == (COUNT - 1, True)
    assert not choose_for(Target(cost=1.01), {"micro_f1": one}, Affordable(0.003, 0.003), 0.03, 0.0).feasible
    assert choose_for(Target(cost=1.7), {"micro_f1": one}, None, 0.03, 0.0).index == COUNT - 1
    dear = weighed(np.linspace(0.1, -0.1, COUNT), rate=one.escalation_rate)
    capped = choose_for(Target(cost=1.7, max_escalation=0.3), {"micro_f1": dear}, Affordable(0.9, 0.9), 0.0, 0.0)
    assert large_rate(dear, 0.0)[capped.index] <= 0.3, "a cap comes before a budget"


def test_scores_follow_what_is_served_without_a_micro_f1() -> None:
    """τ is the target; without one, the estimate of the version in force, or .9 before it is known."""
    assert reference(Target(micro_f1=0.93), None) == 0.93
    assert reference(Target(cost=1.7), None) == 0.9
    assert reference(Target(cost=1.7), sealed_version()) == 0.9
    known = Evidence(trigger="refit", micro_f1=Interval(estimate=0.6843, lower=0.67, upper=0.7))
    assert reference(Target(cost=1.7), sealed_version(evidence=known)) == 0.68
