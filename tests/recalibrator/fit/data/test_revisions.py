"""First labels against labels as they stand, from the first label on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.data.revisions import Flips, Revisions

LABELS = 300
CORRECTED = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=60)


def revised(labels: Sequence[tuple[float, float]], half_life: float = 1e9, settled: int = 500) -> Revisions:
    """Return what is known after labels that said one thing first and another later, all later words last."""
    revisions = Revisions(half_life, settled)
    for first, _ in labels:
        revisions.first(first)
    for serial, (first, standing) in enumerate(labels):
        if first != standing:
            revisions.moved(serial, first, first, standing)
    return revisions


@pytest.mark.parametrize("wrong", [15, 150, 270])
def test_early_corrections_count_at_the_rate_of_errors(wrong: int) -> None:
    """Of labels none of which has settled, first errors are compared with those that stand, whatever their rate."""
    labels = [(1.0, 1.0)] * wrong + [(1.0, 0.0)] * 15 + [(0.0, 0.0)] * (LABELS - wrong - 15)
    first = revised(labels).flips(LABELS).first(wrong / LABELS)
    assert first == pytest.approx((wrong + 15) / LABELS, rel=0.1)


def test_labels_never_corrected_are_compared_as_they_are() -> None:
    assert revised([(1.0, 1.0)] * 15 + [(0.0, 0.0)] * 285).flips(LABELS) == Flips(0.0, 0.0)


@given(labels=CORRECTED, settled=st.integers(0, 80), in_curves=st.floats(1.0, 1e4) | st.just(math.inf))
def test_no_labels_make_all_answers_wrong(labels: list[tuple[float, float]], settled: int, in_curves: float) -> None:
    """Few labels had been corrected, the latest more often than earlier ones: answers alike counted as wrong, all."""
    flips = revised(labels, 50.0, settled).flips(in_curves)
    corrected = sum(first > standing for first, standing in labels)
    worsened = sum(first < standing for first, standing in labels)
    assert (flips.to_right > 0.0) <= (corrected > 0)
    assert (flips.to_wrong > 0.0) <= (worsened > 0)
    chances = flips.first(np.array([0.0, 0.03, 0.5, 1.0]))
    assert ((chances >= 0.0) & (chances <= 1.0)).all()
    assert chances[0] <= len(labels) / (len(labels) + 2.0)


@given(labels=CORRECTED)
def test_flips_are_the_shares_that_were_corrected(labels: list[tuple[float, float]]) -> None:
    flips, said = revised(labels).flips(len(labels)), np.array(labels)
    first, standing = said.T
    right, wrong = standing == 0.0, standing == 1.0
    assert flips.to_right == pytest.approx(first[right].sum() / (right.sum() + 2.0))
    assert flips.to_wrong == pytest.approx((1.0 - first[wrong]).sum() / (wrong.sum() + 2.0))


@given(labels=CORRECTED, settled=st.integers(0, 80))
def test_a_withdrawn_label_leaves_no_trace(labels: list[tuple[float, float]], settled: int) -> None:
    """Wherever it stood, once those before it are counted alike."""
    revisions = revised(labels, 1e9, settled)
    for serial, (first, standing) in enumerate(labels):
        revisions.withdrawn(serial, first, standing)
    assert revisions.flips(1e3) == pytest.approx(Flips(0.0, 0.0), abs=1e-9)


@given(labels=CORRECTED, settled=st.integers(0, 80))
def test_revisions_are_read_back_exactly(labels: list[tuple[float, float]], settled: int) -> None:
    revisions, restored = revised(labels, 50.0, settled), Revisions(50.0, settled)
    restored.load(revisions.state())
    for one in (revisions, restored):
        one.first(1.0)
        one.moved(0, labels[0][0], labels[0][1], 1.0 - labels[0][1])
    assert restored.state() == revisions.state()


def test_a_former_release_counted_otherwise() -> None:
    """Its settled counts by relation are dropped; its latest labels are taken over."""
    revisions = Revisions(300.0)
    revisions.load([[9.0, 0.0], [5.0, 0.0], [1.0, 0.0], 1.0, 12, [[10, 2, 1.0, 0.0], [11, 0, 0.0, 0.0]]])
    assert revisions.flips() == Flips(0.0, 0.0)
    assert revisions.flips(2.0) == Flips(1.0 / 4.0, 0.0)
