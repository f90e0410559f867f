"""Whatever valid events say, the core neither raises nor forgets how to count."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recalibrator.core import Recalibrator
from schemas import Command, LabelledExample, OutcomeCounts, TrafficSummary
from schemas.event import MAX_INTEGER
from tests.support.cascade_stream import START, drive, settings, typo_world
from tests.support.cores import driven, in_force
from tests.support.strategies import commands, labelled_examples, traffic_summaries

HUGE = OutcomeCounts(true_positives=MAX_INTEGER, predicted=MAX_INTEGER)
WORLD = typo_world(1_200, 600, seed=16)
#: What makes an event one of the configured answers.
OURS: dict[str, Any] = {"signal": "token_margin", "basis": None, "handoff": None}
#: What a workload may turn on, each of which computes something else from the same events.
WORKLOADS: dict[str, dict[str, Any]] = {
    "calls": {},
    "no costs": {"cost": None},
    "tokens": {"cost": {"unit": "token", "small": 1.0, "large": 3.0, "prompt_small": 0.1, "prompt_large": 0.3}},
    "budget": {"target": {"cost": 2.0}},
    "cap": {"target": {"micro_f1": 0.93, "max_escalation": 0.5}},
    "fields": {"target": {"micro_f1": 0.93, "fields": {"a": 0.9}}},
    "labels a day": {"labels": {"per_day": 200}, "sampling": {"exploration_probability": 0.03}},
    "large only": {"large_only_when_dear": True},
    "handoff": {"handoff": {"margin": 0.9}},
}
REFIT = Command(workload="w", action="refit", issued_by="x", issued_at=START)


def of_ours(summary: TrafficSummary) -> TrafficSummary:
    parts = tuple(part.model_copy(update=OURS) for part in summary.versions)
    return summary.model_copy(update={"workload": "w", "versions": parts})


queries = st.integers(0, 60).map("h-{}".format)
labels = labelled_examples(workload="w", query_id=queries, label_requested=st.sampled_from([True, True, False]), **OURS)
huge_labels = labels.map(lambda one: one.model_copy(update={"gold_count": MAX_INTEGER, "small": HUGE}))
summaries = traffic_summaries().map(of_ours)
acts = commands().map(lambda one: one.model_copy(update={"workload": "w"}))


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
@hypothesis_settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(events=st.lists(st.one_of(labels, huge_labels, summaries, acts), max_size=16))
def test_no_valid_event_breaks_the_core(
    workload: dict[str, Any], events: list[LabelledExample | TrafficSummary | Command]
) -> None:
    """Versions and status validate themselves: neither holds a number that is not finite."""
    its_settings = settings(**workload)
    core = Recalibrator(its_settings)
    for event in (*events, REFIT):
        core.observe(event)
    core.status()
    state = core.snapshot()
    assert all(math.isfinite(value) for value in _numbers(json.loads(state)["state"]["_traffic"]))
    assert Recalibrator.restore(its_settings, state).snapshot() == state


@hypothesis_settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of(labels, summaries), min_size=1, max_size=8))
def test_a_running_core_takes_hostile_events_and_goes_on(events: list[LabelledExample | TrafficSummary]) -> None:
    core = Recalibrator.restore(settings(), _running())
    for event in (*events, REFIT):
        core.observe(event)
    drive(core, WORLD.draw, 300, first=900)
    assert in_force(core).decide(0.5, "q").error_probability is not None


@cache
def _running() -> bytes:
    return driven(WORLD, 900).snapshot()


def _numbers(value: object) -> list[float]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [float(value)] if isinstance(value, int | float) else [one for part in parts for one in _numbers(part)]
