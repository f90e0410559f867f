"""The account of a budget: what it allows, in the loop with queries that really cost something."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.fit.codec import dump, load
from recalibrator.fit.decide.accounts import Pacer
from recalibrator.fit.method_constants import MethodConstants
from schemas.traffic import VersionTraffic

BUDGET, SMALL, LARGE = 1.7, 1.0, 3.0
CONSTANTS = MethodConstants()


def part(cost: float, queries: int = 100, version: int | None = 1) -> VersionTraffic:
    return VersionTraffic(calibration_version=version, queries=queries, cost_sequential=cost)


def test_what_was_left_over_may_be_spent() -> None:
    """Cheap queries raise what the next ones may cost, dear ones lower it; exact ones change nothing."""
    cheap, dear, exact = (Pacer(BUDGET, CONSTANTS) for _ in range(3))
    cheap.on_traffic([part(160.0)])
    dear.on_traffic([part(180.0)])
    exact.on_traffic([part(170.0)])
    assert dear.allowed < BUDGET == exact.allowed < cheap.allowed
    assert cheap.standing.realised == 1.6
    assert cheap.standing.queries == 100


def test_a_cold_start_is_outside_the_budget() -> None:
    """Queries that no version decided run both models, which the versions after them are not to save up."""
    pacer = Pacer(BUDGET, CONSTANTS)
    pacer.on_traffic([part(400.0, version=None)])
    assert pacer.allowed == BUDGET
    assert pacer.standing.realised is None


@given(st.lists(st.tuples(st.floats(0.0, 2.0**52), st.integers(0, 2**53 - 1)), max_size=30))
def test_no_past_makes_corrections_unbounded(costs: list[tuple[float, int]]) -> None:
    """Whatever was spent, the next queries may cost what the budget says, give or take the largest correction."""
    pacer = Pacer(BUDGET, CONSTANTS)
    for cost, queries in costs:
        pacer.on_traffic([part(cost, queries)])
    most = CONSTANTS.correction_most * BUDGET
    assert BUDGET - most <= pacer.allowed <= BUDGET + most


@given(st.lists(st.tuples(st.floats(100.0, 400.0), st.integers(1, 5_000)), min_size=1, max_size=30))
def test_realised_cost_is_that_of_the_window(costs: list[tuple[float, int]]) -> None:
    """The realised cost is the mean over the latest summaries that together hold at least the window's queries."""
    pacer = Pacer(BUDGET, CONSTANTS)
    for cost, queries in costs:
        pacer.on_traffic([part(cost, queries)])
    taken: list[tuple[float, int]] = []
    for one in reversed(costs):
        if sum(queries for _, queries in taken) >= CONSTANTS.budget_queries:
            break
        taken.append(one)
    standing = pacer.standing
    assert standing.queries == sum(queries for _, queries in taken)
    assert standing.realised == pytest.approx(sum(cost for cost, _ in taken) / standing.queries)


def windows(lag: int, *, jump: float = 1.0, queries: int = 60_000, seed: int = 5) -> list[float]:
    """Return the mean cost of each 10,000 queries, less the budget, relative to it.

    What escalates is drawn by the share that the allowed cost asks for. Halfway it becomes ``jump`` times as much as
    asked for, which nobody says: only the cost shows it. Summaries of 50 queries come ``lag`` summaries late.
    """
    rng, pacer, version = np.random.default_rng(seed), Pacer(BUDGET, CONSTANTS), 1
    late: deque[VersionTraffic] = deque()
    costs, rate = [], (BUDGET - SMALL) / LARGE
    for batch in range(queries // 50):
        wrong = jump if batch >= queries // 100 else 1.0
        cost = SMALL + LARGE * (rng.uniform(size=50) < rate * wrong)
        costs.append(cost)
        late.append(part(float(cost.sum()), 50, version))
        if len(late) > lag:
            pacer.on_traffic([late.popleft()])
        if batch % 5 == 0:
            rate, version = (pacer.allowed - SMALL) / LARGE, version + 1
            pacer.published(version)
    whole = np.concatenate(costs).reshape(-1, CONSTANTS.budget_queries).mean(axis=1)
    return [float(one) / BUDGET - 1.0 for one in whole]


def test_realised_cost_keeps_to_the_budget() -> None:
    """Draws alone would move the cost of 10,000 queries by .7 % of the budget (one standard deviation)."""
    assert max(map(abs, windows(lag=0))) < 0.005


def test_an_expectation_that_is_wrong_is_made_up_for() -> None:
    """Where a third more escalates than expected, the cost stays at the budget, but for the window of the change."""
    errors = windows(lag=0, jump=1.33)
    assert max(map(abs, errors)) < 0.01
    assert abs(errors[-1]) < 0.005


def test_late_summaries_do_not_make_the_cost_swing() -> None:
    """Summaries that come 1,000 queries late leave the mean cost of 10,000 queries within 1 % of the budget."""
    assert max(map(abs, windows(lag=20))) < 0.01


def test_most_windows_keep_to_the_budget_with_late_summaries() -> None:
    """With summaries 500 queries late nine windows in ten are within .5 %."""
    assert np.mean([abs(one) < 0.005 for seed in range(8) for one in windows(lag=10, seed=seed)]) > 0.9


def test_an_error_is_not_corrected_again_until_it_shows() -> None:
    """One overdraft, and ten versions before a query of theirs is reported: they save it once between them."""
    pacer, late = Pacer(BUDGET, CONSTANTS), deque[VersionTraffic]()
    for version in range(1, 200):
        overdraft = 400.0 if version == 100 else 0.0
        late.append(part(pacer.allowed * 100 + overdraft, 100, version))
        pacer.published(version)
        if len(late) > 10:
            pacer.on_traffic([late.popleft()])
        if version > 100:
            assert dump(pacer)["_balance"] < 1e-6
    assert dump(pacer)["_balance"] == pytest.approx(0.0, abs=1.0)


def test_a_late_correction_is_spread_over_more_queries() -> None:
    """The delay until a new version shows is measured in queries of older ones, and sets the horizon."""
    prompt, late = Pacer(BUDGET, CONSTANTS), Pacer(BUDGET, CONSTANTS)
    for version in range(2, 30):
        for pacer, unseen in ((prompt, 0), (late, 1_000)):
            pacer.published(version)
            pacer.on_traffic([part(BUDGET * unseen, unseen, version - 1)])
            pacer.on_traffic([part(BUDGET * 100, 100, version)])
    assert prompt.horizon == CONSTANTS.pace_queries
    assert late.horizon == pytest.approx(1_000 / np.sqrt(2.0))


def test_a_restored_account_goes_on_exactly() -> None:
    """State goes through a snapshot; of another budget only what queries have cost is carried over."""
    pacer = Pacer(BUDGET, CONSTANTS)
    pacer.published(2)
    for cost in (150.0, 190.0, 171.0):
        pacer.on_traffic([part(cost)])
    same, other = Pacer(BUDGET, CONSTANTS), Pacer(2.0, CONSTANTS)
    for one in (same, other):
        load(one, dump(pacer))
    assert same.standing == pacer.standing
    assert dump(same) == dump(pacer)
    assert other.allowed == 2.0
    assert other.standing.realised == pacer.standing.realised
