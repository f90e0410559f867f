"""Decayed sums are those of their definition, label by label, whatever came, in whatever order."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalibrator.fit.data import decayed_sums as at
from recalibrator.fit.data.decayed_sums import FAST, SLOW, decayed_sums, label_weights
from recalibrator.fit.data.label_columns import GROUP, LABEL_PROBABILITY, OUTCOMES, PAIR, ROUTED_US, STANDING
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.method_constants import MethodConstants
from recalibrator.grid import Grid
from schemas import LabelledExample
from schemas.event import to_us
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, example, typo_world

GRID = Grid(GridSpec(cells=16))
HALF_LIVES = MethodConstants(half_life_slow=40.0, half_life_fast=8.0)
WORLD = typo_world(400, 200, seed=3)


def window(capacity: int = 200) -> LabelTable:
    return LabelTable(GRID, 0.9, ("iso", "lens"), capacity)


@st.composite
def offers(draw: st.DrawFn) -> LabelledExample:
    number = draw(st.integers(0, 90))
    routed_at = START + timedelta(seconds=draw(st.sampled_from((number, number, number, number // 4, 90 - number))))
    made = example(WORLD.draw(draw(st.integers(0, 399))), f"q-{number}", "w", routed_at)[1]
    retracted, requested = draw(st.integers(0, 9)) == 0, draw(st.integers(0, 9)) > 0
    changed = {"revision": draw(st.integers(1, 4)), "retracted": retracted, "label_requested": requested}
    return made.model_copy(update=changed)


def by_definition(labels: LabelTable, changed_us: float) -> NDArray[np.float64]:
    """Sums before and since a change, one label at a time."""
    sums = np.zeros((2, at.SUMS, labels.groups))
    counting = [row for row in labels.table if row[STANDING] > 0.0]
    for row in counting:
        newer = [other[LABEL_PROBABILITY] for other in counting if other[ROUTED_US] > row[ROUTED_US]]
        slow = 0.5 ** (len(newer) / HALF_LIVES.half_life_slow)
        fast = 0.5 ** (sum(1.0 / probability for probability in newer) / HALF_LIVES.half_life_fast)
        into = sums[int(row[ROUTED_US] >= changed_us), :, int(row[GROUP])]
        into[SLOW] += row[:OUTCOMES] * slow
        into[FAST] += row[:OUTCOMES] * fast
        into[[at.SLOW_SQUARE, at.SLOW_SQUARE_PAIR]] += np.array([1.0, row[PAIR]]) * slow**2
        into[[at.FAST_SQUARE, at.FAST_QUERIES]] += (fast**2, fast / row[LABEL_PROBABILITY])
    return sums


@hypothesis_settings(max_examples=60)
@given(st.lists(offers(), min_size=1, max_size=120), st.sampled_from((None, 20, 70)), st.sampled_from((40, 200)))
def test_sums_and_weights_are_those_of_their_definition(
    events: list[LabelledExample], changed_after: int | None, capacity: int
) -> None:
    labels = window(capacity)
    for event in events:
        labels.offer(event)
    changed_us = None if changed_after is None else to_us(START + timedelta(seconds=changed_after))
    found = decayed_sums(labels, HALF_LIVES, changed_us, current_us=changed_us or 0)
    before, since = by_definition(labels, changed_us or -np.inf)
    np.testing.assert_allclose(found.since, since, atol=1e-9, rtol=1e-9)
    if found.before is not None:
        np.testing.assert_allclose(found.before, before, atol=1e-9, rtol=1e-9)
    table = labels.table[labels.table[:, STANDING] > 0.0]
    fresh = table[table[:, ROUTED_US] >= (changed_us or 0)]
    assert (found.labels, found.pairs, found.fresh) == (len(table), int(table[:, PAIR].sum()), len(fresh))
    assert found.window_us == ((table[:, ROUTED_US].min(), table[:, ROUTED_US].max()) if len(table) else None)
    assert label_weights(labels, HALF_LIVES.half_life_fast).sum() == pytest.approx((before + since)[FAST][0].sum())
    np.testing.assert_allclose(found.current, since[FAST][[0, PAIR]], atol=1e-9, rtol=1e-9)


def test_many_half_lives_neither_overflow_nor_lose_labels() -> None:
    labels = window(capacity=2_000)
    half_lives = MethodConstants(half_life_slow=1.0, half_life_fast=0.5)
    for number in range(2_000):
        labels.offer(example(WORLD.draw(number % 400), f"q-{number}", "w", START + timedelta(seconds=number))[1])
    found = decayed_sums(labels, half_lives, None)
    assert found.since[at.SLOW_SQUARE].sum() == pytest.approx(4.0 / 3.0)
    assert found.since[SLOW][0].sum() == pytest.approx(2.0)
