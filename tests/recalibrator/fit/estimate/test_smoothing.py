"""Smoothing against sums and least squares written out cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recalibrator.fit.codec import Floats
from recalibrator.fit.estimate.smoothing import Family, shrunk_local_linear

CELLS, WIDE, PRIOR, RIDGE = 60, 25, 2.0, 0.1


def kernel(width: int) -> Floats:
    """Weight of each cell (column) at each cell (row): two moving means, neither of which reaches beyond the grid."""
    place = np.arange(CELLS)
    box = (np.abs(place[:, None] - place) <= width // 2).astype(np.float64)
    weights: Floats = box @ box / width
    return weights


def family(rng: np.random.Generator, width: int, owners: tuple[int, ...], filled: slice) -> Family:
    """Labels in some cells alone."""
    shape = (max(owners) + 1, CELLS)
    weight, square, responses = np.zeros(shape), np.zeros(shape), np.zeros((len(owners), CELLS))
    weight[:, filled] = rng.uniform(0.01, 3.0, weight[:, filled].shape) * (
        rng.uniform(size=weight[:, filled].shape) < 0.5
    )
    square[:] = weight**2 * 0.7
    responses[:] = weight[list(owners)] * rng.normal(size=responses.shape)
    return Family(width, weight, square, responses, np.array(owners))


def line_at(cell: int, width: int, weight: Floats, square: Floats, response: Floats) -> tuple[float, float]:
    """Value at one cell of the line around it, and Kish's labels behind it; by the normal equations."""
    place, near = np.arange(CELLS) - cell, kernel(width)[cell]
    mass = float(near @ weight)
    if mass <= 0.0:
        return 0.0, 0.0
    centre = float(near @ (weight * place)) / mass
    spread = float(near @ (weight * (place - centre) ** 2)) / mass + RIDGE * width * width / 6.0
    mean = float(near @ response) / mass
    slope = (float(near @ (response * (place - centre))) / mass) / spread
    return mean - slope * centre, mass * mass / float(near @ square)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), begins=st.integers(0, 50), count=st.integers(1, 60))
def test_curves_are_lines_shrunk_to_wider_ones_and_the_mean(seed: int, begins: int, count: int) -> None:
    rng, filled = np.random.default_rng(seed), slice(begins, begins + count)
    families = (family(rng, 9, (0, 0, 1), filled), family(rng, 13, (1, 0), filled))

    for one, fit in zip(families, shrunk_local_linear(families, WIDE, PRIOR), strict=True):
        for row, owner in enumerate(one.owner):
            weight, square, response = one.weight[owner], one.weight_square[owner], one.responses[row]
            mean = response.sum() / max(weight.sum(), 1e-12)
            for cell in range(CELLS):
                expected = mean
                for width in (WIDE, one.width):
                    line, near = line_at(cell, width, weight, square, response)
                    expected += near / (near + PRIOR) * (line - expected)
                assert fit.curves[row, cell] == pytest.approx(expected, rel=1e-9, abs=1e-9)
                assert fit.effective[owner, cell] == pytest.approx(near, rel=1e-9, abs=1e-9)
