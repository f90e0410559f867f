"""The estimate of micro-F1 over a thousand windows, labelled as a cascade labels: near the truth on average."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from recalibrator.core import Recalibrator
from recalibrator.fit.decide.threshold import Policies, weigh
from recalibrator.fit.estimate.estimate import Circumstances, estimate_outcomes
from schemas import LabelledExample, TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START, World, example, settings, typo_world

WINDOWS, QUERIES, SERVING = 1_000, 20_000, 0.25
EXPLORED, KEPT, ESCALATED = 0.03, 0.05, 0.10
SAMPLING = {"exploration_probability": EXPLORED}
SAMPLING |= {"label_probability_kept": KEPT, "label_probability_escalated": ESCALATED}
THRESHOLDS = (0.05, 0.2, SERVING, 0.4, 0.6)


def traffic(
    world: World, escalated: NDArray[np.bool_], drawn: NDArray[np.float64], core: Recalibrator
) -> TrafficSummary:
    cell, ran = core._grid.indices(world.uncertainty), escalated | (drawn < EXPLORED)
    filled = np.unique(cell)
    every, pairs, agreeing, explored = (
        tuple(np.bincount(cell[rows], minlength=core._grid.cells)[filled].tolist())
        for rows in (np.ones_like(ran), ran, ran & world.agree, ran & ~escalated)
    )
    part = VersionTraffic(
        calibration_version=1,
        queries=len(cell),
        cell=tuple(filled.tolist()),
        count=every,
        pairs=pairs,
        agreeing=agreeing,
        pairs_explored=explored,
        escalated=int(ran.sum()),
        explored=sum(explored),
        small_calls=len(cell),
        large_calls=int(ran.sum()),
    )
    ended = START + timedelta(seconds=len(cell))
    grid = core._grid.spec
    return TrafficSummary(workload="w", first_routed_at=START, last_routed_at=ended, grid=grid, versions=(part,))


def label(world: World, number: int, *, escalated: bool, ran: bool) -> LabelledExample:
    made = example(world.draw(number), f"q-{number}", "w", START + timedelta(seconds=number))[1]
    by_rate = {
        "large_probability": 1.0 if escalated else EXPLORED,
        "label_probability": ESCALATED if escalated else KEPT,
        "reason": "threshold" if escalated else "exploration" if ran else "kept",
    }
    return made.model_copy(update=by_rate if ran else by_rate | {"large": None, "agree": None})


def window(seed: int) -> Policies:
    """Return all policies as one window of 20,000 queries and some 1,300 labels tells them."""
    world, core = typo_world(QUERIES, QUERIES, seed=seed), Recalibrator(settings(sampling=SAMPLING))
    drawn = np.random.default_rng([seed, 1]).uniform(size=QUERIES)
    escalated = world.uncertainty > SERVING
    core._traffic.add(traffic(world, escalated, drawn, core))
    for number in np.flatnonzero(drawn < np.where(escalated, ESCALATED, KEPT)).tolist():
        above = bool(escalated[number])
        core._labels.offer(label(world, number, escalated=above, ran=above or bool(drawn[number] < EXPLORED)))
    estimate = estimate_outcomes(core._labels, core._traffic, core._map_fitter, Circumstances(SERVING), core.constants)
    return weigh(estimate, core._grid.edges, core._labels.target, EXPLORED)


@pytest.mark.thorough
def test_micro_f1_is_unbiased_and_its_error_not_understated() -> None:
    """Smoothing over cells leaves a bias of up to .0003, a tenth of one window's standard error."""
    population = typo_world(2_000_000, 2_000_000, seed=999_999)
    windows = [window(seed) for seed in range(1_000, 1_000 + WINDOWS)]
    for given in THRESHOLDS:
        index = windows[0].index(given)
        escalated = population.uncertainty > windows[0].thresholds[index]
        explored = EXPLORED * population.large_right + (1.0 - EXPLORED) * population.small_right
        truth = float(np.where(escalated, population.large_right, explored).mean())
        estimates = np.array([float(one.micro_f1[index]) for one in windows])
        told = np.array([float(one.error[index] / one.size[index]) for one in windows])
        assert abs(float(estimates.mean()) - truth) < 0.0005
        assert float(estimates.std()) < 1.05 * float(told.mean())
