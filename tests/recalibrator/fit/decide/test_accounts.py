"""The account of a budget: what it allows, in the loop with queries that really cost something.

A budget of labels: what is asked for, in the loop with queries that really draw their labels.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recalibrator.core import Recalibrator
from recalibrator.fit.codec import dump, load
from recalibrator.fit.decide.accounts import LabelSpending, Pacer
from recalibrator.fit.method_constants import MethodConstants
from schemas.calibration import LabelShares
from schemas.event import MAX_INTEGER
from schemas.settings_workload import LabelAllowance
from schemas.traffic import GridSpec, TrafficSummary, VersionTraffic
from tests.support.cascade_stream import drive, typo_world
from tests.support.cascade_stream import settings as of_stream
from tests.support.cores import driven, in_force, present, restarted
from tests.support.orders import order
from tests.support.versions import sealed_version

BUDGET, SMALL, LARGE = 1.7, 1.0, 3.0
CONSTANTS = MethodConstants()


def part(cost: float, queries: int = 100, version: int | None = 1) -> VersionTraffic:
    return VersionTraffic(calibration_version=version, queries=queries, cost_sequential=cost)


def book(pacer: Pacer, part: VersionTraffic) -> None:
    pacer.take_traffic(summarised(part))


def paid(parts: Iterable[VersionTraffic]) -> Pacer:
    """Return an account that has booked one summary after the other."""
    pacer = Pacer(BUDGET, CONSTANTS)
    for one in parts:
        book(pacer, one)
    return pacer


@given(st.lists(st.tuples(st.floats(0.0, 2.0**52), st.integers(0, 2**53 - 1)), max_size=30))
def test_no_past_makes_corrections_unbounded(costs: list[tuple[float, int]]) -> None:
    """Whatever was spent, the next queries may cost what the budget says, give or take the largest correction."""
    most = CONSTANTS.correction_most * BUDGET
    assert BUDGET - most <= paid(part(*one) for one in costs).allowed <= BUDGET + most


costs_and_queries = st.tuples(st.floats(0.0, MAX_INTEGER), st.integers(0, MAX_INTEGER))


@given(st.lists(costs_and_queries, min_size=1, max_size=4))
@example([(0.0, MAX_INTEGER)] * 2)
@example([(float(MAX_INTEGER), 0), (float(MAX_INTEGER), 1)])
def test_any_summary_leaves_the_standing_of_a_budget_valid(costs: list[tuple[float, int]]) -> None:
    """The sums of a summary's parts exceed what an event may hold."""
    pacer = Pacer(BUDGET, CONSTANTS)
    pacer.take_traffic(summarised(*(part(*one) for one in costs)))
    assert pacer.standing.queries <= MAX_INTEGER


def test_another_budget_takes_over_what_queries_cost_alone() -> None:
    other = Pacer(2.0, CONSTANTS)
    load(other, dump(dear := paid([part(190.0)])))
    assert dear.allowed < BUDGET
    assert (other.allowed, other.standing.realised) == (2.0, 1.9)


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
            book(pacer, late.popleft())
        if batch % 5 == 0:
            rate, version = (pacer.allowed - SMALL) / LARGE, version + 1
            pacer.published(version)
    whole = np.concatenate(costs).reshape(-1, CONSTANTS.budget_queries).mean(axis=1)
    return [float(one) / BUDGET - 1.0 for one in whole]


@pytest.mark.parametrize(("lag", "jump", "most"), [(0, 1.0, 0.005), (20, 1.0, 0.01), (0, 1.33, 0.01)])
def test_realised_cost_keeps_to_the_budget(lag: int, jump: float, most: float) -> None:
    """Draws alone would move the cost of 10,000 queries by .7 % of the budget (one standard deviation).

    Summaries may come 1,000 queries late. Where a third more escalates than expected, it costs the window of the
    change.
    """
    errors = windows(lag=lag, jump=jump)
    assert max(map(abs, errors)) < most
    assert lag or abs(errors[-1]) < 0.005


def test_most_windows_keep_to_the_budget_with_late_summaries() -> None:
    """With summaries 500 queries late nine windows in ten are within .5 %."""
    assert np.mean([abs(one) < 0.005 for seed in range(8) for one in windows(lag=10, seed=seed)]) > 0.9


START = datetime(2026, 1, 5, tzinfo=UTC)
STEP_S, ESCALATED, A_REFIT = 30.0, 0.3, 500
FIRST = LabelShares(0.05, 0.1)


def summary(at_s: float, queries: int, labels: int) -> TrafficSummary:
    return summarised(VersionTraffic(calibration_version=1, queries=queries, labels_requested=labels), at_s=at_s)


def summarised(*parts: VersionTraffic, at_s: float = 0.0) -> TrafficSummary:
    at = START + timedelta(seconds=at_s)
    return TrafficSummary(workload="w", first_routed_at=at, last_routed_at=at, grid=GridSpec(), versions=parts)


def queries_a_second(at_s: float) -> float:
    """A day with a night, two bursts and an outage of two hours."""
    hour = at_s / 3_600.0 % 24.0
    if 15.0 < hour < 17.0:
        return 0.0
    rate = 2.0 + 1.8 * math.sin(2.0 * math.pi * (hour - 8.0) / 24.0)
    return rate * (10.0 if 13.0 < hour < 13.3 or 20.0 < hour < 20.2 else 1.0)


