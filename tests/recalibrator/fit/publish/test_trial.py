"""Trials as the fit keeps them: begun and ended by people, compared by what routers and labelers tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.publish.trial import KEPT_LABELS
from recalibrator.grid import Grid
from schemas import CalibrationMap, TrialTraffic
from schemas.trial import CalibrationTrial, TrialStatus
from tests.recalibrator.fit.publish.test_versions import published
from tests.support.cascade_stream import START, Answers, drive, example, route, routed_batch, settings, typo_world
from tests.support.cores import driven, in_force, present, restarted
from tests.support.orders import MAP, note, order

WORLD = typo_world(4_000, 9_999, seed=12)


def told(core: Recalibrator) -> TrialStatus:
    return present(core.status().trial)


def running(core: Recalibrator) -> CalibrationTrial:
    return present(core.trial)


@pytest.fixture
def core() -> Recalibrator:
    """Version 1 lies in the history, version 2 is in force."""
    core = Recalibrator(settings())
    for threshold in (0.3, 0.5):
        order(core, "bootstrap", map=MAP, uncertainty_threshold=threshold)
    return core


@pytest.mark.parametrize(
    ("action", "version"), [("activate", 1), ("pin", 1), ("pin", 2), ("pin", None), ("stop_trial", None)]
)
def test_who_rolls_back_or_pins_ends_the_trial(core: Recalibrator, action: str, version: int | None) -> None:
    """And so does who stops it, which publishes nothing."""
    before = core.current
    order(core, "canary", version=1, share=0.5)
    made = order(core, action, version=version)
    assert (core.trial, told(core).ended_by) == (None, action)
    assert (made is None, core.current == before) == (action == "stop_trial",) * 2


def test_pinned_workload_allows_only_a_shadow(core: Recalibrator) -> None:
    """A pinned workload runs a shadow trial but refuses a canary."""
    order(core, "pin")
    order(core, "canary", version=1, share=0.5)
    assert (core.trial, note(core)) == (None, "canary refused: the workload is pinned; unpin it first")
    order(core, "shadow", version=1)
    assert running(core).mode == "shadow"
    assert order(core, "promote") is not None
    assert core.status().state == "pinned"


@pytest.mark.parametrize(
    ("action", "arguments", "because"),
    [
        ("shadow", {"version": 9}, "shadow refused: version 9 is not among those kept"),
        ("promote", {}, "promote refused: no trial is under way"),
        ("stop_trial", {}, "stop_trial refused: no trial is under way"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_a_reason(
    core: Recalibrator, action: str, arguments: dict[str, Any], because: str
) -> None:
    """A trial that is under way goes on, whatever else is refused."""
    assert order(core, action, **arguments) is None
    assert (core.trial, note(core)) == (None, because)
    order(core, "canary", version=1, share=0.5)
    trial = core.trial
    for refused in ("activate", "pin", "shadow"):
        order(core, refused, version=99)
        assert core.trial is trial
    fresh = Recalibrator(settings())
    order(fresh, "shadow", version=1, map=MAP, uncertainty_threshold=0.3)
    assert (fresh.trial, note(fresh)) == (None, "shadow refused: there is no version in force to compare with")


def canary_stream(core: Recalibrator, queries: int) -> list[tuple[bool, Any]]:
    """Route queries as routers do, label them all at once, and return which version served each."""
    trial = running(core)
    routed, rows = [], []
    for number in range(queries):
        answers, query_id, now = WORLD.draw(number), f"q-{number}", START + timedelta(seconds=number)
        acted = trial.acts_on(query_id)
        one = route(answers, query_id, "w", now, version=trial.version if acted else core.current)
        one = replace(one, request=one.request.model_copy(update={"requested": True, "probability": 1.0}))
        rows.append(one)
        routed.append((acted, one.label(now)))
        core.observe(routed[-1][1])
    tried, based = (
        [version.decide(row.answers.uncertainty, row.query_id).escalated for row in rows]
        for version in (trial.version, in_force(core))
    )
    summary = routed_batch(Grid(core.constants.grid), "w", rows)
    part = TrialTraffic(
        version=trial.version.version,
        queries=queries,
        escalated=sum(tried),
        base_escalated=sum(based),
        agreeing=sum(a == b for a, b in zip(tried, based, strict=True)),
        acted=sum(acted for acted, _ in routed),
    )
    core.observe(summary.model_copy(update={"trials": (part.model_copy(update={"version": 77}), part)}))
    return routed


def test_trial_compares_both_arms(core: Recalibrator) -> None:
    """A canary compares its arms by the queries and labels of each."""
    order(core, "pause")  # so that one version stays in force
    order(core, "canary", version=1, share=0.4)
    routed = canary_stream(core, 400)
    found = told(core)
    assert found.compared == 400
    tried, based = (present(arm.escalation_rate) for arm in (found.trial, found.base))
    assert tried > based
    assert found.agreement == pytest.approx(1.0 - (tried - based))
    assert present(found.trial.cost).sequential == pytest.approx(1.0 + 3.02 * tried)
    for arm, of_trial in ((found.trial, True), (found.base, False)):
        labels = [label for acted, label in routed if acted is of_trial]
        served = [label.large or label.small for label in labels]
        hits, size = sum(one.true_positives for one in served), sum(one.predicted for one in served)
        gold = sum(label.gold_count for label in labels)
        rate = sum(not one.true_positives == one.predicted == 6 for one in served) / len(labels)
        assert (arm.queries, arm.labels) == (len(labels), len(labels))
        quality, errors = present(arm.micro_f1), present(arm.error_rate)
        assert quality.estimate == pytest.approx(2 * hits / (size + gold))
        assert quality.lower < quality.estimate < quality.upper
        half = 1.96 * (rate * (1 - rate) / len(labels)) ** 0.5
        assert errors.estimate == pytest.approx(rate)
        assert errors.upper - errors.estimate == pytest.approx(half, rel=1e-3)
        assert arm.estimated_micro_f1 is not None


def test_explored_queries_counted_twenty_times_on_trial(core: Recalibrator) -> None:
    """Of 1,000 kept queries 50 explore, and the labels of those are sure; of the other 950 one in nineteen has one."""
    order(core, "canary", version=1, share=0.5)
    number = running(core).version.version
    for place in range(100):
        answers = Answers(0.1, (0 if place % 5 == 0 else 6, 6), (6, 6), 6, agree=False)
        label = example(answers, f"kept-{place}", "w", START + timedelta(days=1, seconds=place))[1]
        made = {"calibration_version": number, "large_probability": 0.05, "label_probability": 0.1, "agree": None}
        kept = {"large": None, "reason": "kept", "label_reason": "random"}
        explored = {"reason": "exploration", "label_reason": "exploration"}
        core.observe(label.model_copy(update=made | (explored if place < 50 else kept)))
    assert present(told(core).trial.micro_f1).estimate == pytest.approx(0.05 * 1.0 + 0.95 * 0.8)


def test_corrections_replace_and_withdrawals_remove(core: Recalibrator) -> None:
    order(core, "pause")
    order(core, "canary", version=1, share=1.0)
    routed = canary_stream(core, 30)
    assert told(core).trial.labels == 30
    for _, label in routed[:5]:
        core.observe(label)
        core.observe(label.model_copy(update={"revision": 2, "retracted": True}))
        core.observe(label)
    assert told(core).trial.labels == 25


def test_labels_of_a_trial_are_bounded(core: Recalibrator) -> None:
    order(core, "pause")
    order(core, "canary", version=1, share=1.0)
    _, label = canary_stream(core, 1)[0]
    for number in range(KEPT_LABELS + 10):
        core.observe(label.model_copy(update={"query_id": f"more-{number}"}))
    assert told(core).trial.labels == KEPT_LABELS


def test_a_map_on_trial_is_no_evidence_against_those_in_force() -> None:
    """A canary whose map is far off must not look like drift, nor as calibration error of the versions in force."""
    core = driven(WORLD, 1_500)
    before = core.status()
    wrong = CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.999, 0.999))
    order(core, "canary", version=999, map=wrong, uncertainty_threshold=0.05, share=1.0)
    trial = running(core).version
    for number in range(1_500, 2_100):
        now = START + timedelta(seconds=0.1 * number)
        _, label = example(WORLD.draw(number), f"q-{number}", "w", now, version=trial)
        core.observe(label)
    after = core.status()
    assert after.drift.state == before.drift.state == "ok"
    assert present(after.calibration_error.ece).estimate <= present(before.calibration_error.ece).upper


def test_a_shadow_changes_only_version_numbers() -> None:
    plain, tried = driven(WORLD, 1_000), driven(WORLD, 1_000)
    order(tried, "shadow", version=in_force(plain).version)
    order(plain, "resume")  # an act without consequence, so that both have come as far in time
    expected, found = (
        [
            version.model_dump(exclude={"version", "parent_version", "digest"})
            for _, version in drive(core, WORLD.draw, 2_000, first=1_000).versions
        ]
        for core in (plain, tried)
    )
    assert expected == found != []


def test_a_restored_core_continues_with_its_trial(core: Recalibrator) -> None:
    order(core, "pause")
    order(core, "canary", version=1, share=0.4)
    canary_stream(core, 60)
    again = restarted(core)
    assert (again.trial, again.snapshot()) == (core.trial, core.snapshot())
    assert again.status() == core.status()
    assert published(again, "promote").to_json() == published(core, "promote").to_json()
    assert again.snapshot() == core.snapshot()
