"""What is drawn of a version: few points, the chosen one among them, shares that add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.publish.evidence import _rounded, frontier, uncertainty_histogram
from recalibrator.grid import Grid
from schemas.costs import ModelCosts, expected_cost
from schemas.traffic import GridSpec

CELLS = 512
GRID = Grid(GridSpec(cells=CELLS))
MOST_POINTS = 64


def policies(mass: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Policies:
    """All policies over traffic in these cells; the more escalate, the better."""
    shares = mass / mass.sum()
    rate = np.concatenate((np.cumsum(shares[::-1])[::-1], [0.0]))
    return Policies(
        thresholds=np.concatenate(([-1.0], GRID.edges, [1.0])),
        value=rate - 0.5,
        error=np.full(CELLS + 1, 0.01),
        size=np.full(CELLS + 1, 10.0),
        escalation_rate=np.clip(rate, 0.0, 1.0),
        target=0.9,
    )


masses = (
    st.lists(st.integers(0, 50), min_size=CELLS, max_size=CELLS).filter(any).map(lambda m: np.array(m, dtype=float))
)


@given(mass=masses, chosen=st.integers(0, CELLS))
def test_the_frontier_is_thin_ordered_and_holds_the_policy_in_force(
    mass: np.ndarray[tuple[int], np.dtype[np.float64]], chosen: int
) -> None:
    weighed = policies(mass)
    found = frontier(weighed, chosen, ModelCosts(large=3.0), 0.05)

    assert len(found.threshold) <= MOST_POINTS
    assert len(found.threshold) == len(found.escalation_rate) == len(found.micro_f1) == len(found.sequential_cost)
    assert all(a >= b for a, b in zip(found.escalation_rate, found.escalation_rate[1:], strict=False))
    assert found.chosen is not None
    assert found.threshold[found.chosen] == pytest.approx(weighed.thresholds[chosen], abs=1e-6)
    for rate, cost in zip(found.escalation_rate, found.sequential_cost, strict=True):
        assert cost == pytest.approx(expected_cost(ModelCosts(large=3.0), rate, 0.05).sequential, abs=1e-4)
    assert found.escalation_rate[0] == pytest.approx(1.0, abs=1e-5)
    assert found.escalation_rate[-1] == pytest.approx(0.0, abs=1e-5)


def test_without_costs_the_frontier_tells_none() -> None:
    assert frontier(policies(np.ones(CELLS)), None, None).sequential_cost == ()


@given(mass=masses)
def test_a_histogram_keeps_the_mass_between_its_edges(mass: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    found = uncertainty_histogram(mass, GRID.edges)

    assert len(found.edges) == len(found.share) + 1
    assert (found.edges[0], found.edges[-1]) == (0.0, 1.0)
    # Each of 64 shares is rounded to five digits.
    assert sum(found.share) == pytest.approx(1.0, abs=4e-4)
    half = len(found.share) // 2
    assert sum(found.share[:half]) == pytest.approx(mass[GRID.centres < found.edges[half]].sum() / mass.sum(), abs=4e-4)


def test_without_traffic_there_is_no_histogram() -> None:
    assert uncertainty_histogram(np.zeros(CELLS), GRID.edges).share == ()


@given(values=st.lists(st.floats(-10.0, 10.0) | st.integers(0, 3_200).map(lambda part: part / 3_200), min_size=1))
def test_what_is_drawn_is_rounded_exactly_ties_included(values: list[float]) -> None:
    assert _rounded(np.array(values)) == tuple(round(value, 5) for value in values)
