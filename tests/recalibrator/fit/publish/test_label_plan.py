"""What labels buy: against drawn labels, and as the core's own status says it."""

from __future__ import annotations

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.publish.label_plan import LATEST, steady_noise
from recalibrator.headlines.label_plan import plan_lines
from schemas.status import LabelPlan
from tests.support.cascade_stream import drive, settings, typo_world


@pytest.fixture(scope="module")
def plan() -> LabelPlan:
    core = Recalibrator(settings(labels={"per_queries": 0.05}, sampling={}))
    drive(core, typo_world(20_000, 20_000).draw, 12_000)
    found = core.status().label_plan
    assert found is not None
    return found


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
    effect = plan.latest
    assert effect is not None
    assert effect.labels == LATEST
    assert effect.cost is not None
    assert effect.measured is not None
    before, now = effect.uncertainty_threshold
    # A higher threshold escalates less.
    assert (effect.cost[0] - effect.cost[1]) * (now - before) >= 0.0
    assert all(one.lower <= one.estimate <= one.upper for one in effect.measured)


def test_without_labels_nothing_they_alone_show_is_found() -> None:
    core = Recalibrator(settings())
    world = typo_world(20_000, 20_000)
    drive(core, world.draw, 6_000)
    free = Recalibrator.restore(settings(labels={"per_day": 0}, sampling={}), core.snapshot())
    drive(free, world.draw, 1_000, first=6_000)
    plan = free.status().label_plan
    assert plan is not None
    assert plan.now == 0
    lines = plan_lines(plan)
    assert lines[0].startswith("Without labels")
    assert "No fall that labels alone show is found" in lines[1]


def test_the_last_labels_counted_as_todays_for_ever() -> None:
    """Where nobody is asked any more nothing makes labels old: the interval stayed that of the day they ended."""
    core = Recalibrator(settings())
    world = typo_world(40_000, 40_000)
    drive(core, world.draw, 8_000)
    then = core.status().micro_f1
    free = Recalibrator.restore(settings(labels={"per_day": 0}, sampling={}), core.snapshot())
    drive(free, world.draw, 8_000, first=8_000)
    now = free.status().micro_f1
    assert then is not None
    assert now is not None
    assert now.upper - now.lower > 1.5 * (then.upper - then.lower)
