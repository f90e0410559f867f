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
    name=texts,
    watches=texts,
    needs_labels=st.booleans(),
    state=choices(DriftState),
    statistic=reals,
    bound=reals,
    since=optional(timestamps),
    alarms=counts,
)
labeler_counts = dict.fromkeys(("labels", "skipped", "compared", "agreeing", "unanimous", "confirmed"), counts)
labelers = st.lists(
    st.builds(LabelerStatus, labeler=optional(texts), last_at=optional(timestamps), **labeler_counts), max_size=2
).map(tuple)
model_healths = st.builds(
    ModelHealth,
    state=st.sampled_from(["up", "probing", "down"]),
    calls=counts,
    failures=counts,
    latency_s=st.dictionaries(st.sampled_from(["p50", "p90", "p99"]), amounts),
    overloaded=st.booleans(),
    concurrency_limit=optional(counts),
    in_flight=counts,
    queued=counts,
)
trial_arms = st.builds(TrialArm, version=optional(counts), queries=counts, error_rate=optional(intervals))
trials = st.builds(
    TrialStatus,
    mode=choices(TrialMode),
    share=optional(probabilities),
    version=counts,
    started_at=timestamps,
    issued_by=texts,
    compared=counts,
    agreement=optional(probabilities),
    trial=trial_arms,
    base=trial_arms,
)
standings = st.builds(
    TargetStanding,
    binds=optional(st.sampled_from(["micro_f1", "fields.camera", "max_escalation", "cost"])),
    wanted_escalation=optional(probabilities),
    fields=st.dictionaries(texts, intervals, max_size=2),
    budget=optional(st.builds(BudgetStanding, allowed=amounts, realised=optional(amounts), queries=counts)),
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
    labels=st.builds(
        LabelStatus,
        requested=counts,
        delay_s=st.builds(DelayQuantiles, p50=optional(amounts)),
        per_hour=optional(amounts),
        by_labeler=labelers,
    ),
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
    saving=optional(st.builds(Saving, sequential=reals, paper=reals)),
    uncertainty=optional(st.builds(UncertaintyHistogram, share=st.lists(probabilities, max_size=2).map(tuple))),
    frontier=optional(
        st.builds(CostQualityCurve, micro_f1=st.lists(reals, max_size=2).map(tuple), chosen=optional(counts))
    ),
    trial=optional(trials),
    standing=optional(standings),
    routers=st.lists(
        st.builds(
            WorkloadRouter,
            instance_id=texts,
            ready=st.booleans(),
            version=optional(counts),
            models=st.dictionaries(st.sampled_from(["small", "large"]), model_healths, max_size=2),
            updated_at=timestamps,
        ),
        max_size=2,
    ).map(tuple),
    dead_letters=optional(
        st.builds(
            DeadLetterStatus,
            since=timestamps,
            total=counts,
            by_reason=st.lists(st.builds(DeadLetterCount, stage=texts, reason=texts, count=counts), max_size=2).map(
                tuple
            ),
        )
    ),
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
recalibrator_statuses = st.builds(
    RecalibratorStatus,
    instance_id=names,
    started_at=timestamps,
    updated_at=timestamps,
    stages=st.dictionaries(
        texts,
        st.builds(
            StageStatus,
            ready=st.booleans(),
            lag=st.dictionaries(texts, st.builds(TopicLag, records=counts, seconds=optional(amounts)), max_size=2),
        ),
        max_size=2,
    ),
    labelers=st.dictionaries(texts, labelers, max_size=2),
)
