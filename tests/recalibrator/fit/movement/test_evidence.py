"""Evidence of a change: rare without one, soon with one, and shared out over series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.movement.evidence import detector, discoveries, log_bayes_factor


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.08, 0.02), (0.97, 0.01, 0.01, 0.01)])
def test_without_a_change_large_factors_are_rare(shares: tuple[float, ...]) -> None:
    """A factor of 100 comes at most about once in a hundred tests without a change, as of an e-value (Markov)."""
    rng = np.random.default_rng(7)
    before, after = (rng.multinomial(size, shares, size=4_000).astype(float) for size in (5_000, 1_000))
    assert float((log_bayes_factor(before, after) > np.log(100.0)).mean()) <= 0.01


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=6))
def test_evidence_is_finite_for_any_counts(pairs: list[tuple[int, int]]) -> None:
    """Any counts, none among them, give a number, and it does not depend on the order of categories."""
    before, after = np.array(pairs, dtype=float).T
    found = log_bayes_factor(before, after)
    assert np.isfinite(found)
    assert log_bayes_factor(before[::-1], after[::-1]) == pytest.approx(float(found), abs=1e-6)


def test_an_unused_category_changes_nothing() -> None:
    before, after = np.array([900.0, 100.0]), np.array([70.0, 30.0])
    padded = (np.append(one, [0.0, 0.0]) for one in (before, after))
    assert log_bayes_factor(*padded) == pytest.approx(float(log_bayes_factor(before, after)))


def test_a_detector_without_a_known_beginning_says_nothing() -> None:
    factors = np.array([[1.0, 2.0], [3.0, 4.0]])
    allowed = np.array([[False, False], [False, True]])
    assert detector(factors, allowed).tolist() == [-np.inf, 4.0]


@given(st.lists(st.floats(-50.0, 200.0), max_size=30), st.floats(1e-6, 0.5))
def test_any_discovery_means_enough_evidence_on_average(evidence: list[float], alpha: float) -> None:
    """Where anything is discovered, the mean e-detector is at least 1 / alpha: that bounds false ones over time."""
    found = discoveries(np.array(evidence), alpha)
    strongest = np.sort(np.array(evidence))[::-1][: int(found.sum())]
    assert sorted(np.array(evidence)[found].tolist(), reverse=True) == strongest.tolist()
    if found.any():
        largest = max(evidence)
        mean = np.log(np.mean(np.exp(np.array(evidence) - largest))) + largest
        assert mean >= np.log(1.0 / alpha) - 1e-6
