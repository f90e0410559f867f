"""The simulated theory of the paper against independent references: asymptotics, projections, exact invariances."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from research.paper.calibration_rate import (
    CHERNOFF_MEAN,
    asymptotic_l1,
    binned_error,
    errors,
    exponent,
    hump,
    rising,
)
from research.paper.heavy_tails import TAILS, Tail, figures
from research.paper.measures import calibration_error
from research.paper.theory import main


def test_chernoffs_mean_is_that_of_simulated_argmaxima() -> None:
    """The constant is the mean absolute argmax of two-sided Brownian motion less a parabola."""
    rng, step = np.random.default_rng(0), 0.004
    at = np.arange(1, 501) * step
    sides = rng.normal(scale=np.sqrt(step), size=(2, 3_000, len(at))).cumsum(axis=2) - at**2
    best, where = sides.max(axis=2), at[sides.argmax(axis=2)]
    argmax = np.where(best.max(axis=0) > 0.0, np.take_along_axis(where, best.argmax(axis=0)[None], axis=0)[0], 0.0)
    assert argmax.mean() == pytest.approx(CHERNOFF_MEAN, abs=4 * argmax.std() / np.sqrt(len(argmax)))


def test_the_mean_distance_nears_its_asymptotic_constant() -> None:
    rng = np.random.default_rng(1)
    found = np.mean([errors(rising, 20_000, rng).l1 for _ in range(12)])
    assert found == pytest.approx(asymptotic_l1(rising, 20_000), rel=0.1)


def test_the_asymptotic_error_falls_with_the_cube_root() -> None:
    assert asymptotic_l1(rising, 1_000) == pytest.approx(2.0 * asymptotic_l1(rising, 8_000))
    assert exponent((10, 100, 1_000), [3.0 * n**-0.4 for n in (10, 100, 1_000)]) == pytest.approx(-0.4)


def test_the_binned_error_is_the_limit_of_the_measured_ece() -> None:
    """With very many test queries the measured ECE is the error computed from known probabilities."""
    rng = np.random.default_rng(2)
    u = rng.uniform(size=400_000)
    forecast = np.round(0.8 * u + 0.05, 2)
    measured = calibration_error(forecast, rng.uniform(size=len(u)) < rising(u))
    assert binned_error(forecast, rising(u)) == pytest.approx(measured, abs=3e-3)
    assert binned_error(np.full(10, 0.3), np.array([0.0] * 7 + [1.0] * 3)) == pytest.approx(0.0)


def test_a_hump_leaves_the_distance_to_its_projection() -> None:
    """On a curve that is not monotone the fit nears the rising curve next to it, which calibrates all the same."""
    truth = hump((np.arange(20_000) + 0.5) / 20_000)
    left = float(np.sqrt(np.mean((isotonic_regression(truth).x - truth) ** 2)))
    found = errors(hump, 30_000, np.random.default_rng(3))
    assert found.l2 == pytest.approx(left, rel=0.15)
    assert found.binned < 0.5 * found.l1


def test_longer_tails_in_the_same_order_change_nothing() -> None:
    """A rising function of u leaves costs and escalations as they were; a map of two parameters feels it."""
    normal, stretched = (figures(tail, 6_000, seed=7) for tail in TAILS[:2])
    assert TAILS[1].stretched
    for name in ("ucci_saving", "entropy_over_ucci", "risky_ucci"):
        assert stretched[name] == normal[name]
    assert stretched["ece_isotonic"] == pytest.approx(normal["ece_isotonic"], abs=2e-3)


@pytest.mark.parametrize("tail", TAILS, ids=lambda tail: tail.title)
def test_the_oracle_is_never_dearer(tail: Tail) -> None:
    """Knowing each error probability costs least, and finds the hidden errors that u cannot show."""
    found = figures(tail, 8_000, seed=11)
    assert found["ucci_over_oracle"] > 0.0
    if tail.hidden:
        assert found["hidden_oracle"] == 1.0
        assert found["hidden_ucci"] < 0.9


def test_the_quick_command_writes_page_numbers_and_figures(tmp_path: Path) -> None:
    assert main(["--quick", "--seed", "3", "--out", str(tmp_path)]) == 0
    names = {"README.md", "results.json", "calibration_rate.png", "heavy_tails.png"}
    assert {path.name for path in tmp_path.iterdir()} == names
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "--quick --seed 3" in page
    assert "nan" not in page
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["title"] for row in document["results"]["tails"]] == [tail.title for tail in TAILS]
    assert all(tail.title in page for tail in TAILS)
