"""g on cells against scikit-learn, which fits the same function by other code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from recalibrator.fit.estimate.calibration_map import ErrorCells, isotonic_map, platt_map, pool
from recalibrator.grid import Grid
from schemas.calibration import CalibrationMap
from schemas.traffic import GridSpec
from tests.support.cascade_stream import typo_world
from tests.support.cores import driven, in_force

GRID = Grid(GridSpec())
CELLS = 64
RISE_LEAST = 1.0 / 512.0


@hypothesis_settings(max_examples=40)
@given(
    arrays(np.float64, CELLS, elements=st.floats(0.0, 1.0)),
    arrays(np.float64, CELLS, elements=st.floats(0.01, 1_000.0)),
)
def test_levels_equal_sklearns_isotonic_regression(value: np.ndarray, weight: np.ndarray) -> None:
    level, first = pool(value, weight)
    ours = np.repeat(level, np.diff(first, append=CELLS))
    theirs = IsotonicRegression().fit(np.arange(CELLS), value, sample_weight=weight).predict(np.arange(CELLS))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_g_reads_sklearns_levels_at_the_middle_of_every_block() -> None:
    """With no prior and no tilt, thinning apart, g is isotonic regression of the labels' cell means."""
    rng = np.random.default_rng(3)
    cell = rng.integers(100, 400, 20_000)
    wrong = (rng.uniform(size=len(cell)) < (cell - 100) / 400).astype(float)
    weight, errors = np.bincount(cell, minlength=512).astype(float), np.bincount(cell, wrong, 512).astype(float)
    found = isotonic_map(ErrorCells(GRID.logits, errors, weight, weight / weight.sum()), 0.0)
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
    cells = ErrorCells(GRID.logits, weight * share, weight, np.full(512, 1 / 512))
    assert len(isotonic_map(cells, prior).uncertainty) >= 1
    found = platt_map(cells)
    assert CalibrationMap.model_validate(found.model_dump()) == found


def drawn_cells(labels: int, level: float, slope: float, seed: int) -> tuple[ErrorCells, np.ndarray, np.ndarray]:
    """Return labels whose errors are logistic in the place of their cell, as cells and one by one."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(0, 512, labels)
    chance = 1.0 / (1.0 + np.exp(-(level + slope * GRID.standard_logits[cell])))
    wrong = (rng.uniform(size=labels) < chance).astype(float)
    count, errors = np.bincount(cell, minlength=512).astype(float), np.bincount(cell, wrong, 512).astype(float)
    return ErrorCells(GRID.logits, errors, count, count / labels), GRID.standard_logits[cell], wrong


@pytest.mark.parametrize(("labels", "within"), [(500, 0.02), (20_000, 0.003)])
@pytest.mark.parametrize(("level", "slope"), [(-1.0, 3.0), (-3.0, 1.0), (0.0, 6.0)])
def test_platt_map_equals_sklearns_logistic_regression(labels: int, within: float, level: float, slope: float) -> None:
    """Up to our penalty, which is worth less than one label, and to the straight lines between knots."""
    cells, places, wrong = drawn_cells(labels, level, slope, seed=labels)
    theirs = LogisticRegression(C=1e6, tol=1e-8, max_iter=1_000).fit(places[:, None], wrong)
    reference = theirs.predict_proba(GRID.standard_logits[:, None])[:, 1]
    found = platt_map(cells)
    ours = np.interp(GRID.centres, found.uncertainty, found.error_probability)
    filled = cells.labels > 0.0
    np.testing.assert_allclose(ours[filled], reference[filled], atol=within)


def test_a_workload_chooses_its_map_by_name() -> None:
    maps = {}
    for name in ("isotonic", "platt"):
        version = in_force(driven(typo_world(2_500, 9_999, seed=13), 2_500, calibration_map=name))
        assert version.evidence.details.get("calibration_map", "isotonic") == name
        maps[name] = np.asarray(version.error_probability(GRID.centres))
    assert 0.0 < np.abs(maps["isotonic"] - maps["platt"]).max() < 0.5


@given(st.floats(0.0, 1.0))
def test_inverse_gives_the_largest_u_that_is_not_riskier(wanted: float) -> None:
    curve = CalibrationMap(uncertainty=(0.1, 0.2, 0.4, 0.7), error_probability=(0.05, 0.3, 0.3, 0.9))
    u = curve.inverse(wanted)
    read = np.interp([max(u, 0.0), min(1.0, max(u, 0.0) + 1e-6)], curve.uncertainty, curve.error_probability)
    if u >= 0.0:
        assert read[0] <= wanted + 1e-9
    if 0.0 <= u < 1.0:
        assert read[1] >= wanted