def days(**allowance: float) -> tuple[list[int], list[int]]:
    """Return the labels asked for and the queries of each of three days."""
    rng, shares, since, spending = np.random.default_rng(3), FIRST, 0, LabelSpending(LabelAllowance(**allowance))
    asked, routed = [0] * 3, [0] * 3
    for at_s in np.arange(0.0, 3 * 86_400, STEP_S).tolist():
        if not (queries := rng.poisson(STEP_S * queries_a_second(at_s))):
            continue
        above = rng.binomial(queries, ESCALATED)
        labels = rng.binomial(above, shares.escalated) + rng.binomial(queries - above, shares.kept)
        spending.take_traffic(summary(at_s, queries, labels))
        asked[int(at_s // 86_400)] += labels
        routed[int(at_s // 86_400)] += queries
        since += queries
        if since >= A_REFIT:
            shares, since = spending.shares(ESCALATED, shares) or shares, 0
    return asked, routed


def test_a_day_has_the_labels_of_its_budget() -> None:
    """Over nights, bursts and an outage each day has its labels within 2 %, and so have its queries."""
    asked, _ = days(per_day=2_000)
    assert asked == [pytest.approx(2_000, rel=0.02)] * 3
    asked, routed = days(per_queries=0.02)
    assert [a / b for a, b in zip(asked, routed, strict=True)] == [pytest.approx(0.02, rel=0.02)] * 3


def test_after_an_outage_nobody_is_flooded() -> None:
    """What an outage of a week left over is not asked for at once: shares grow twofold at most, to four times."""
    spending = LabelSpending(LabelAllowance(per_day=864))
    for step in range(100):
        spending.take_traffic(summary(step * STEP_S, 60, 0))
    before = present(spending.shares(ESCALATED, None))
    spending.take_traffic(summary(7 * 86_400.0, 60, 0))
    assert present(spending.shares(ESCALATED, before)).kept <= 2.0 * before.kept


def test_a_night_without_queries_leaves_the_shares() -> None:
    """Summaries without a query go on; nobody is asked about everything once the rate of queries is forgotten."""
    spending = LabelSpending(LabelAllowance(per_day=200))
    spending.take_traffic(summary(0.0, 1_000, 1_000))
    # So long that what is left of the rate is hardly a number any more.
    spending.take_traffic(summary(61.5 * 3_600.0, 0, 100_000))
    assert spending.shares(ESCALATED, FIRST) == FIRST
    assert spending.shares(ESCALATED) is None


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=20),
    st.floats(0.0, 1.0),
    st.sampled_from([{"per_day": 200.0}, {"per_queries": 0.02}, {"per_day": 0.0}, {"per_queries": 1.0}]),
)
def test_shares_are_probabilities(
    batches: list[tuple[float, int, int]], escalated: float, budget: dict[str, float]
) -> None:
    """Whatever came before, clocks that go back included; and a snapshot goes on exactly."""
    allowance = LabelAllowance.model_validate(budget)
    spending, other = (LabelSpending(allowance) for _ in range(2))
    for at_s, queries, labels in batches:
        spending.take_traffic(summary(at_s, queries, labels))
    shares = spending.shares(escalated)
    load(other, dump(spending))
    assert other.shares(escalated) == shares
    if shares is not None:
        assert 0.0 <= shares.kept <= shares.escalated <= 1.0
        assert any(budget.values()) or not any(shares)


def test_a_roll_back_asked_for_labels_by_the_default_shares() -> None:
    """While a version is held no fit is published, and the budget goes on at the shares that were in force."""
    world = typo_world(8_000, 20_000)
    core = Recalibrator(of_stream(labels={"per_day": 40_000}, sampling={"exploration_probability": 0.03}))
    first = drive(core, world.draw, 8_000).versions[0][1]
    before = in_force(core).label_shares
    assert 0.0 < before.kept < 0.05
    assert present(order(core, "activate", version=first.version)).label_shares == before


def test_a_workload_without_labels_asks_for_none() -> None:
    """Labels per day of 0: the next version asks for none and explores nothing, and the state says so."""
    world = typo_world(8_000, 20_000)
    core = restarted(driven(world, 4_000), labels={"per_day": 0}, sampling={"exploration_probability": 0.03})
    drive(core, world.draw, 400, first=4_000)
    run, version = drive(core, world.draw, 3_600, first=4_400, mean_delay=1.0), in_force(core)
    assert not any((*version.label_shares, version.exploration_probability, run.labels))
    assert core.status().state == "label_free"


@given(st.floats(0.0, 1.0), st.booleans(), st.floats(0.0, 1.0), st.floats(-1.0, 1.0))
def test_the_probability_logged_is_the_versions(u: float, escalated: bool, audit: float, threshold: float) -> None:
    """``label_probability`` says for scalars and arrays what routers draw with and results log."""
    version = sealed_version(uncertainty_threshold=threshold, audit_probability=audit)
    decision = version.decide(u, "q")
    asked = version.request_label(decision, "q")
    assert version.label_probability(u, decision.escalated) == pytest.approx(asked.probability)
    both = version.label_probability(np.array([u, u]), np.array([escalated, escalated]))
    assert both.tolist() == [version.label_probability(u, escalated)] * 2
