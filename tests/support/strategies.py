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
    each,
    entities,
    few,
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
    fields = {
        "workload": names,
        "version": ordinals,
        "created_at": timestamps,
        "map": calibration_maps(min_knots=0 if state == "cold_start" else 1),
        "uncertainty_threshold": st.floats(-1.0, 1.0),
        "threshold": optional(probabilities),
        "target": targets,
        "signal": signals,
        "costs": optional(model_costs),
        "evidence": evidences,
        "parent_version": optional(counts),
    }
    shares = {"label_probability_kept": labelled[0], "label_probability_escalated": labelled[1]}
    content = draw(st.fixed_dictionaries(fields)) | shares | {"exploration_probability": explored, "state": state}
    return CalibrationVersion.sealed(**content | fixed)


trial_decisions = st.builds(
    TrialDecision,
    mode=choices(TrialMode),
    **each(ordinals, "version base_version"),
    **each(st.booleans(), "escalated base_escalated acted"),
)
decisions = st.builds(
    Decision,
    escalated=st.booleans(),
    reason=choices(DecisionReason),
    calibration_version=optional(counts),
    large_probability=probabilities,
    trial=optional(trial_decisions),
    **each(optional(probabilities), "uncertainty error_probability threshold"),
)
label_requests = st.builds(
    LabelRequest, requested=st.booleans(), probability=probabilities, reason=optional(choices(LabelReason))
)


def model_runs(valid: st.SearchStrategy[bool]) -> st.SearchStrategy[ModelRun]:
    return st.builds(
        ModelRun,
        model=texts,
        entities=optional(entities),
        valid=valid,
        uncertainty=optional(probabilities),
        completion_tokens=counts,
        latency_s=amounts,
        **each(optional(texts), "raw finish_reason error"),
    )


handoffs = st.builds(
    QueryHandoff,
    name=names,
    **each(counts, "characters tokens"),
    **each(st.booleans(), "asked_again guarded"),
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
    served, other = draw(st.permutations(["small", "large"]))
    fields = {
        "answered_by": st.just(served),
        served: model_runs(st.just(value=True)),
        other: optional(model_runs(st.booleans())),
        "entities": entities,
        "decision": decisions,
        "cost": st.builds(QueryCost, sequential=amounts, paper=amounts),
        "label": label_requests,
        "routed_at": timestamps,
        "metadata": optional(json_objects),
        "handoff": optional(handoffs),
        **each(names, "query_id workload"),
        **each(texts, "text routed_by"),
    }
    return RoutedEvent(**draw(st.fixed_dictionaries(fields)) | fixed)


revisions = st.integers(1, MAX_REVISION)

feedback_events = st.builds(
    FeedbackEvent,
    query_id=names,
    entities=optional(entities),
    labelled_at=optional(timestamps),
    feedback_id=optional(names),
    revision=revisions,
    retracted=st.booleans(),
    **each(optional(texts), "labeler source"),
)


@st.composite
def labelled_examples(draw: st.DrawFn, /, **fixed: Any) -> LabelledExample:
    """Draw examples whose counts agree with each other; ``fixed`` holds fields that are given."""
    gold = draw(st.integers(0, 50))

    right_and_more = st.tuples(st.integers(0, gold), st.integers(0, 50))
    outcomes = right_and_more.map(lambda one: OutcomeCounts(true_positives=one[0], predicted=sum(one)))
    per_field = st.builds(FieldCounts, true_positives=counts, predicted=counts, gold=counts)
    fields = {
        "gold_count": st.just(gold),
        "small": outcomes,
        "calibration_version": optional(counts),
        "reason": choices(DecisionReason),
        "agree": optional(st.booleans()),
        "revision": ordinals,
        "disputed": counts,
        "per_field": optional(st.dictionaries(texts, per_field, max_size=2)),
        "handoff": optional(names),
        **each(names, "query_id workload"),
        **each(optional(outcomes), "large large_alone"),
        **each(optional(probabilities), "uncertainty error_probability"),
        **each(probabilities, "large_probability label_probability"),
        **each(st.booleans(), "small_exact label_requested retracted"),
        **each(timestamps, "routed_at labelled_at"),
    }
    return LabelledExample(**draw(st.fixed_dictionaries(fields)) | fixed)


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
        trials=draw(few(st.builds(TrialTraffic, version=ordinals, queries=counts, acted=counts))),
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
    text=texts,
    entities=entities,
    **each(names, "query_id workload"),
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
