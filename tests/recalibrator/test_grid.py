"""A grid of u is finite and in order, between whatever bounds it lies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given

from recalibrator.grid import Grid
from schemas.traffic import GridSpec
from tests.support.strategies import any_of


@given(any_of(GridSpec))
@example(GridSpec(cells=512, low=1e-15, high=float(np.nextafter(1.0, 0.0))))
@example(GridSpec.model_construct(cells=512, low=5e-324, high=0.999))
def test_edges_and_centres_rise_within_the_unit_interval(spec: GridSpec) -> None:
    """Also where an earlier release kept bounds that are refused by now."""
    grid = Grid(spec)
    for places in (grid.edges, grid.centres):
        assert np.all(np.diff(places) >= 0.0)
        assert 0.0 <= places[0] <= places[-1] <= 1.0
    assert np.all(np.isfinite(grid.standard_logits))
    assert grid.standard_logits[[0, -1]] == pytest.approx([-1.0, 1.0])
