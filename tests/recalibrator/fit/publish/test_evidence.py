"""What is drawn of a version: few points, the chosen one among them, shares that add up.

What labels buy: against drawn labels, and as the core's own status says it.
"""

from __future__ import annotations

import numpy as np
import pytest

from recalibrator.fit.publish.label_plan import steady_noise
from schemas.status import LabelPlan
from tests.support.cascade_stream import drive, typo_world
from tests.support.cores import driven, present, restarted


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


def test_the_last_labels_counted_as_todays_for_ever() -> None:
    """Where nobody is asked any more nothing makes labels old: the interval stayed that of the day they ended."""
    world = typo_world(40_000, 40_000)
    core = driven(world, 8_000)
    then = present(core.status().micro_f1)
    free = restarted(core, labels={"per_day": 0}, sampling={})
    drive(free, world.draw, 8_000, first=8_000)
    now = present(free.status().micro_f1)
    assert now.upper - now.lower > 1.5 * (then.upper - then.lower)
