"""One query's life: every small outcome against every large outcome under every kind of version."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Literal, get_args

import pytest

from schemas.basis import Handoff
from schemas.calibration import CalibrationVersion, LargeOnly, Target
from schemas.costs import ModelCosts
from schemas.draws import uniform
from schemas.routed import LabelRequest, ModelRole, ModelRun, QueryEvent, RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.settings_workload import HandoffSettings, Sampling
from stream_router.cascade.handoff import HandoffLever
from stream_router.cascade.lever import Asked, RunEnd
from stream_router.cascade.query_cascade import Ask, GiveUp, QueryCascade, Serve, Step, WaitFor
from stream_router.ports import TokenMark
from tests.support.versions import sealed_version

WORKLOAD = "photo-search"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
COSTS = ModelCosts(small=1.0, large=3.0)
SAMPLING = Sampling(exploration_probability=0.03, label_probability_kept=0.05, label_probability_escalated=0.10)
SETTINGS = WorkloadSettings(name=WORKLOAD, fields=("iso",), target=Target(micro_f1=0.9), sampling=SAMPLING)
U = 0.25
IDS = [f"q-{i}" for i in range(500)]
EXPLORED = next(i for i in IDS if uniform(i, WORKLOAD) < 0.03)
PLAIN = next(i for i in IDS if uniform(i, WORKLOAD) > 0.5)
LABELLED = next(i for i in IDS if 0.05 < uniform(i, WORKLOAD) < 0.10)

Kind = Literal["none", "cold_start", "kept", "threshold", "infeasible"]
Outage = Literal["serve_small", "wait"]
KINDS, OUTAGES = get_args(Kind), get_args(Outage)
VALID, FAILED, DOWN = ENDS = (RunEnd.VALID, RunEnd.FAILED, RunEnd.DOWN)


def version(kind: Kind, number: int = 7, **changed: Any) -> CalibrationVersion | None:
    if kind == "none":
        return None
    state = kind if kind in ("cold_start", "infeasible") else "active"
    changed |= {"uncertainty_threshold": 0.5 if kind == "kept" else 0.1, "state": state}
    return sealed_version(workload=WORKLOAD, version=number, created_at=NOW, **changed)


def asked(role: str, end: RunEnd) -> Asked:
    answer: dict[str, Any] = {"error": f"{role} {end.value}"}
    if end is VALID:
        answer = {"raw": "{}", "entities": {"iso": role}, "uncertainty": U, "completion_tokens": 3, "latency_s": 0.1}
    return Asked(ModelRun(model=role, valid=end is VALID, **answer), end)


def cascade(query_id: str = PLAIN, large_outage: Outage = "serve_small") -> QueryCascade:
    query = QueryEvent(query_id=query_id, text="iso 100", metadata={"page": 3})
    return QueryCascade(query, SETTINGS, large_outage=large_outage)


def go_on(life: QueryCascade, kind: Kind, *ends: tuple[ModelRole, RunEnd], now: datetime = NOW) -> Step:
    """Tell how asking the models ended, and return the next step."""
    for role, end in ends:
        if role == "small":
            life.small_ended(asked("small", end), version(kind), now)
        else:
            life.large_ended(asked("large", end))
    return life.next_step()


def run_both(life: QueryCascade, kind: Kind, small: RunEnd, large: RunEnd) -> Step:
    """Ask the models in the order that the cascade wants, and return the first step that is no call."""
    assert life.next_step() == Ask("small")
    step = go_on(life, kind, ("small", small))
    return go_on(life, kind, ("large", large)) if step == Ask("large") else step


def result(life: QueryCascade) -> RoutedEvent:
    step = life.next_step()
    assert isinstance(step, Serve)
    event = life.result(step.role, COSTS, "router-0")
    assert RoutedEvent.from_json(event.to_json()) == event
    return event


@pytest.mark.parametrize(("kind", "small", "large", "outage"), list(product(KINDS, ENDS, ENDS, OUTAGES)))
def test_rule_10_for_every_combination(kind: Kind, small: RunEnd, large: RunEnd, outage: Outage) -> None:
    life = cascade(large_outage=outage)
    step = run_both(life, kind, small, large)

    if small is VALID and kind == "kept":
        assert step == Serve("small")
        assert life.large is None
        event = result(life)
        assert (event.decision.reason, event.decision.escalated, event.large) == ("kept", False, None)
        assert (event.cost.sequential, event.cost.paper) == (1.0, 1.0)
        assert event.decision.large_probability == 0.03
        return
    if large is VALID:
        assert step == Serve("large")
    elif small is VALID:
        waits = large is DOWN and outage == "wait"
        assert step == (WaitFor(("large",)) if waits else Serve("small"))
    elif DOWN in (small, large):
        assert isinstance(step, WaitFor)
        assert step.roles == tuple(role for role, end in (("small", small), ("large", large)) if end is DOWN)
    else:
        assert step == GiveUp()
    if not isinstance(step, Serve):
        return

    event = result(life)
    cold = kind in ("none", "cold_start")
    reason = "cold_start" if cold else kind if small is VALID else "small_failed"
    assert event.decision.reason == ("degraded" if step.role == "small" else reason)
    assert (event.answered_by, event.entities, event.label.probability) == (step.role, {"iso": step.role}, 0.10)
    assert (event.decision.escalated, event.decision.large_probability) == (True, 1.0)
    assert event.decision.uncertainty == (U if small is VALID else None)
    assert event.decision.error_probability == (None if cold or small is not VALID else pytest.approx(0.2))
    assert event.decision.calibration_version == (None if cold else 7)
    assert event.decision.threshold == (None if cold else 0.2)
    assert (event.small, event.large) == (asked("small", small).run, asked("large", large).run)
    assert (event.cost.sequential, event.cost.paper) == (4.0, 3.0)
    assert (event.routed_at, event.routed_by, event.metadata) == (NOW, "router-0", {"page": 3})


@pytest.mark.parametrize("large", ENDS)
def test_explored_query_keeps_label_rate_and_propensity(large: RunEnd) -> None:
    life = cascade(EXPLORED)
    run_both(life, "kept", VALID, large)
    event = result(life)
    assert (event.decision.escalated, event.decision.large_probability) == (True, 0.03)
    served = ("exploration", "large") if large is VALID else ("degraded", "small")
    assert (event.decision.reason, event.answered_by) == served
    assert event.label == LabelRequest(requested=True, probability=0.05, reason="exploration")
    assert (event.cost.sequential, event.cost.paper) == (4.0, 3.0)


@pytest.mark.parametrize(
    ("outage", "then", "step", "reason"),
    [
        ("serve_small", [("large", VALID)], Serve("large"), "small_failed"),
        ("serve_small", [("small", VALID), ("large", DOWN)], Serve("small"), "degraded"),
        ("wait", [("small", VALID), ("large", DOWN)], WaitFor(("large",)), ""),
        ("wait", [("small", VALID), ("large", DOWN), ("large", VALID)], Serve("large"), "threshold"),
        ("serve_small", [("small", DOWN)], WaitFor(("small", "large")), ""),
        ("serve_small", [("small", FAILED)], WaitFor(("large",)), ""),
        ("serve_small", [("small", FAILED), ("large", FAILED)], GiveUp(), ""),
    ],
)
def test_what_becomes_of_a_query_that_both_were_down_for(
    outage: Outage, then: list[tuple[ModelRole, RunEnd]], step: Step, reason: str
) -> None:
    life = cascade(large_outage=outage)
    assert run_both(life, "threshold", DOWN, DOWN) == WaitFor(("small", "large"))
    assert go_on(life, "threshold", *then) == step
    assert not reason or result(life).decision.reason == reason


@pytest.mark.parametrize("kind", ["kept", "threshold", "none"])
def test_recovered_small_model_decides_as_usual(kind: Kind) -> None:
    life, later = cascade(), NOW + timedelta(minutes=5)
    run_both(life, "threshold", DOWN, DOWN)
    if go_on(life, kind, ("small", VALID), now=later) != Serve("small"):
        go_on(life, kind, ("large", VALID))
    event = result(life)
    assert event.decision.reason == {"none": "cold_start"}.get(kind, kind)
    assert (event.routed_at, event.large is None) == (later, kind == "kept")


@pytest.mark.parametrize("kind", KINDS)
def test_failed_large_call_is_not_repeated(kind: Kind) -> None:
    """A large model that failed while the small one was down is not asked again."""
    life = cascade()
    assert run_both(life, kind, DOWN, FAILED) == WaitFor(("small",))
    go_on(life, kind, ("small", VALID))
    event = result(life)
    decision = event.decision
    assert (event.answered_by, decision.reason, decision.escalated) == ("small", "degraded", True)
    assert (decision.large_probability, decision.uncertainty) == (1.0, U), "it ran whatever u is"
    assert (event.label.probability, event.cost.sequential) == (0.10, 4.0)


def test_a_result_without_an_answer_cannot_be_made() -> None:
    life = cascade()
    run_both(life, "threshold", FAILED, FAILED)
    for role in ("small", "large"):
        with pytest.raises(ValueError, match="gave no answer"):
            life.result(role, COSTS, "router-0")


def test_an_answer_that_comes_too_late_hands_nothing_over() -> None:
    """Both servers were down, and the large model failed on the query before the small one came back."""
    lever = HandoffLever(SETTINGS, HandoffSettings())
    late = QueryCascade(QueryEvent(query_id=PLAIN, text="t"), SETTINGS, [lever])
    by = sealed_version(workload=WORKLOAD, uncertainty_threshold=0.1, handoff=Handoff(margin=0.9))
    late.small_ended(asked("small", DOWN), by, NOW)
    late.large_ended(asked("large", FAILED))
    run = ModelRun(model="small", raw='{"iso": "1", "lens": null}', entities={"iso": "1"}, valid=True, uncertainty=U)
    late.small_ended(Asked(run, VALID, marks=(TokenMark(0, 1.0),)), by, NOW)
    assert late.next_step() == Serve("small")
    handoff = late.result("small", COSTS, "router-0").handoff
    assert handoff is not None
    assert (late.begun, handoff.characters, handoff.tokens) == ("", 0, 0)


def alone(query_id: str = PLAIN, large_outage: Outage = "serve_small") -> QueryCascade:
    """A query that comes while the large model answers alone, and the small one is asked of a tenth of all."""
    hour = LargeOnly(small_probability=0.1, since=NOW, until=NOW + timedelta(hours=1))
    life = cascade(query_id, large_outage)
    life.begin(version("threshold", large_only=hour), NOW)
    return life


def test_while_large_answers_alone_small_is_not_asked() -> None:
    life = alone()
    assert life.next_step() == Ask("large")
    go_on(life, "threshold", ("large", VALID))
    event = result(life)
    assert (event.small, event.answered_by) == (None, "large")
    assert (event.cost.sequential, event.cost.paper) == (3.0, 3.0)
    decision = event.decision
    assert (decision.escalated, decision.reason, decision.uncertainty) == (True, "large_only", None)
    assert (decision.large_probability, decision.small_probability) == (1.0, 0.1)
    assert event.label == LabelRequest(requested=False, probability=0.1)


@pytest.mark.parametrize("query_id", [EXPLORED, LABELLED])
def test_a_drawn_share_asks_both_and_is_labelled(query_id: str) -> None:
    """It was drawn before the small call: whatever version is in force after it decides others."""
    life = alone(query_id)
    assert run_both(life, "kept", VALID, VALID) == Serve("large")
    event = result(life)
    assert (event.answered_by, event.cost.sequential, event.cost.paper) == ("large", 4.0, 3.0)
    assert (event.decision.uncertainty, event.decision.reason) == (U, "large_only")
    assert (event.label.requested, event.label.probability) == (True, 0.1)


def test_a_share_that_small_fails_on_is_still_large_only() -> None:
    life = alone(EXPLORED)
    run_both(life, "kept", FAILED, VALID)
    event = result(life)
    assert (event.decision.reason, event.decision.uncertainty) == ("large_only", None)
    assert event.small == asked("small", FAILED).run


@pytest.mark.parametrize("large", [FAILED, DOWN])
@pytest.mark.parametrize("outage", OUTAGES)
def test_small_stands_in_where_large_alone_fails(large: RunEnd, outage: Outage) -> None:
    life = alone(large_outage=outage)
    step = go_on(life, "kept", ("large", large))
    if large is DOWN and outage == "wait":
        assert step == WaitFor(("large",))
        return
    assert life.can_do_without_large is (outage == "serve_small")
    assert step == Ask("small")
    go_on(life, "kept", ("small", VALID))
    event = result(life)
    assert (event.answered_by, event.decision.reason, event.decision.uncertainty) == ("small", "degraded", None)
    assert (event.decision.large_probability, event.decision.small_probability) == (1.0, 0.1)


def test_both_down_while_large_answers_alone_waits_for_either() -> None:
    life = alone()
    assert go_on(life, "none", ("large", DOWN), ("small", DOWN)) == WaitFor(("small", "large"))
    go_on(life, "none", ("small", VALID))
    assert result(life).decision.reason == "degraded"


def test_after_its_hour_the_cascade_decides_again() -> None:
    life, late, drawn = cascade(), NOW + timedelta(hours=2), alone().drawn
    assert drawn is not None
    life.begin(drawn.version, late)
    assert life.next_step() == Ask("small")
    life.small_ended(asked("small", VALID), drawn.version, late)
    assert life.drawn is not None
    assert life.drawn.decision.reason == "threshold"
