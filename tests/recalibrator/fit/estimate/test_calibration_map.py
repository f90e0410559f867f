"""g on cells against scikit-learn, which fits the same function by other code."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.isotonic import IsotonicRegression

from recalibrator.fit.estimate.calibration_map import fit_map
from recalibrator.fit.estimate.isotonic import pool
from recalibrator.grid import Grid
from schemas.calibration import CalibrationMap
from schemas.traffic import GridSpec

GRID = Grid(GridSpec())
CELLS = 64
RISE_LEAST = 1.0 / 512.0


@hypothesis_settings(max_examples=40)
@given(
    arrays(np.float64, CELLS, elements=st.floats(0.0, 1.0)),
    arrays(np.float64, CELLS, elements=st.floats(0.01, 1_000.0)),
)
def test_levels_equal_sklearns_isotonic_regression(value: np.ndarray, weight: np.ndarray) -> None:
    level, first, last = pool(value, weight)
    ours = np.repeat(level, last - first + 1)
    theirs = IsotonicRegression().fit(np.arange(CELLS), value, sample_weight=weight).predict(np.arange(CELLS))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_g_reads_sklearns_levels_at_the_middle_of_every_block() -> None:
    """With no prior and no tilt, thinning apart, g is isotonic regression of the labels' cell means."""
    rng = np.random.default_rng(3)
    cell = rng.integers(100, 400, 20_000)
    wrong = (rng.uniform(size=len(cell)) < (cell - 100) / 400).astype(float)
    weight, errors = np.bincount(cell, minlength=512).astype(float), np.bincount(cell, wrong, 512).astype(float)
    found = fit_map(GRID, errors, weight, np.zeros(512), weight / weight.sum(), prior=0.0)
    filled = np.flatnonzero(weight)
    reference = IsotonicRegression().fit(cell, wrong).predict(filled)
    for level in np.unique(reference):
        block = filled[reference == level]
        middle = 1.0 / (1.0 + np.exp(-np.average(GRID.logits[block], weights=weight[block])))
        ours = float(np.interp(middle, found.uncertainty, found.error_probability))
        assert abs(ours - level) <= RISE_LEAST


@hypothesis_settings(max_examples=40)
@given(
    arrays(np.float64, 512, elements=st.floats(0.0, 50.0)),
    arrays(np.float64, 512, elements=st.floats(0.0, 1.0)),
    st.floats(0.0, 300.0),
)
def test_g_never_falls_and_never_leaves_the_unit_interval(weight: np.ndarray, share: np.ndarray, prior: float) -> None:
    """Any counts give a map that a router accepts: its constructor refuses all others."""
    found = fit_map(GRID, weight * share, weight, np.zeros(512), np.full(512, 1 / 512), prior)
    assert len(found.uncertainty) >= 1


def test_without_a_single_label_g_is_still_a_map() -> None:
    nothing = np.zeros(512)
    assert fit_map(GRID, nothing, nothing, nothing, nothing, 200.0).error_probability


@given(st.floats(0.0, 1.0))
def test_reading_a_probability_backwards_gives_the_largest_u_that_is_not_riskier(wanted: float) -> None:
    curve = CalibrationMap(uncertainty=(0.1, 0.2, 0.4, 0.7), error_probability=(0.05, 0.3, 0.3, 0.9))
    u = curve.inverse(wanted)
    read = np.interp([max(u, 0.0), min(1.0, max(u, 0.0) + 1e-6)], curve.uncertainty, curve.error_probability)
    if u >= 0.0:
        assert read[0] <= wanted + 1e-9
    if 0.0 <= u < 1.0:
        assert read[1] >= wanted
