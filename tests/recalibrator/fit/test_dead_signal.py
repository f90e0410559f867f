"""Servers whose tokens all have probability 1: u is 0 whatever they answer, and no threshold parts their queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from tests.support.cascade_stream import Run, World, drive, settings, typo_world
from tests.support.cores import in_force, present, restarted

QUERIES, CHANGE, SETTLED = 12_000, 4_000, 7_000
TARGET = 0.93


def muted_world(share: float) -> World:
    world = typo_world(QUERIES, QUERIES, seed=3)
    muted = np.random.default_rng(7).uniform(size=QUERIES) < share
    muted[:CHANGE] = False
    return replace(world, uncertainty=np.where(muted, 0.0, world.uncertainty))


def served(world: World, run: Run) -> tuple[float, float]:
    """Return micro-F1 in expectation of what is served once all has settled, and the share that escalates."""
    called = np.array(run.large_called)[SETTLED:]
    chance = np.where(called, world.large_right[SETTLED:], world.small_right[SETTLED:])
    return float(chance.mean()), float(called.mean())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_dead_signal_sent_every_query_to_the_large_model(share: float) -> None:
    world, core = muted_world(share), Recalibrator(settings())
    run = drive(core, world.draw, QUERIES)
    micro_f1, escalated = served(world, run)
    assert micro_f1 >= TARGET - 0.005
    assert escalated < 0.9
    assert 0.0 < present(in_force(core).atom).keep_probability < 1.0
    assert "give every token probability 1" in core.status().sentence
    assert restarted(core).current == core.current


def test_a_first_margin_of_few_labels_was_that_of_many() -> None:
    """The lower bound that the choice rests on lies farther below the estimate the fewer labels there are."""
    _, version = drive(Recalibrator(settings()), muted_world(0.0).draw, CHANGE).versions[0]
    found = present(version.evidence.micro_f1)
    margins = (found.estimate - found.lower) / float(str(version.evidence.details["standard_error"]))
    assert margins > 1.8 * version.target.safety
