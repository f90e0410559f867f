"""First labels against labels as they stand, from the first label on."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.data.slips import Revisions

LABELS = 300
CORRECTED = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=60)


def revised(labels: Sequence[tuple[float, float]], half_life: float = 1e9, latest: int = 500) -> Revisions:
    """Return what is known after labels that said one thing first and another later, all later words last."""
    revisions = Revisions(half_life, latest)
    for first, _ in labels:
        revisions.first(first)
    for serial, (_, standing) in enumerate(labels):
        revisions.moved(serial, standing)
    return revisions


def slipping(labels: int, share: float, delay: float, *, before: int = 0) -> Revisions:
    """Return what is known of right answers so far: a share is called wrong at first, and put right some labels later.

    Before people begin to slip none is.
    """
    rng, revisions, due = np.random.default_rng(3), Revisions(75.0), list[tuple[float, int]]()
    for number in range(before + labels):
        slips = number >= before and rng.uniform() < share
        if slips:
            heapq.heappush(due, (revisions.serial + rng.exponential(delay), revisions.serial))
        revisions.first(float(slips))
        while due and due[0][0] <= revisions.serial:
            revisions.moved(heapq.heappop(due)[1], 0.0)
    return revisions


def test_slips_are_known_before_most_are_corrected() -> None:
    """People have slipped in a fifth of 150 labels; that most were not corrected yet hid it."""
    assert 0.08 < slipping(150, 0.2, 60.0, before=1_000).flips().to_right < 0.28


@pytest.mark.parametrize("delay", [60.0, 1_000.0])
def test_slips_are_known_however_late_they_are_corrected(delay: float) -> None:
    """Corrections that came after more than 500 further labels were not seen: people who slip passed for drift."""
    assert slipping(12_000, 0.1, delay).flips().to_right == pytest.approx(0.1, abs=0.06)


def test_corrections_that_begin_to_come_late_are_waited_for() -> None:
    """As after an outage, when the labels of an hour come first and their corrections after them."""
    revisions = slipping(3_000, 0.1, 60.0)
    begins = revisions.serial
    for number in range(3_000):
        revisions.first(float(number % 10 == 0))
    for serial in range(begins, begins + 1_500, 10):
        revisions.moved(serial, 0.0)
    assert revisions.flips().to_right == pytest.approx(0.1, abs=0.05)


@given(labels=CORRECTED, latest=st.integers(1, 80))
def test_no_labels_make_all_answers_wrong(labels: list[tuple[float, float]], latest: int) -> None:
    """Few labels had been corrected, the latest more often than earlier ones: answers alike counted as wrong, all."""
    flips = revised(labels, 50.0, latest).flips()
    corrected = sum(first > standing for first, standing in labels)
    worsened = sum(first < standing for first, standing in labels)
    assert (flips.to_right > 0.0) <= (corrected > 0)
    assert (flips.to_wrong > 0.0) <= (worsened > 0)
    chances = flips.first(np.array([0.0, 0.03, 0.5, 1.0]))
    assert ((chances >= 0.0) & (chances <= 1.0)).all()
    assert chances[0] <= len(labels) / (len(labels) + 2.0)


@given(labels=CORRECTED)
def test_flips_of_settled_labels_are_shares_corrected(labels: list[tuple[float, float]]) -> None:
    revisions, said = Revisions(1e9), np.array(labels)
    for serial, (one, other) in enumerate(labels):
        revisions.first(one)
        revisions.moved(serial, other)
    for _ in range(400):
        revisions.first(0.0)
    first, standing = said.T
    right, wrong = standing == 0.0, standing == 1.0
    flips = revisions.flips()
    assert flips.to_right == pytest.approx(first[right].sum() / (right.sum() + 402.0), rel=0.01)
    assert flips.to_wrong == pytest.approx((1.0 - first[wrong]).sum() / (wrong.sum() + 2.0))


@given(labels=CORRECTED, latest=st.integers(1, 80))
def test_a_withdrawn_label_is_no_correction(labels: list[tuple[float, float]], latest: int) -> None:
    revisions = revised(labels, 1e9, latest)
    for serial in range(len(labels)):
        revisions.moved(serial, None)
    assert revisions.flips()[:2] == (0.0, 0.0)


def test_withdrawn_slips_widen_what_first_labels_may_say() -> None:
    """A tenth of right answers is called wrong at first, and each such label withdrawn: nobody knows that it was."""
    revisions = revised([(float(number % 10 == 0), float(number % 10 == 0)) for number in range(LABELS)])
    for serial in range(0, LABELS, 10):
        revisions.moved(serial, None)
    least, most = revisions.flips().range(0.0)
    assert least == 0.0
    assert most == pytest.approx(0.1, abs=0.06)
