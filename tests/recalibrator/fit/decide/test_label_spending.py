"""A budget of labels: what is asked for, in the loop with queries that really draw their labels."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.core import Recalibrator
from recalibrator.fit.codec import dump, load
from recalibrator.fit.decide.accounts import LabelSpending
from schemas.calibration import LabelShares
from schemas.errors import ConfigError
from schemas.settings import LabelAllowance, WorkloadSettings
from schemas.traffic import GridSpec, TrafficSummary, VersionTraffic
from tests.support.cascade_stream import drive, typo_world
from tests.support.cascade_stream import settings as of_stream
from tests.support.orders import order
from tests.support.versions import sealed_version

START = datetime(2026, 1, 5, tzinfo=UTC)
STEP_S, ESCALATED, A_REFIT = 30.0, 0.3, 500
FIRST = LabelShares(0.05, 0.1)


def summary(at_s: float, queries: int, labels: int) -> TrafficSummary:
    part = VersionTraffic(calibration_version=1, queries=queries, labels_requested=labels)
    at = START + timedelta(seconds=at_s)
    return TrafficSummary(workload="w", first_routed_at=at, last_routed_at=at, grid=GridSpec(), versions=(part,))


def queries_a_second(at_s: float) -> float:
    """A day with a night, two bursts and an outage of two hours."""
    hour = at_s / 3_600.0 % 24.0
    if 15.0 < hour < 17.0:
        return 0.0
    rate = 2.0 + 1.8 * math.sin(2.0 * math.pi * (hour - 8.0) / 24.0)
    return rate * (10.0 if 13.0 < hour < 13.3 or 20.0 < hour < 20.2 else 1.0)


def days(spending: LabelSpending, count: int = 3) -> tuple[list[int], list[int]]:
    """Return the labels asked for and the queries of each day."""
    rng, shares, since = np.random.default_rng(3), FIRST, 0
    asked, routed = [0] * count, [0] * count
    for step in range(int(count * 86_400 / STEP_S)):
        at_s = step * STEP_S
        if not (queries := rng.poisson(STEP_S * queries_a_second(at_s))):
            continue
        above = rng.binomial(queries, ESCALATED)
        labels = rng.binomial(above, shares.escalated) + rng.binomial(queries - above, shares.kept)
        spending.take(summary(at_s, queries, labels), None)
        asked[int(at_s // 86_400)] += labels
        routed[int(at_s // 86_400)] += queries
        since += queries
        if since >= A_REFIT:
            shares, since = spending.shares(ESCALATED, shares) or shares, 0
    return asked, routed


def test_a_day_has_the_labels_of_its_budget() -> None:
    """Over nights, bursts and an outage each day has its labels within 2 %."""
    asked, _ = days(LabelSpending(LabelAllowance(per_day=2_000)))
    assert asked == [pytest.approx(2_000, rel=0.02)] * 3


def test_a_budget_by_queries_is_kept() -> None:
    asked, routed = days(LabelSpending(LabelAllowance(per_queries=0.02)))
    assert [a / b for a, b in zip(asked, routed, strict=True)] == [pytest.approx(0.02, rel=0.02)] * 3


def test_after_an_outage_nobody_is_flooded() -> None:
    """What an outage of a week left over is not asked for at once: shares grow twofold at most, to four times."""
    spending, shares = LabelSpending(LabelAllowance(per_day=864)), FIRST
    for step in range(100):
        spending.take(summary(step * STEP_S, 60, 0), None)
    before = spending.shares(ESCALATED, None)
    assert before is not None
    spending.take(summary(7 * 86_400.0, 60, 0), None)
    shares = spending.shares(ESCALATED, before) or before
    assert shares.kept <= 2.0 * before.kept


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
        spending.take(summary(at_s, queries, labels), None)
    shares = spending.shares(escalated)
    load(other, dump(spending))
    assert other.shares(escalated) == shares
    if shares is not None:
        assert 0.0 <= shares.kept <= shares.escalated <= 1.0
        assert any(budget.values()) or not any(shares)


def settings(**changed: object) -> WorkloadSettings:
    return WorkloadSettings.model_validate({"name": "w", "fields": ["iso"], "target": {"micro_f1": 0.9}} | changed)


def test_two_ways_to_say_how_many_labels_are_refused() -> None:
    both = {"labels": {"per_day": 200}, "sampling": {"label_probability_kept": 0.1}}
    with pytest.raises(ValueError, match=r"labels and sampling\.label_probability_kept both say"):
        settings(**both)
    for wrong in ({}, {"per_day": 200, "per_queries": 0.1}, {"per_day": -1}, {"per_queries": 1.5}):
        with pytest.raises((ValueError, ConfigError)):
            settings(labels=wrong)
    assert settings(labels={"per_day": 200}, sampling={"exploration_probability": 0.01}).labels is not None


def test_routers_ask_for_what_the_budget_says() -> None:
    """The fold publishes shares that keep the budget, from cold start on, and explores no more than is labelled."""
    world = typo_world(16_000, 20_000)
    core = Recalibrator(of_stream(labels={"per_queries": 0.08}, sampling={"exploration_probability": 0.03}))
    drive(core, world.draw, 6_000)
    run = drive(core, world.draw, 10_000, first=6_000, mean_delay=1.0)
    assert run.labels / 10_000 == pytest.approx(0.08, rel=0.15)
    for _, version in run.versions:
        assert version.exploration_probability <= version.label_probability_kept <= version.label_probability_escalated


def test_a_roll_back_asked_for_labels_by_the_default_shares() -> None:
    """While a version is held no fit is published, and the budget goes on at the shares that were in force."""
    world = typo_world(8_000, 20_000)
    core = Recalibrator(of_stream(labels={"per_day": 40_000}, sampling={"exploration_probability": 0.03}))
    first = drive(core, world.draw, 8_000).versions[0][1]
    before = core.current
    assert before is not None
    assert 0.0 < before.label_shares.kept < 0.05
    version = order(core, "activate", version=first.version)
    assert version is not None
    assert version.label_shares == before.label_shares


def test_a_workload_without_labels_asks_for_none() -> None:
    """Labels per day of 0: the next version asks for none and explores nothing, and the state says so."""
    world = typo_world(8_000, 20_000)
    core = Recalibrator(of_stream())
    drive(core, world.draw, 4_000)
    free = of_stream(labels={"per_day": 0}, sampling={"exploration_probability": 0.03})
    core = Recalibrator.restore(free, core.snapshot())
    drive(core, world.draw, 400, first=4_000)
    run = drive(core, world.draw, 3_600, first=4_400, mean_delay=1.0)
    version = core.current
    assert version is not None
    assert not any(version.label_shares)
    assert version.exploration_probability == 0.0
    assert run.labels == 0
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
