"""Targets that are more than a micro-F1, in streams that the core's own versions route."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from schemas.calibration import CalibrationVersion
from schemas.draws import uniform
from schemas.labelled import FieldCounts, LabelledExample, OutcomeCounts
from tests.support.cascade_stream import FIELDS, drive, settings, typo_world
from tests.support.cores import in_force, present, restarted

QUERIES, MOST = 4_000, 12_000
WORLD = typo_world(MOST, MOST)
HITS = {"small": WORLD.small, "large": WORLD.large}


def right(query_id: str, model: str, hits: int) -> int:
    """Return whether a model has field a right, which is harder than the others: P = (hits / fields)²."""
    return int(uniform(query_id, f"a:{model}") < (hits / FIELDS) ** 2)


def with_fields(number: int, label: LabelledExample) -> LabelledExample:
    """Say what the answers were in field a, as the join does."""
    small, large = (right(label.query_id, model, int(hits[number])) for model, hits in HITS.items())
    served = small if label.large is None else large
    of_small = None if label.large is None else {"a": OutcomeCounts(true_positives=small, predicted=1)}
    counts = {"a": FieldCounts(true_positives=served, predicted=1, gold=1)}
    return label.model_copy(update={"per_field": counts, "small_per_field": of_small})


def expected_of_field(version: CalibrationVersion) -> float:
    """Return micro-F1 of field a in expectation: E[(k/n)²] of a binomial k is p² + p(1-p)/n."""
    chance = np.where(WORLD.uncertainty > version.uncertainty_threshold, WORLD.large_right, WORLD.small_right)
    return float((chance**2 + chance * (1.0 - chance) / FIELDS).mean())


def run(
    target: dict[str, Any], queries: int = QUERIES, **options: Any
) -> tuple[Recalibrator, list[CalibrationVersion]]:
    core = Recalibrator(settings(target=target))
    done = drive(core, WORLD.draw, queries, **options)
    return core, [version for _, version in done.versions]


@cache
def plain() -> tuple[CalibrationVersion, ...]:
    """Return the versions of a target of micro-F1 alone."""
    return tuple(run({"micro_f1": 0.93})[1])


def rate(version: CalibrationVersion, above: float | None = None) -> float:
    """Return the share of queries that the large model answers under a version: in truth, where that is not given."""
    above = float((WORLD.uncertainty > version.uncertainty_threshold).mean()) if above is None else above
    return above + (1.0 - above) * version.exploration_probability


def test_a_cap_comes_before_the_target() -> None:
    """No version escalates more than the cap, and all say what the target would take and what the cap costs."""
    free = rate(in_force(run({"micro_f1": 0.95})[0]))
    core, versions = run({"micro_f1": 0.95, "max_escalation": 0.25})
    assert free > 0.4
    assert max(rate(one, one.evidence.escalation_rate or 0.0) for one in versions) <= 0.25
    assert rate(versions[-1]) == pytest.approx(0.25, abs=0.02)
    standing = present(versions[-1].evidence.standing)
    assert standing.is_capped
    assert standing.wanted_escalation == pytest.approx(free, abs=0.1)
    assert core.status().state == "active"
    assert "the cap of 25% escalated costs 0.0" in core.status().sentence


def test_a_field_with_a_target_of_its_own_is_held() -> None:
    """Where a field is harder than all fields together, its target takes more escalation, and the status says so."""
    core, versions = run({"micro_f1": 0.93, "fields": {"a": 0.9}}, tell=with_fields)
    held = expected_of_field(versions[-1])
    assert expected_of_field(plain()[-1]) < 0.895 < held < 0.92
    standing = present(versions[-1].evidence.standing)
    assert standing.binds == "fields.a"
    assert standing.fields["a"].estimate == pytest.approx(held, abs=0.02)
    assert "; a 0.9" in core.status().sentence
    assert core.status().sentence.partition("; a query")[0].endswith("for 0.9; a binds")


def test_nothing_is_published_for_a_field_that_is_not_known() -> None:
    """Labels of a release that did not say what the small model gave in a field make no version for its target."""
    _, versions = run({"micro_f1": 0.93, "fields": {"a": 0.9}}, queries=3_000)
    assert versions == []


def test_a_budget_is_spent_and_not_exceeded() -> None:
    """What queries have really cost keeps to the budget, exploration included, and buys more than less would."""
    core = Recalibrator(settings(target={"cost": 1.9}))
    done = drive(core, WORLD.draw, MOST, batch=50)
    first = done.versions[0][0]
    called = np.array(done.large_called[first + 1 :])
    assert 1.0 + 3.02 * float(called[:10_000].mean()) == pytest.approx(1.9, rel=0.01)
    assert present(present(core.status().standing).budget).realised == pytest.approx(1.9, rel=0.01)
    assert "a query over the last" in core.status().sentence
    assert {version.state for _, version in done.versions} == {"active"}


@pytest.mark.parametrize("target", [{"cost": 1.9}, {"micro_f1": 0.93, "fields": {"a": 0.9}}], ids=["cost", "fields"])
def test_a_restart_changes_no_version(target: dict[str, Any]) -> None:
    """A core that goes on from its snapshot publishes the same bytes as one that never stopped."""
    whole, _ = run(target, 2_500, tell=with_fields)
    again = restarted(whole)
    assert again.snapshot() == whole.snapshot()
    assert again.status() == whole.status()
    went_on = [drive(core, WORLD.draw, 2_500, first=2_500, tell=with_fields).versions for core in (whole, again)]
    first, second = ([(number, version.to_json()) for number, version in versions] for versions in went_on)
    assert first
    assert first == second
    assert again.snapshot() == whole.snapshot()
    assert whole.status().standing is not None
