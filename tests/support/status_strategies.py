"""Hypothesis strategies of the statuses."""

from __future__ import annotations

from hypothesis import strategies as st

from schemas.calibration import BudgetStanding, TargetStanding
from schemas.routed import TrialMode
from schemas.status import (
    CalibrationError,
    CostQualityCurve,
    DeadLetterCount,
    DeadLetterStatus,
    DelayQuantiles,
    DetectorStatus,
    DriftState,
    DriftStatus,
    LabelerStatus,
    LabelStatus,
    ModelHealth,
    RecalibratorStatus,
    ReliabilityBin,
    RouterStatus,
    Saving,
    StageStatus,
    TopicLag,
    UncertaintyHistogram,
    VersionInUse,
    WorkloadRouter,
    WorkloadState,
    WorkloadStatus,
)
from schemas.trial import TrialArm, TrialStatus
from tests.support.value_strategies import (
    amounts,
    choices,
    cost_rates,
    counts,
    each,
    few,
    intervals,
    json_objects,
    names,
    optional,
    probabilities,
    reals,
    targets,
    texts,
    timestamps,
)

detectors = st.builds(
    DetectorStatus,
    needs_labels=st.booleans(),
    state=choices(DriftState),
    since=optional(timestamps),
    alarms=counts,
    **each(texts, "name watches"),
    **each(reals, "statistic bound"),
)
labelers = few(
    st.builds(
        LabelerStatus,
        labeler=optional(texts),
        last_at=optional(timestamps),
        **each(counts, "labels skipped compared agreeing unanimous confirmed"),
    )
)
model_healths = st.builds(
    ModelHealth,
    state=st.sampled_from(["up", "probing", "down"]),
    latency_s=st.dictionaries(st.sampled_from(["p50", "p90", "p99"]), amounts),
    overloaded=st.booleans(),
    concurrency_limit=optional(counts),
    **each(counts, "calls failures in_flight queued"),
)
models = st.dictionaries(st.sampled_from(["small", "large"]), model_healths, max_size=2)
trial_arms = st.builds(TrialArm, version=optional(counts), queries=counts, error_rate=optional(intervals))
trials = st.builds(
    TrialStatus,
    mode=choices(TrialMode),
    started_at=timestamps,
    issued_by=texts,
    **each(optional(probabilities), "share agreement"),
    **each(counts, "version compared"),
    **each(trial_arms, "trial base"),
)
standings = st.builds(
    TargetStanding,
    binds=optional(st.sampled_from(["micro_f1", "fields.camera", "max_escalation", "cost"])),
    wanted_escalation=optional(probabilities),
    fields=st.dictionaries(texts, intervals, max_size=2),
    budget=optional(st.builds(BudgetStanding, allowed=amounts, realised=optional(amounts), queries=counts)),
)
labels = st.builds(
    LabelStatus,
    requested=counts,
    delay_s=st.builds(DelayQuantiles, p50=optional(amounts)),
    per_hour=optional(amounts),
    by_labeler=labelers,
)
bins = st.builds(ReliabilityBin, predicted=probabilities, observed=probabilities, count=counts)
letters = st.builds(DeadLetterCount, stage=texts, reason=texts, count=counts)
routers = st.builds(
    WorkloadRouter,
    instance_id=texts,
    ready=st.booleans(),
    version=optional(counts),
    models=models,
    updated_at=timestamps,
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
    labels=labels,
    drift=st.builds(DriftStatus, state=choices(DriftState), detectors=few(detectors, 1)),
    calibration_error=st.builds(CalibrationError, ece=optional(intervals), bins=few(bins)),
    lag=optional(json_objects),
    updated_at=optional(timestamps),
    details=json_objects,
    saving=optional(st.builds(Saving, sequential=reals, paper=reals)),
    uncertainty=optional(st.builds(UncertaintyHistogram, share=few(probabilities))),
    frontier=optional(st.builds(CostQualityCurve, micro_f1=few(reals), chosen=optional(counts))),
    trial=optional(trials),
    standing=optional(standings),
    routers=few(routers),
    dead_letters=optional(st.builds(DeadLetterStatus, since=timestamps, total=counts, by_reason=few(letters))),
)
versions = st.builds(VersionInUse, version=optional(counts), since=optional(timestamps))
router_statuses = st.builds(
    RouterStatus,
    instance_id=names,
    ready=st.booleans(),
    versions=st.dictionaries(texts, versions, max_size=2),
    models=st.dictionaries(texts, models, max_size=2),
    in_flight=counts,
    **each(timestamps, "started_at updated_at"),
    **each(st.dictionaries(texts, counts, max_size=2), "rejected_versions lag counters"),
)
lags = st.builds(TopicLag, records=counts, seconds=optional(amounts))
stages = st.builds(StageStatus, ready=st.booleans(), lag=st.dictionaries(texts, lags, max_size=2))
recalibrator_statuses = st.builds(
    RecalibratorStatus,
    instance_id=names,
    stages=st.dictionaries(texts, stages, max_size=2),
    labelers=st.dictionaries(texts, labelers, max_size=2),
    **each(timestamps, "started_at updated_at"),
)
