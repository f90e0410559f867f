"""What is drawn of a version: few points, the chosen one among them, shares that add up.

What labels buy: against drawn labels, and as the core's own status says it.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.codec import Floats
from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.publish.evidence import _rounded, frontier, uncertainty_histogram
from recalibrator.fit.publish.label_plan import LATEST, steady_noise
from recalibrator.grid import Grid
from recalibrator.headlines.label_plan import plan_lines
from schemas.costs import ModelCosts, expected_cost
from schemas.status import LabelPlan
from schemas.traffic import GridSpec
from tests.support.cascade_stream import drive, typo_world
from tests.support.cores import driven, present, restarted

CELLS = 512
GRID = Grid(GridSpec(cells=CELLS))
MOST_POINTS = 64


def policies(mass: Floats) -> Policies:
    """All policies over traffic in these cells; the more escalate, the better."""
    shares = mass / mass.sum()
    rate = np.concatenate((np.cumsum(shares[::-1])[::-1], [0.0]))
    return Policies(
        thresholds=np.concatenate(([-1.0], GRID.edges, [1.0])),
        value=rate - 0.5,
        error=np.full(CELLS + 1, 0.01),
        size=np.full(CELLS + 1, 10.0),
        escalation_rate=np.clip(rate, 0.0, 1.0),
        target=0.9,
    )


masses = (
    st.lists(st.integers(0, 50), min_size=CELLS, max_size=CELLS).filter(any).map(lambda m: np.array(m, dtype=float))
)


@given(mass=masses, chosen=st.integers(0, CELLS))
def test_the_frontier_is_ordered_and_holds_the_chosen_policy(mass: Floats, chosen: int) -> None:
    weighed, costs = policies(mass), ModelCosts(large=3.0)
    found = frontier(weighed, chosen, costs, 0.05)
    rates = found.escalation_rate
    assert MOST_POINTS >= len(found.threshold) == len(rates) == len(found.micro_f1) == len(found.sequential_cost)
    assert list(rates) == sorted(rates, reverse=True)
    assert found.threshold[present(found.chosen)] == pytest.approx(weighed.thresholds[chosen], abs=1e-6)
    expected = [expected_cost(costs, rate, 0.05).sequential for rate in rates]
    assert found.sequential_cost == pytest.approx(expected, abs=1e-4)
    assert (rates[0], rates[-1]) == pytest.approx((1.0, 0.0), abs=1e-5)


def test_what_is_not_known_is_not_drawn() -> None:
    assert frontier(policies(np.ones(CELLS)), None, None).sequential_cost == ()
    assert uncertainty_histogram(np.zeros(CELLS), GRID.edges).share == ()


@given(mass=masses)
def test_a_histogram_keeps_the_mass_between_its_edges(mass: Floats) -> None:
    found = uncertainty_histogram(mass, GRID.edges)
    assert len(found.edges) == len(found.share) + 1
    assert (found.edges[0], found.edges[-1]) == (0.0, 1.0)
    # Each of 64 shares is rounded to five digits.
    assert sum(found.share) == pytest.approx(1.0, abs=4e-4)
    half = len(found.share) // 2
    assert sum(found.share[:half]) == pytest.approx(mass[GRID.centres < found.edges[half]].sum() / mass.sum(), abs=4e-4)


@given(values=st.lists(st.floats(-10.0, 10.0) | st.integers(0, 3_200).map(lambda part: part / 3_200), min_size=1))
def test_what_is_drawn_is_rounded_exactly_ties_included(values: list[float]) -> None:
    assert _rounded(np.array(values)) == tuple(round(value, 5) for value in values)


@pytest.fixture(scope="module")
def plan() -> LabelPlan:
    core = driven(typo_world(20_000, 20_000), 12_000, labels={"per_queries": 0.05}, sampling={})
    return present(core.status().label_plan)


@pytest.mark.parametrize("rate", [0.02, 0.2])
def test_the_noise_is_that_of_drawn_labels(rate: float) -> None:
    """Means of 4,000 drawn histories of labels, each half as heavy 500 queries later, scatter as promised."""
    rng, half_life = np.random.default_rng(1), 500.0
    weights = np.exp2(-np.arange(6_000) / half_life)
    means = []
    for _ in range(4_000):
        at = np.flatnonzero(rng.uniform(size=len(weights)) < rate)
        means.append(np.average(rng.normal(0.0, 2.0, len(at)), weights=weights[at]))
    assert np.var(means) == pytest.approx(float(steady_noise(4.0, rate, half_life)), rel=0.15)


def test_more_labels_are_promised_to_tell_more(plan: LabelPlan) -> None:
    outlooks = plan.outlooks
    widths = [one.half_width for one in outlooks]
    found = [one.found_after for one in outlooks if one.found_after is not None]
    assert [one.per_query for one in outlooks] == sorted(one.per_query for one in outlooks)
    assert widths == sorted(widths, reverse=True)
    assert found == sorted(found, reverse=True)
    assert outlooks[0].found_after is None
    assert outlooks[plan.now].per_query == pytest.approx(0.05, rel=0.3)


def test_twice_the_labels_do_not_halve_the_variance(plan: LabelPlan) -> None:
    """The curves forget by labels, so that only what recent labels correct gets narrower, and less than as 1 / √2."""
    by_rate = {one.per_query: one.half_width for one in plan.outlooks}
    assert 0.71 < by_rate[0.1] / by_rate[0.05] < 1.0


def test_the_latest_labels_say_what_they_changed(plan: LabelPlan) -> None:
    effect = present(plan.latest)
    (before, now), (former, cost) = effect.uncertainty_threshold, present(effect.cost)
    assert effect.labels == LATEST
    # A higher threshold escalates less.
    assert (former - cost) * (now - before) >= 0.0
    assert all(one.lower <= one.estimate <= one.upper for one in present(effect.measured))


def test_without_labels_nothing_they_alone_show_is_found() -> None:
    world = typo_world(20_000, 20_000)
    free = restarted(driven(world, 6_000), labels={"per_day": 0}, sampling={})
    drive(free, world.draw, 1_000, first=6_000)
    plan = present(free.status().label_plan)
    assert plan.now == 0
    lines = plan_lines(plan)
    assert lines[0].startswith("Without labels")
    assert "No fall that labels alone show is found" in lines[1]


def test_the_last_labels_counted_as_todays_for_ever() -> None:
    """Where nobody is asked any more nothing makes labels old: the interval stayed that of the day they ended."""
    world = typo_world(40_000, 40_000)
    core = driven(world, 8_000)
    then = present(core.status().micro_f1)
    free = restarted(core, labels={"per_day": 0}, sampling={})
    drive(free, world.draw, 8_000, first=8_000)
    now = present(free.status().micro_f1)
    assert now.upper - now.lower > 1.5 * (then.upper - then.lower)
