"""Hypothesis strategies of every event: any valid one, extreme values included."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from schemas import (
    CalibrationMap,
    CalibrationTrial,
    CalibrationVersion,
    Command,
    Decision,
    Evidence,
    FeedbackEvent,
    FieldCounts,
    GridSpec,
    LabelledExample,
    LabelRequest,
    LabelRequested,
    ModelRun,
    OutcomeCounts,
    QueryCost,
    QueryEvent,
    RoutedEvent,
    TrafficSummary,
    TrialDecision,
    TrialTraffic,
    VersionTraffic,
)
from schemas.command import Action
from schemas.event import Event
from schemas.feedback import MAX_REVISION
from schemas.routed import DecisionReason, LabelReason, QueryHandoff, TrialMode
from schemas.status import HappeningEvent
from tests.support import status_strategies
from tests.support.value_strategies import (
    amounts,
    choices,
    cost_rates,
    counts,
    entities,
    increasing,
    intervals,
    json_objects,
    model_costs,
    names,
    optional,
    ordinals,
    probabilities,
    signals,
    targets,
    texts,
    timestamps,
)


@st.composite
def calibration_maps(draw: st.DrawFn, min_knots: int = 1) -> CalibrationMap:
    size = draw(st.integers(min_knots, 6))
    return CalibrationMap(
        uncertainty=draw(increasing(probabilities, size)),
        error_probability=tuple(sorted(draw(st.lists(probabilities, min_size=size, max_size=size)))),
    )


evidences = st.builds(
    Evidence,
    trigger=texts,
    window_from=optional(timestamps),
    labels=counts,
    effective_labels=amounts,
    ece=optional(intervals),
    escalation_rate=optional(probabilities),
    expected_cost=optional(cost_rates),
    details=json_objects,
)


@st.composite
def calibration_versions(draw: st.DrawFn, /, **fixed: Any) -> CalibrationVersion:
    """Draw sealed versions of every state; ``fixed`` holds fields that are given."""
    state = fixed.get("state") or draw(st.sampled_from(["active", "cold_start", "infeasible"]))
    explored, *labelled = sorted(draw(st.lists(probabilities, min_size=3, max_size=3)))
    content: dict[str, Any] = {
        "workload": draw(names),
        "version": draw(ordinals),
        "created_at": draw(timestamps),
        "map": draw(calibration_maps(min_knots=0 if state == "cold_start" else 1)),
        "uncertainty_threshold": draw(st.floats(-1.0, 1.0)),
        "threshold": draw(optional(probabilities)),
        "exploration_probability": explored,
        "label_probability_kept": labelled[0],
        "label_probability_escalated": labelled[1],
        "target": draw(targets),
        "state": state,
        "signal": draw(signals),
        "costs": draw(optional(model_costs)),
        "evidence": draw(evidences),
        "parent_version": draw(optional(counts)),
    }
    return CalibrationVersion.sealed(**content | fixed)


decisions = st.builds(
    Decision,
    escalated=st.booleans(),
    reason=choices(DecisionReason),
    uncertainty=optional(probabilities),
    error_probability=optional(probabilities),
    threshold=optional(probabilities),
    calibration_version=optional(counts),
    large_probability=probabilities,
    trial=optional(
        st.builds(
            TrialDecision,
            version=ordinals,
            mode=choices(TrialMode),
            escalated=st.booleans(),
            base_version=ordinals,
            base_escalated=st.booleans(),
            acted=st.booleans(),
        )
    ),
)
label_requests = st.builds(
    LabelRequest, requested=st.booleans(), probability=probabilities, reason=optional(choices(LabelReason))
)


def model_runs(valid: st.SearchStrategy[bool]) -> st.SearchStrategy[ModelRun]:
    return st.builds(
        ModelRun,
        model=texts,
        raw=optional(texts),
        entities=optional(entities),
        valid=valid,
        uncertainty=optional(probabilities),
        completion_tokens=counts,
        finish_reason=optional(texts),
        latency_s=amounts,
        error=optional(texts),
    )


handoffs = st.builds(
    QueryHandoff,
    name=names,
    characters=counts,
    tokens=counts,
    asked_again=st.booleans(),
    guarded=st.booleans(),
    alone=optional(model_runs(st.booleans())),
)
queries = st.builds(
    QueryEvent,
    query_id=names,
    text=names,
    workload=optional(names),
    created_at=optional(timestamps),
    metadata=optional(json_objects),
)


@st.composite
def routed_events(draw: st.DrawFn, /, **fixed: Any) -> RoutedEvent:
    """Draw results whose answer comes from a side that ran and was valid; ``fixed`` holds fields that are given."""
    served = draw(st.sampled_from(["small", "large"]))
    other = draw(optional(model_runs(st.booleans())))
    answer = draw(model_runs(st.just(value=True)))
    content: dict[str, Any] = {
        "query_id": draw(names),
        "workload": draw(names),
        "text": draw(texts),
        "entities": draw(entities),
        "answered_by": served,
        "decision": draw(decisions),
        "small": answer if served == "small" else other,
        "large": answer if served == "large" else other,
        "cost": QueryCost(sequential=draw(amounts), paper=draw(amounts)),
        "label": draw(label_requests),
        "routed_at": draw(timestamps),
        "routed_by": draw(texts),
        "metadata": draw(optional(json_objects)),
        "handoff": draw(optional(handoffs)),
    }
    return RoutedEvent(**content | fixed)


revisions = st.integers(1, MAX_REVISION)

feedback_events = st.builds(
    FeedbackEvent,
    query_id=names,
    entities=optional(entities),
    labeler=optional(texts),
    labelled_at=optional(timestamps),
    source=optional(texts),
    feedback_id=optional(names),
    revision=revisions,
    retracted=st.booleans(),
)


@st.composite
def labelled_examples(draw: st.DrawFn, /, **fixed: Any) -> LabelledExample:
    """Draw examples whose counts agree with each other; ``fixed`` holds fields that are given."""
    gold = draw(st.integers(0, 50))

    def outcome() -> OutcomeCounts:
        right = draw(st.integers(0, gold))
        return OutcomeCounts(true_positives=right, predicted=right + draw(st.integers(0, 50)))

    per_field = st.builds(FieldCounts, true_positives=counts, predicted=counts, gold=counts)
    content: dict[str, Any] = {
        "query_id": draw(names),
        "workload": draw(names),
        "uncertainty": draw(optional(probabilities)),
        "error_probability": draw(optional(probabilities)),
        "calibration_version": draw(optional(counts)),
        "small_exact": draw(st.booleans()),
        "small": outcome(),
        "large": outcome() if draw(st.booleans()) else None,
        "gold_count": gold,
        "large_probability": draw(probabilities),
        "label_probability": draw(probabilities),
        "label_requested": draw(st.booleans()),
        "reason": draw(choices(DecisionReason)),
        "agree": draw(optional(st.booleans())),
        "routed_at": draw(timestamps),
        "labelled_at": draw(timestamps),
        "revision": draw(ordinals),
        "retracted": draw(st.booleans()),
        "disputed": draw(counts),
        "per_field": draw(optional(st.dictionaries(texts, per_field, max_size=2))),
        "handoff": draw(optional(names)),
        "large_alone": outcome() if draw(st.booleans()) else None,
    }
    return LabelledExample(**content | fixed)


@st.composite
def version_traffics(draw: st.DrawFn, cells: int) -> VersionTraffic:
    cell = draw(st.lists(st.integers(0, cells - 1), unique=True, max_size=5).map(sorted))
    nested = [sorted(draw(st.lists(counts, min_size=3, max_size=3))) for _ in cell]
    return VersionTraffic(
        calibration_version=draw(optional(counts)),
        queries=draw(counts),
        cell=tuple(cell),
        count=tuple(triple[2] for triple in nested),
        pairs=tuple(triple[1] for triple in nested),
        agreeing=tuple(triple[0] for triple in nested),
        pairs_explored=tuple(draw(st.integers(0, triple[1])) for triple in nested),
        escalated=draw(counts),
        cost_sequential=draw(amounts),
        small_latency_s=draw(amounts),
        handoff=draw(optional(names)),
        handed_over=draw(counts),
        guarded=draw(counts),
    )


@st.composite
def traffic_summaries(draw: st.DrawFn) -> TrafficSummary:
    first, last = sorted((draw(timestamps), draw(timestamps)))
    grid = GridSpec(cells=draw(st.integers(2, 4_096)))
    return TrafficSummary(
        workload=draw(names),
        first_routed_at=first,
        last_routed_at=last,
        grid=grid,
        versions=tuple(draw(st.lists(version_traffics(grid.cells), min_size=1, max_size=2))),
        trials=tuple(
            draw(st.lists(st.builds(TrialTraffic, version=ordinals, queries=counts, acted=counts), max_size=2))
        ),
    )


shares = st.floats(0.0, 1.0, exclude_min=True)


@st.composite
def calibration_trials(draw: st.DrawFn) -> CalibrationTrial:
    version, share = draw(calibration_versions()), draw(optional(shares))
    return CalibrationTrial(
        workload=version.workload,
        mode="shadow" if share is None else "canary",
        share=share,
        version=version,
        base_version=draw(optional(counts)),
        started_at=draw(timestamps),
        issued_by=draw(names),
        reason=draw(texts),
    )


@st.composite
def commands(draw: st.DrawFn) -> Command:
    action = draw(choices(Action))
    return Command(
        workload=draw(names),
        action=action,
        version=draw(ordinals if action in ("activate", "shadow", "canary") else optional(ordinals)),
        share=draw(shares if action == "canary" else optional(shares)),
        map=draw(optional(calibration_maps())),
        uncertainty_threshold=draw(optional(st.floats(-1.0, 1.0))),
        error_probability_threshold=draw(optional(probabilities)),
        examples=draw(optional(counts)),
        issued_by=draw(names),
        issued_at=draw(timestamps),
        reason=draw(texts),
        command_id=draw(optional(names)),
        hold=draw(optional(st.booleans())),
        labeler=draw(names if action in ("believe", "compare_again") else optional(names)),
    )


happenings = st.builds(
    HappeningEvent,
    workload=names,
    at=timestamps,
    kind=names,
    sentence=texts,
    is_bad=st.booleans(),
    labeler=optional(names),
)

label_requested = st.builds(
    LabelRequested,
    query_id=names,
    workload=names,
    text=texts,
    entities=entities,
    answered_by=st.sampled_from(["small", "large"]),
    reason=st.sampled_from(["exploration", "monitoring", "audit"]),
    probability=probabilities,
    requested_at=timestamps,
)


#: A strategy for each event by its class name.
EVENTS: dict[str, st.SearchStrategy[Any]] = {
    "CalibrationTrial": calibration_trials(),
    "CalibrationVersion": calibration_versions(),
    "Command": commands(),
    "FeedbackEvent": feedback_events,
    "HappeningEvent": happenings,
    "LabelRequested": label_requested,
    "LabelledExample": labelled_examples(),
    "QueryEvent": queries,
    "RecalibratorStatus": status_strategies.recalibrator_statuses,
    "RoutedEvent": routed_events(),
    "RouterStatus": status_strategies.router_statuses,
    "TrafficSummary": traffic_summaries(),
    "WorkloadStatus": status_strategies.workload_statuses,
}

events: st.SearchStrategy[Event] = st.one_of(*EVENTS.values())
