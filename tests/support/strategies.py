"""Hypothesis strategies of every event: any valid one, extreme values included."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

from hypothesis import strategies as st

from schemas import (
    CalibrationMap,
    CalibrationVersion,
    Command,
    CostRate,
    Decision,
    DetectorStatus,
    DriftStatus,
    Evidence,
    FeedbackEvent,
    FieldCounts,
    GridSpec,
    Interval,
    LabelledExample,
    LabelRequest,
    LabelRequested,
    ModelCosts,
    ModelRun,
    OutcomeCounts,
    QueryCost,
    QueryEvent,
    RoutedEvent,
    RouterStatus,
    Signal,
    Target,
    TrafficSummary,
    VersionTraffic,
    WorkloadStatus,
)
from schemas.command import Action
from schemas.event import MAX_INTEGER, Event
from schemas.routed import DecisionReason, LabelReason
from schemas.status import (
    CalibrationError,
    DelayQuantiles,
    DriftState,
    LabelStatus,
    ModelHealth,
    ReliabilityBin,
    VersionInUse,
    WorkloadState,
)

probabilities = st.floats(0.0, 1.0)
counts = st.integers(0, MAX_INTEGER)
ordinals = st.integers(1, MAX_INTEGER)
amounts = st.floats(0.0, float(MAX_INTEGER))
reals = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(min_size=1, max_size=12)
texts = st.text(max_size=20)
timestamps = st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | reals | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)
entity_values = st.none() | texts | st.lists(texts, max_size=3).map(tuple)
entities = st.dictionaries(texts, entity_values, max_size=4)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def choices(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


def increasing(values: st.SearchStrategy[Any], size: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, min_size=size, max_size=size, unique=True).map(lambda drawn: tuple(sorted(drawn)))


@st.composite
def calibration_maps(draw: st.DrawFn, min_knots: int = 1) -> CalibrationMap:
    size = draw(st.integers(min_knots, 6))
    return CalibrationMap(
        uncertainty=draw(increasing(probabilities, size)),
        error_probability=tuple(sorted(draw(st.lists(probabilities, min_size=size, max_size=size)))),
    )


intervals = st.builds(Interval, estimate=reals, lower=reals, upper=reals)
cost_rates = st.builds(CostRate, sequential=amounts, paper=amounts, large_only=amounts)
targets = st.builds(
    Target, micro_f1=st.floats(0.0, 1.0, exclude_min=True, exclude_max=True), safety=st.floats(0.0, 10.0)
)
signals = st.builds(Signal, small_model=texts, decoding=st.sampled_from(["free", "json_schema"]))
model_costs = st.builds(
    ModelCosts,
    small=st.floats(0.0, float(MAX_INTEGER), exclude_min=True),
    large=st.floats(0.0, float(MAX_INTEGER), exclude_min=True),
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
def calibration_versions(draw: st.DrawFn, **fixed: Any) -> CalibrationVersion:
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


queries = st.builds(
    QueryEvent,
    query_id=names,
    text=names,
    workload=optional(names),
    created_at=optional(timestamps),
    metadata=optional(json_objects),
)


@st.composite
def routed_events(draw: st.DrawFn, **fixed: Any) -> RoutedEvent:
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
    }
    return RoutedEvent(**content | fixed)


feedback_events = st.builds(
    FeedbackEvent,
    query_id=names,
    entities=optional(entities),
    labeler=optional(texts),
    labelled_at=optional(timestamps),
    source=optional(texts),
    feedback_id=optional(names),
    revision=ordinals,
    retracted=st.booleans(),
)


@st.composite
def labelled_examples(draw: st.DrawFn, **fixed: Any) -> LabelledExample:
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
        "per_field": draw(optional(st.dictionaries(texts, per_field, max_size=2))),
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
    )


@st.composite
def commands(draw: st.DrawFn) -> Command:
    action = draw(choices(Action))
    return Command(
        workload=draw(names),
        action=action,
        version=draw(ordinals if action == "activate" else optional(ordinals)),
        map=draw(optional(calibration_maps())),
        uncertainty_threshold=draw(optional(st.floats(-1.0, 1.0))),
        error_probability_threshold=draw(optional(probabilities)),
        examples=draw(optional(counts)),
        issued_by=draw(names),
        issued_at=draw(timestamps),
        reason=draw(texts),
    )


detectors = st.builds(
    DetectorStatus,
    name=texts,
    watches=texts,
    needs_labels=st.booleans(),
    state=choices(DriftState),
    statistic=reals,
    bound=reals,
    since=optional(timestamps),
    alarms=counts,
)
workload_statuses = st.builds(
    WorkloadStatus,
    workload=names,
    state=choices(WorkloadState),
    sentence=texts,
    calibration_version=optional(counts),
    uncertainty_threshold=optional(reals),
    target=targets,
    micro_f1=optional(intervals),
    per_field=st.dictionaries(texts, probabilities, max_size=2),
    cost=optional(cost_rates),
    labels=st.builds(LabelStatus, requested=counts, delay_s=st.builds(DelayQuantiles, p50=optional(amounts))),
    drift=st.builds(DriftStatus, state=choices(DriftState), detectors=st.lists(detectors, max_size=1).map(tuple)),
    calibration_error=st.builds(
        CalibrationError,
        ece=optional(intervals),
        bins=st.lists(
            st.builds(ReliabilityBin, predicted=probabilities, observed=probabilities, count=counts), max_size=2
        ).map(tuple),
    ),
    lag=optional(json_objects),
    updated_at=optional(timestamps),
    details=json_objects,
)
model_healths = st.builds(
    ModelHealth,
    state=st.sampled_from(["up", "probing", "down"]),
    calls=counts,
    failures=counts,
    latency_s=st.dictionaries(st.sampled_from(["p50", "p90", "p99"]), amounts),
)
router_statuses = st.builds(
    RouterStatus,
    instance_id=names,
    started_at=timestamps,
    updated_at=timestamps,
    ready=st.booleans(),
    versions=st.dictionaries(
        texts, st.builds(VersionInUse, version=optional(counts), since=optional(timestamps)), max_size=2
    ),
    rejected_versions=st.dictionaries(texts, counts, max_size=2),
    models=st.dictionaries(
        texts, st.dictionaries(st.sampled_from(["small", "large"]), model_healths, max_size=2), max_size=2
    ),
    lag=st.dictionaries(texts, counts, max_size=2),
    in_flight=counts,
    counters=st.dictionaries(texts, counts, max_size=2),
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

EVENTS: dict[str, st.SearchStrategy[Any]] = {
    "CalibrationVersion": calibration_versions(),
    "Command": commands(),
    "FeedbackEvent": feedback_events,
    "LabelRequested": label_requested,
    "LabelledExample": labelled_examples(),
    "QueryEvent": queries,
    "RoutedEvent": routed_events(),
    "RouterStatus": router_statuses,
    "TrafficSummary": traffic_summaries(),
    "WorkloadStatus": workload_statuses,
}
"""A strategy for each event by its class name."""

events: st.SearchStrategy[Event] = st.one_of(*EVENTS.values())
