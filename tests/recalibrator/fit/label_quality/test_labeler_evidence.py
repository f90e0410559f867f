"""The evidence that somebody labels differently: against beta-binomials, all possible counts and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln, comb
from scipy.stats import betabinom

from recalibrator.fit.codec import Floats
from recalibrator.fit.data.label_columns import (
    COLUMNS,
    ERROR,
    GROUP,
    HITS_LARGE,
    HITS_SMALL,
    LABELER,
    ROUTED_US,
    SIZE_LARGE,
    SIZE_SMALL,
)
from recalibrator.fit.label_quality.labelers import (
    BLOCK,
    WINDOWS,
    Tally,
    difference,
    log_evidence,
    tally,
)

CELLS, TARGET = 8, 0.9


def counts(labels: object, errors: object) -> Tally:
    """Return counts of one window, shape (1, kinds, places)."""
    made = np.array(labels, dtype=float)[None], np.array(errors, dtype=float)[None]
    return Tally(*made, np.zeros_like(made[0]))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 400), st.integers(0, 400))
def test_one_cell_is_a_ratio_of_beta_binomials(errors: int, right: int, their_errors: int, their_right: int) -> None:
    own, others = errors + right, their_errors + their_right
    found = log_evidence(counts([[own]], [[errors]]), counts([[others]], [[their_errors]]))
    apart = betabinom.logpmf(errors, own, 0.5, 0.5) + betabinom.logpmf(their_errors, others, 0.5, 0.5)
    together = (
        np.log(comb(own, errors))
        + np.log(comb(others, their_errors))
        + betaln(errors + their_errors + 0.5, right + their_right + 0.5)
        - betaln(0.5, 0.5)
    )
    assert found[0] == pytest.approx(apart - together, abs=1e-6)


def test_its_mean_is_1_where_all_are_alike() -> None:
    """Over all counts of two cells, by their probability under one rate drawn from Jeffreys' prior for each."""
    own, others = (3, 2), (4, 3)
    mean = 0.0
    for first in itertools.product(*(range(n + 1) for n in own)):
        for second in itertools.product(*(range(n + 1) for n in others)):
            chance = 1.0
            for k, n, j, m in zip(first, own, second, others, strict=True):
                whole = betaln(k + j + 0.5, n + m - k - j + 0.5) - betaln(0.5, 0.5)
                chance *= float(comb(n, k) * comb(m, j) * np.exp(whole))
            mean += chance * float(np.exp(log_evidence(counts([own], [first]), counts([others], [second]))[0]))
    assert mean == pytest.approx(1.0)


@given(st.integers(0, 2**32 - 1))
def test_evidence_is_symmetric_and_ignores_empty_cells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, rest = rng.integers(0, 30, (2, 4, 3))
    labels[0, 0] = rest[0, 0] = 0
    own, others = (counts(n, rng.binomial(n, 0.2)) for n in (labels, rest))
    assert log_evidence(own, others)[0] == pytest.approx(log_evidence(others, own)[0])
    nobody = counts(np.zeros((4, 3)), np.zeros((4, 3)))
    assert log_evidence(own, nobody)[0] == pytest.approx(0.0)


def rows_of(rng: np.random.Generator, labels: int, labelers: int) -> Floats:
    """Return labels in the order of time, of which half are pairs."""
    rows = np.zeros((labels, COLUMNS))
    rows[:, GROUP] = rng.integers(0, 3 * CELLS, labels)
    rows[:, LABELER] = rng.integers(1, labelers + 1, labels)
    rows[:, ROUTED_US] = np.arange(labels) * 1_000.0
    rows[:, SIZE_SMALL] = rows[:, SIZE_LARGE] = 6.0
    rows[:, HITS_SMALL], rows[:, HITS_LARGE] = 2.0 * rng.integers(0, 4, (2, labels))
    rows[:, ERROR] = rows[:, HITS_SMALL] < 6.0
    return rows


@pytest.mark.parametrize("labels", [0, 1, 100, 700, 2_500])
def test_windows_hold_the_latest_blocks(labels: int) -> None:
    rows = rows_of(np.random.default_rng(labels), labels, 3)
    found = tally(rows, CELLS, 3, TARGET)
    for place, blocks in enumerate(WINDOWS.tolist()):
        latest = rows[-blocks * BLOCK :]
        kind = latest[:, GROUP] // CELLS
        z = latest[:, HITS_SMALL] - TARGET * latest[:, SIZE_SMALL]
        for labeler in range(3):
            theirs = latest[:, LABELER] == labeler + 1
            for one in range(3):
                rows_here = theirs & (kind == one)
                assert found.labels[place, labeler, one].sum() == rows_here.sum()
                assert found.errors[place, labeler, one].sum() == latest[rows_here, ERROR].sum()
                assert found.score[place, labeler, one].sum() == pytest.approx(z[rows_here].sum())
            large = theirs & (kind == 1)
            assert found.errors[place, labeler, 3].sum() == (latest[large, HITS_LARGE] < 6.0).sum()


def test_places_hold_equally_many_labels() -> None:
    rows = rows_of(np.random.default_rng(1), 2_048, 3)
    found = tally(rows, CELLS, 3, TARGET)
    by_place = found.labels[-1, :, :3].sum(axis=(0, 1))
    np.testing.assert_array_equal(by_place, np.full(len(by_place), 2_048 / len(by_place)))


def test_harder_queries_are_no_difference_of_the_labeler() -> None:
    """Like cells are compared: two thirds of the labels of one are of hard queries, one third of the others'."""
    own, others = (np.array(n) for n in ([[[10.0, 20.0]]], [[[40.0, 20.0]]]))
    usual = np.array([0.5, -2.0])
    shifted = Tally(own, np.zeros_like(own), own * (usual - 0.25))
    assert difference(shifted, Tally(others, np.zeros_like(own), others * usual), 0) == pytest.approx(-0.25)
