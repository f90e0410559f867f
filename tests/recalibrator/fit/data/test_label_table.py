"""Who contributes: any arrival order, corrections, retractions, late labels."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recalibrator.fit.codec import dump, load
from recalibrator.fit.data.label_columns import HITS_LARGE, HITS_SMALL, SIZE_LARGE, SIZE_SMALL, STANDING, Standing
from recalibrator.fit.data.label_table import Distrust, LabelTable
from recalibrator.fit.data.traffic_window import TrafficWindow
from recalibrator.fit.estimate.calibration_map import map_fitter
from recalibrator.fit.estimate.estimate import Circumstances, Estimate, estimate_outcomes
from recalibrator.fit.method_constants import DEFAULT
from recalibrator.grid import Grid
from schemas import FieldCounts, LabelledExample, OutcomeCounts
from schemas.event import to_us
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, example, typo_world
from tests.support.cores import present

WORLD = typo_world(400, 200, seed=8)
GRID = Grid(GridSpec())
FIELDS = ("iso", "lens")


PARTS = attrgetter(
    *(f"{side}.{name}" for side in ("kept", "escalated") for name in ("value", "size", "spread")),
    *("map.uncertainty", "map.error_probability", "support.labels"),
)


def window(capacity: int = 1_000, target: float = 0.93, *, by_model: bool = False) -> LabelTable:
    return LabelTable(GRID, target, FIELDS, capacity, by_model=by_model)


def label(number: int, *, draw: int | None = None, **changed: object) -> LabelledExample:
    routed_at = START + timedelta(seconds=number)
    made = example(WORLD.draw(number if draw is None else draw), f"q-{number}", "w", routed_at)[1]
    return made.model_copy(update=changed)


def estimate(labels: LabelTable) -> Estimate:
    fitter = map_fitter("isotonic", 200.0)
    return estimate_outcomes(labels, TrafficWindow(GRID, 1_000), fitter, Circumstances(0.1), DEFAULT)


def same(one: LabelTable, other: LabelTable) -> None:
    """Assert that both give the same estimate."""
    for ours, theirs in zip(PARTS(estimate(one)), PARTS(estimate(other)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def taken(labels: Iterable[LabelledExample], table: LabelTable | None = None) -> LabelTable:
    """Return a table that has taken these labels in."""
    table = window() if table is None else table
    for one in labels:
        table.offer(one)
    return table


@st.composite
def histories(draw: st.DrawFn) -> list[LabelledExample]:
    """Labels of 40 queries, up to three revisions each, some of them retracted."""
    return [
        label(
            number,
            draw=draw(st.integers(0, 399)),
            revision=revision,
            retracted=draw(st.booleans()) and draw(st.booleans()),
            labelled_at=START + timedelta(days=draw(st.integers(0, 3))),
        )
        for number in range(40)
        for revision in range(1, 1 + draw(st.integers(1, 3)))
    ]


@hypothesis_settings(max_examples=15)
@given(histories(), st.randoms(use_true_random=False))
def test_any_arrival_order_with_repeats_gives_the_same_estimate(events: list[LabelledExample], rng: object) -> None:
    again = [*events, *events[::3]]
    rng.shuffle(again)  # type: ignore[attr-defined] # hypothesis types its random numbers as object
    same(taken(events), taken(again))


def test_a_retracted_label_leaves_no_trace_in_the_estimate() -> None:
    with_it = taken(map(label, range(200)))
    assert with_it.offer(label(77, revision=2, retracted=True)) == "withdrawn"
    same(with_it, taken(label(number) for number in range(200) if number != 77))


def test_a_correction_replaces_also_the_counts_of_each_field() -> None:
    labels = taken([label(1, per_field={"iso": FieldCounts(true_positives=1, predicted=1, gold=1)})])
    assert labels.per_field.tolist() == [[[1, 1, 1], [0, 0, 0]]]
    labels.offer(label(1, revision=2, per_field=None))
    assert labels.per_field.sum() == 0


def test_an_unrequested_label_changes_no_estimate() -> None:
    asked = [*map(label, range(150))]
    same(taken(asked), taken([*asked, label(160, label_requested=False)]))


def test_the_oldest_leave_by_routing_time_whatever_came_last() -> None:
    """A late label of an old query is refused once its time has been dropped; memory stays bounded."""
    labels = taken(map(label, range(300, 20, -1)), window(100))
    assert len(labels) <= 125
    assert labels.offer(label(3)) == "too_late"
    kept = {int(query_id[2:]) for query_id in dump(labels)["_ids"]}
    assert kept >= set(range(202, 301))


def test_suspected_labelers_do_not_decide_their_own_audit() -> None:
    labels = taken(label(number, label_reason="random", labeler="eve") for number in range(40))
    answers = [("eve", None), ("ann", None), ("eve", True), ("ann", False), (None, None)]
    for number, (labeler, trusted) in enumerate(answers, start=40):
        labels.offer(label(number, label_reason="audit", labeler=labeler, trusted=trusted, agree=True))
    relation, _, _ = labels.errors_since(0, audited=True, suspected_us=0)
    # Eve counts where she is trusted by name, and so does an unnamed answer. Where others are
    # trusted, what Ann says to an audit is an ordinary label, which makes her a suspect as well.
    assert len(relation) == 2
    assert len(labels.errors_since(0, audited=True)[0]) == 4
    assert len(labels.errors_since(0, audited=False)[0]) == 41


def test_an_overruled_label_returns_with_distrust() -> None:
    """A label that was overruled stands again once its successor is set aside."""
    labels, alone = (taken([label(1, labeler="ann")]) for _ in range(2))
    labels.offer(label(1, draw=200, labeler="eve", revision=2))
    eve: Distrust = {labels.labelers.index("eve") + 1: ((0, None),)}
    labels.set_distrust(eve)
    same(labels, alone)
    assert labels.offer(label(1, draw=300, labeler="eve", revision=3)) == "overruled"
    same(labels, alone)
    labels.set_distrust({})
    alone.offer(label(1, draw=300, labeler="ann", revision=3))
    same(labels, alone)


def test_a_labeler_is_set_aside_for_a_span_of_time() -> None:
    """What was routed before and after it counts, whenever the label comes, and after a restart too."""
    labels, start_us = taken([label(0, labeler="eve")]), to_us(START)
    labels.set_distrust({1: ((start_us + 1_000_000, start_us + 3_000_000),)})
    taken((label(number, labeler="eve") for number in (1, 2, 3)), labels)
    restored = window()
    load(restored, dump(labels))
    for one in (labels, restored):
        standings = [one.standing(f"q-{number}") for number in range(4)]
        assert standings == [Standing.COUNTED, Standing.DISTRUSTED, Standing.DISTRUSTED, Standing.COUNTED]
        assert one.distrusted == ()
    labels.set_distrust({1: ((start_us + 2_000_000, None),)})
    assert labels.distrusted_labels() == {"eve": 2}


def of_lens(number: int, *, draw: int | None = None, **changed: object) -> LabelledExample:
    """Return a label that says what both models gave in the field lens; pairs by turns say nothing of the small one."""
    made = label(number, draw=draw, **changed)
    small, large = number % 2, (number // 2) % 2
    served = small if made.large is None else large
    counts = {"lens": FieldCounts(true_positives=served, predicted=1, gold=1)}
    says = made.large is not None and number % 5
    noted = {"lens": OutcomeCounts(true_positives=small, predicted=1)} if says else None
    return made.model_copy(update={"per_field": counts, "small_per_field": noted})


def counted(labels: LabelTable) -> list[tuple[float, ...]]:
    """Return what counts of the field lens, in any order."""
    table = labels.of_field("lens", 0.8).table
    rows = table[table[:, STANDING] > 0.0][:, [HITS_SMALL, SIZE_SMALL, HITS_LARGE, SIZE_LARGE]]
    return sorted(map(tuple, rows.tolist()))


def expected(labels: list[LabelledExample]) -> list[tuple[float, ...]]:
    """Return the same counted one by one."""
    rows = []
    for one in labels:
        served = 2.0 * present(one.per_field)["lens"].true_positives
        if one.large is None:
            rows.append((served, 2.0, 0.0, 0.0))
        elif one.small_per_field is not None:
            rows.append((2.0 * one.small_per_field["lens"].true_positives, 2.0, served, 2.0))
    return sorted(rows)


def test_one_field_follows_corrections_and_the_window() -> None:
    """A correction replaces the field's counts, a withdrawal takes them out, and what leaves the window is gone."""
    labels = taken(map(of_lens, range(60)), window(40, by_model=True))
    labels.offer(of_lens(55, draw=1, revision=2).model_copy(update={"per_field": None}))
    labels.offer(of_lens(56, revision=2, retracted=True))
    standing = [of_lens(number) for number in range(60 - len(labels), 60) if number not in (55, 56)]
    assert counted(labels) == expected(standing)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_fields_of_both_models_may_come_and_go(before: bool, after: bool) -> None:
    """A snapshot of settings that kept fewer or more counts by field is read all the same."""
    former, labels = window(by_model=before), window(by_model=after)
    for number in range(30):
        former.offer(of_lens(number, labeler="ada"))
        former.offer(of_lens(number, labeler="bob", revision=2))
    load(labels, dump(former))
    np.testing.assert_array_equal(labels.per_field, former.per_field)
    labels.set_distrust({2: ((0, None),)})
    assert labels.counting == former.counting
    if after:
        assert counted(labels) == (expected([of_lens(number) for number in range(30)]) if before else [])


def test_another_target_scores_all_answers_anew() -> None:
    """Squares of scores, on which standard errors rest, are those that a table with that target would have had."""
    one, other = (taken(map(label, range(40)), window(target=target)) for target in (0.93, 0.8))
    one.retarget(0.8)
    np.testing.assert_array_equal(one.table, other.table)
