"""Sums that are kept from look to look: the same as weighing every label anew, whatever came, in whatever order."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalibrator.fit.data import decayed_sums as forgetting
from recalibrator.fit.data.decayed_sums import (
    FAST,
    FAST_QUERIES,
    FAST_SQUARE,
    MAP_ERRORS,
    MAP_LABELS,
    SLOW,
    SLOW_SQUARE,
    SLOW_SQUARE_PAIR,
    SUMS,
    HalfLives,
    LabelSums,
)
from recalibrator.fit.data.label_columns import ERROR, GROUP, LABEL_PROBABILITY, OUTCOMES, PAIR, ROUTED_US, STANDING
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import weights
from recalibrator.grid import Grid
from schemas import LabelledExample
from schemas.event import to_us
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, example, typo_world

GRID = Grid(GridSpec(cells=16))
HALF_LIVES = HalfLives(40.0, 8.0, 20.0)
WORLD = typo_world(400, 200, seed=3)


@pytest.fixture(autouse=True)
def few_rows_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "_OPEN_ROWS", 6)
    monkeypatch.setattr(forgetting, "_ROWS_AT_ONCE", 5)


def window(capacity: int = 200) -> LabelTable:
    return LabelTable(GRID, 0.9, ("iso", "lens"), capacity)


@st.composite
def offers(draw: st.DrawFn) -> LabelledExample:
    number = draw(st.integers(0, 90))
    routed_at = START + timedelta(seconds=draw(st.sampled_from((number, number, number, number // 4, 90 - number))))
    made = example(WORLD.draw(draw(st.integers(0, 399))), f"q-{number}", "w", routed_at)[1]
    return made.model_copy(
        update={
            "revision": draw(st.integers(1, 4)),
            "retracted": draw(st.integers(0, 9)) == 0,
            "label_requested": draw(st.integers(0, 9)) > 0,
        }
    )


def weighed_anew(label_sums: LabelSums, changed_us: int | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums before and since a change, from the ages of all rows."""
    labels = label_sums.labels
    table = labels.table
    group, counting = table[:, GROUP].astype(int), table[:, STANDING] > 0.0
    slow, fast, of_map = (weights(label_sums.newer(), counting, half_life) for half_life in HALF_LIVES)
    rows = np.empty((SUMS, len(table)))
    rows[SLOW], rows[FAST] = table[:, :OUTCOMES].T * slow, table[:, :OUTCOMES].T * fast
    rows[SLOW_SQUARE], rows[SLOW_SQUARE_PAIR] = slow**2, slow**2 * table[:, PAIR]
    rows[FAST_SQUARE], rows[FAST_QUERIES] = fast**2, fast / table[:, LABEL_PROBABILITY]
    rows[MAP_LABELS], rows[MAP_ERRORS] = of_map, of_map * table[:, ERROR]
    old = table[:, ROUTED_US] < (-np.inf if changed_us is None else changed_us)
    sums = np.zeros((2, SUMS, labels.groups))
    for place, part in ((0, old), (1, ~old)):
        for row in range(SUMS):
            np.add.at(sums[place, row], group[part], rows[row, part])
    return sums[0], sums[1]


@hypothesis_settings(max_examples=60)
@given(
    st.lists(st.one_of(offers(), offers(), offers(), offers(), st.just("look")), min_size=60, max_size=160),
    st.sampled_from((None, 20, 70)),
    st.sampled_from((40, 200)),
)
def test_kept_sums_are_those_of_all_labels_weighed_anew(
    events: list[LabelledExample | str], changed_after: int | None, capacity: int
) -> None:
    """Sums kept from refit to refit are those of all labels weighed anew."""
    labels = window(capacity)
    label_sums = LabelSums(labels)
    changed_us = None if changed_after is None else to_us(START + timedelta(seconds=changed_after))
    for number, event in enumerate([*events, "look"]):
        if isinstance(event, LabelledExample):
            labels.offer(event)
            continue
        # The change is found out in the middle of the stream.
        known = changed_us if number > len(events) // 2 else None
        kept = label_sums.decayed_sums(HALF_LIVES, known)
        before, since = weighed_anew(label_sums, known)
        np.testing.assert_allclose(kept.since, since, atol=1e-9, rtol=1e-9)
        if kept.before is not None:
            np.testing.assert_allclose(kept.before, before, atol=1e-9, rtol=1e-9)
        assert kept.labels == np.count_nonzero(labels.table[:, STANDING] > 0.0)

        afresh = window(capacity)
        afresh.load(labels.state())
        again = LabelSums(afresh).decayed_sums(HALF_LIVES, known)
        assert again.since.tobytes() == kept.since.tobytes()
        assert (again.labels, again.pairs, again.fresh, again.window_us) == (
            kept.labels,
            kept.pairs,
            kept.fresh,
            kept.window_us,
        )


def test_many_half_lives_neither_overflow_nor_lose_labels() -> None:
    """A window of many half lives neither overflows nor loses the newest labels."""
    labels, half_lives = window(capacity=2_000), HalfLives(1.0, 0.5, 1.0)
    label_sums = LabelSums(labels)
    for number in range(2_000):
        labels.offer(example(WORLD.draw(number % 400), f"q-{number}", "w", START + timedelta(seconds=number))[1])
        if number % 97 == 0 or number == 1_999:
            assert label_sums.decayed_sums(half_lives, None).since[SLOW_SQUARE].sum() == pytest.approx(
                4.0 / 3.0, rel=0.3
            )
    assert label_sums.decayed_sums(half_lives, None).since[MAP_LABELS].sum() == pytest.approx(2.0)
