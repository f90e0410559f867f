"""Streams in which one thing goes wrong: the fit's own status leads to the headline that names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from recalibrator.api.read_model.headlines import Shown, shown
from recalibrator.core import Recalibrator
from recalibrator.headlines.facts import Facts
from recalibrator.headlines.rules import headline
from schemas import LabelledExample, OutcomeCounts
from tests.support.cascade_stream import FIELDS, World, drive, settings, typo_world

BEGINS, QUERIES, LOOK = 3_000, 6_000, 200
WORLD = typo_world(QUERIES, QUERIES, seed=4)
SINCE = np.arange(QUERIES) >= BEGINS
HIT = SINCE & (np.random.default_rng(3).uniform(size=QUERIES) < 0.6)

Tell = Callable[[int, LabelledExample], LabelledExample | None]


def small_worse(share: float) -> World:
    """The small model misses two more fields of some queries, and is less sure of them."""
    hit = SINCE & (np.random.default_rng(3).uniform(size=QUERIES) < share)
    less_sure = np.where(hit, np.minimum(1.0, WORLD.uncertainty + 0.1), WORLD.uncertainty)
    missed = np.where(hit, np.maximum(WORLD.small - 2, 0), WORLD.small)
    return replace(WORLD, uncertainty=less_sure, small=missed, agree=WORLD.agree & ~hit)


def large_worse() -> World:
    return replace(WORLD, large=np.where(HIT, np.maximum(WORLD.large - 2, 0), WORLD.large), agree=WORLD.agree & ~HIT)


def large_worse_apart() -> World:
    """Only where the answers differ anyway, so that how often they agree shows nothing."""
    return replace(WORLD, large=np.where(HIT & ~WORLD.agree, np.maximum(WORLD.large - 3, 0), WORLD.large))


def harder() -> World:
    """Only queries from the harder half come in, of which both models are as good as before."""
    hard = np.argsort(WORLD.uncertainty)[QUERIES // 2 :]
    drawn = np.where(SINCE, np.random.default_rng(5).choice(hard, QUERIES), np.arange(QUERIES))
    parts = ("uncertainty", "small_right", "large_right", "small", "large", "agree")
    return replace(WORLD, **{name: getattr(WORLD, name)[drawn] for name in parts})


def careless(number: int, label: LabelledExample) -> LabelledExample:
    """Miss a field in half of all labels that are no answers to audits."""
    if number < BEGINS or label.label_reason == "audit" or not HIT[number]:
        return label
    fewer = {
        name: OutcomeCounts(true_positives=max(0, one.true_positives - 1), predicted=one.predicted)
        for name, one in (("small", label.small), ("large", label.large))
        if one is not None
    }
    assert all(one.predicted == FIELDS for one in fewer.values())
    return label.model_copy(update={**fewer, "small_exact": False})


class Story(NamedTuple):
    """What comes in, what labelers say, and the headlines that may show once it began: the last of them names it."""

    world: World
    tell: Tell
    shows: tuple[str, ...]
    target: float = 0.93


def truly(_: int, label: LabelledExample) -> LabelledExample:
    return label


STORIES = {
    "small model much worse": Story(small_worse(0.6), truly, ("suspected", "traffic_moved", "drift", "small_worse")),
    "large model worse": Story(large_worse(), truly, ("suspected", "agreement_moved", "infeasible", "large_worse")),
    "large model worse where answers differ": Story(
        large_worse_apart(), truly, ("suspected", "escalation_jump", "below_target", "infeasible", "large_worse")
    ),
    "other queries": Story(harder(), truly, ("suspected", "below_target", "traffic_moved")),
    "labels stop": Story(WORLD, lambda n, one: one if n < BEGINS else None, ("suspected", "label_starvation")),
    "careless crowd": Story(WORLD, careless, ("suspected", "drift", "below_target", "both_worse", "bad_labels")),
    "out of reach": Story(WORLD, truly, ("suspected", "infeasible"), target=0.995),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_went_wrong_is_what_is_said(story: Story) -> None:
    """Nothing else but a cause or its doubt is said on the way, and never is a roll-back offered."""
    core = Recalibrator(settings(target={"micro_f1": story.target}))
    drive(core, story.world.draw, BEGINS, tell=story.tell)
    kinds: list[str] = []
    state: Shown | None = None
    for first in range(BEGINS, QUERIES, LOOK):
        drive(core, story.world.draw, LOOK, first=first, tell=story.tell)
        status = core.status()
        assert status.updated_at is not None
        said = headline(status, Facts(status.updated_at, workload=core.settings, may_return=True))
        state = shown(state, said, status.updated_at)
        kinds += [] if kinds[-1:] == [state.headline.kind] else [state.headline.kind]
        assert "Roll back" not in state.headline.act
        assert said.cause in status.sentence
    assert story.shows[-1] in kinds, kinds
    assert set(kinds) <= {*story.shows, "well"}, kinds
