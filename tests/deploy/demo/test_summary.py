"""The demo's figures are those of its observations."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from rich.console import Console

from schemas.costs import ModelCosts, TokenUse, query_cost
from schemas.routed import Decision, QueryEvent, QueryHandoff
from schemas.status import HandoffStatus
from schemas.topics import QUERIES
from tests.support.broker import unique_prefix
from tests.support.recalibrator_events import routed
from tests.support.versions import sealed_version
from tests.support.waiting import wait_until
from tests.support.workload_statuses import status
from ucci_demo.recorded.traffic import load_traffic
from ucci_stream.demo.run import publish_offline
from ucci_stream.demo.scenario import (
    PlannedQuery,
    Scenario,
    offline_set,
    plan_stream,
)
from ucci_stream.demo.summary import (
    Answered,
    Observations,
    SeenResult,
    SeenVersion,
    Terms,
    first_use,
    held_in_words,
    levers_of,
    phase_bounds,
    print_summary,
    summarise,
)
from ucci_stream.demo.watch import Watcher
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.local.stack import HANDOFF, WORKLOAD, Stack, StackOptions


def test_phases_follow_each_other_and_hold_their_shifts_alone() -> None:
    scenario = Scenario(queries=10_000)
    bounds = phase_bounds(scenario)
    assert bounds.pop("whole stream") == (0, 10_000)
    assert [at for at, _ in bounds.values()] == [0, *(end for _, end in bounds.values())][:-1]
    stream = plan_stream(load_traffic(), scenario)
    for one, (first, last) in zip(scenario.stretches, bounds.values(), strict=True):
        shifted = [query.recorded.shift for query in stream[first:last] if query.recorded.shift != "none"]
        assert set(shifted) <= {one.shift}
        assert len(shifted) / (last - first) == pytest.approx(one.shifted, abs=0.03)


def test_a_dead_router_is_not_charged_for_late_versions() -> None:
    seen = Observations(killed_router="router-1", killed_s=50.0, first_commit_after_kill_s=52.0)
    for published_s, delays in ((0.0, (9.0, 9.0)), (10.0, (0.02, 0.03)), (51.0, (0.04, 1.5)), (60.0, (0.05, 0.06))):
        first = {f"router-{n}": published_s + delay for n, delay in enumerate(delays)}
        seen.versions.append(SeenVersion(sealed_version(), published_s, first))
    found = first_use(seen)
    assert found == pytest.approx({"p50": 0.04, "p99": 0.06, "samples": 5})


@pytest.mark.parametrize(
    ("found", "words"),
    [(0.91, "held"), (0.9042, "missed, though within the tolerance"), (0.90, "missed")],
)
def test_a_target_missed_by_a_little_is_not_called_held(found: float, words: str) -> None:
    assert held_in_words(found, 0.91, 0.0067) == words


COSTS = ModelCosts(unit="token", small=1.0, large=3.0)
DEADLINE_S = 60.0
PHASES = {"first": (0, 2), "second": (2, 4), "nobody's": (4, 4)}
STATUS = status(handoff=HandoffStatus(name="token@0.9", active=True))


def answered(index: int, *, small: int, large: int | None, handed: int = 0) -> Answered:
    """Return a query and a result for which both models generated so many tokens; large None: it was kept."""
    query = PlannedQuery(f"q-{index}", index, load_traffic()[5_000 + index])
    event = routed(index)
    assert event.small is not None
    assert event.large is not None
    calls = [] if large is None else [TokenUse(generated=large)]
    changes = {
        "small": event.small.model_copy(update={"completion_tokens": small}),
        "large": None if large is None else event.large.model_copy(update={"completion_tokens": large}),
        "decision": Decision(escalated=large is not None, reason="threshold", large_probability=1.0),
        "cost": query_cost(COSTS, escalated=large is not None, small=TokenUse(generated=small), large=calls),
        "handoff": QueryHandoff(name="token@0.9", characters=handed, tokens=handed),
    }
    return query, event.model_copy(update=changes)


def test_what_the_handoff_saved_is_counted() -> None:
    first, second = (load_traffic()[5_000 + n] for n in range(2))
    kept = answered(0, small=first.small.tokens, large=None)
    up = answered(1, small=second.small.tokens, large=second.large.tokens - 9, handed=9)
    found = levers_of([kept, up], PHASES, COSTS, STATUS)
    assert found is not None
    whole = first.small.tokens + second.small.tokens + 3.0 * second.large.tokens
    paper = first.small.tokens + 3.0 * second.large.tokens
    assert found.handoff.saved.sequential == pytest.approx(27.0 / whole)
    assert found.handoff.saved.paper == pytest.approx(27.0 / paper)
    assert found.handoff.used == 1.0
    assert found.whole_calls["first"].sequential == pytest.approx(whole / 2)
    assert found.whole_calls["nobody's"].paper == 0.0
    assert levers_of([kept], PHASES, COSTS, status()) is None, "a handoff that is off is not spoken of"


def test_summary_says_what_was_saved_and_static_calls_are_whole() -> None:
    """In the table and as JSON; the static calibration hands over nothing."""
    pairs = [answered(n, small=20, large=20, handed=9) for n in range(20)]
    results = {query.query_id: SeenResult(routed, 1.0) for query, routed in pairs}
    stream, seen = [query for query, _ in pairs], Observations(results=results, status=STATUS)
    found = summarise(stream, seen, Scenario(queries=20), Terms(0.91, COSTS, static_thresholds={0.0: -1.0}))
    assert found.levers is not None
    whole, static = found.levers.whole_calls["whole stream"], found.rivals["static calibration"]["whole stream"]
    assert found.service["whole stream"].cost_sequential == pytest.approx(80.0)
    assert static.cost_sequential == pytest.approx(whole.sequential)
    assert static.cost_paper == pytest.approx(found.large_only_cost)
    document = json.loads(json.dumps(found.to_document()))
    assert document["levers"]["handoff"]["saved"]["paper"] > 0.0
    console = Console(width=200, record=True, file=io.StringIO())
    print_summary(found, console)
    text = console.export_text()
    assert "by whole calls" in text
    assert text.count("saves ") == 1


@pytest.mark.broker
def test_a_stack_with_a_handoff_answers_and_uses_it(broker: LocalBroker, tmp_path: Path) -> None:
    options = StackOptions(
        directory=tmp_path,
        broker=broker.bootstrap,
        prefix=unique_prefix(),
        routers=1,
        label_kept=0.2,
        label_escalated=0.2,
        handoff=True,
    )
    console, traffic, scenario = Console(quiet=True), load_traffic(), Scenario(queries=1_000)
    stream = plan_stream(traffic, scenario)
    with Stack(options, console) as stack, Watcher(stack.settings, stream, scenario) as watcher:
        publish_offline(stack, offline_set(traffic), watcher, console)
        assert watcher.seen.versions[0].version.handoff == HANDOFF
        topic, producer = QUERIES.name(options.prefix), Producer({"bootstrap.servers": broker.bootstrap})

        for query in stream:
            event = QueryEvent(query_id=query.query_id, text=query.recorded.text, created_at=datetime.now(UTC))
            producer.produce(topic, key=query.query_id.encode(), value=event.to_json())
        assert producer.flush(DEADLINE_S) == 0
        wait_until(lambda: watcher.answered == len(stream), "every query is answered")
        answers = [(query, watcher.seen.results[query.query_id].routed) for query in stream]
        costs = stack.settings.workloads[WORKLOAD].cost
        assert costs is not None
        assert watcher.seen.dead_letters == watcher.seen.duplicated == 0
        found = levers_of(answers, {}, costs, watcher.seen.status)
    assert found is not None
    assert found.handoff.used > 0.5
    assert found.handoff.saved.paper > 0.0
