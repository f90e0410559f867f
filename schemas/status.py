"""Status snapshots for pages and alerts: of workloads by the fit, of routers and recalibrators by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import Field, JsonValue

from schemas.calibration import Interval, LargeOnly, Target, TargetStanding
from schemas.command import Action
from schemas.costs import CostRate
from schemas.event import (
    Count,
    Event,
    Flag,
    JsonObject,
    Many,
    Members,
    NonNegative,
    Part,
    Probability,
    Real,
    SignalName,
    Timestamp,
    Uncertainty,
    WorkloadName,
)
from schemas.trial import TrialStatus

WorkloadState = Literal[
    "cold_start",
    "active",
    "infeasible",
    "label_starved",
    "stale",
    "bad_labels_suspected",
    "labels_one_sided",
    "label_free",
    "paused",
    "pinned",
]
#: Those that need somebody.
BAD_STATES: frozenset[WorkloadState] = frozenset(
    {"infeasible", "bad_labels_suspected", "label_starved", "labels_one_sided", "stale"}
)

SilentSide = Literal["kept", "escalated"]
DriftState = Literal["ok", "suspected", "drifted", "insufficient_labels", "stale"]
#: Those of an alarm.
ALARMED: frozenset[DriftState] = frozenset({"suspected", "drifted"})


class DetectorStatus(Part):
    """One detector: what it watches, how far it is from its bound, and since when it has been in its state."""

    name: str
    watches: str
    needs_labels: Flag
    state: DriftState
    statistic: Real
    bound: Real
    since: Timestamp | None = None
    alarms: Count = 0


class DriftStatus(Part):
    """The detectors and what they say together."""

    state: DriftState
    detectors: Many[DetectorStatus] = ()


class DelayQuantiles(Part):
    """Seconds from routing to label."""

    p50: NonNegative | None = None
    p90: NonNegative | None = None


class LabelerCounts(Part):
    """What one labeler has said, and how often others said the same."""

    #: Answers given, corrections included; and queries skipped or answers withdrawn.
    labels: Count = 0
    skipped: Count = 0
    #: Answers to queries that another labeler had answered, and those equal to all of theirs.
    compared: Count = 0
    agreeing: Count = 0
    #: Answers to queries on which both models agreed, and those equal to the models' answer. A person who often
    #: contradicts two models that agree is likely to err, unless both models fail alike.
    unanimous: Count = 0
    confirmed: Count = 0

    last_at: Timestamp | None = None


class LabelerStatus(LabelerCounts):
    """One labeler; null where feedback named none."""

    labeler: str | None = None


class VerdictStatus(Part):
    """What people said of served answers as a whole, which moves no estimate; shares are over the latest 1,000.

    ``right_if_exact`` and ``right_if_wrong`` say how far verdicts can be relied on: over queries that have a requested
    label as well, of which there are ``labelled``.
    """

    #: Verdicts that came to stand, one a query.
    given: Count
    #: Share that is "right".
    right: Probability | None = None
    #: Share of the answers served meanwhile that labels find right in everything, by inverse propensity.
    exact: Probability | None = None
    labelled: Count = 0
    #: Share of "right" where the label says that the answer is exact, and where it says that it is not.
    right_if_exact: Probability | None = None
    right_if_wrong: Probability | None = None


#: How many ids a status names for people to look one up.
FEW_IDS = 3

#: How soon after its label a result is due: results are committed long before people label them.
RESULT_DUE_S = 60.0


class LabelsWithoutResult(Part):
    """Queries that the join has labels of, and no result; at the homes that one recalibrator owns, or summed."""

    queries: Count = 0
    #: When the latest label came of the query that has waited longest.
    oldest_at: Timestamp | None = None
    #: Those whose latest label came within the last hour, and more than ``RESULT_DUE_S`` ago.
    last_hour: Count = 0
    #: All labels that the join has taken within the last hour. A join that began, or whose homes changed, within it
    #: counts both from its first label on.
    labels_last_hour: Count = 0
    #: Ids of a few of these queries, for people who look one up; none that a label has named within a minute.
    latest: Many[str] = ()

    @classmethod
    def total(cls, parts: Sequence[LabelsWithoutResult]) -> LabelsWithoutResult | None:
        """Return the sum over recalibrators; None where no join reports.

        Examples
        --------
        >>> one = LabelsWithoutResult(queries=2, last_hour=1, labels_last_hour=40)
        >>> LabelsWithoutResult.total([one, one]).queries
        4
        """
        if not parts:
            return None
        return cls(
            queries=sum(one.queries for one in parts),
            oldest_at=min((one.oldest_at for one in parts if one.oldest_at is not None), default=None),
            last_hour=sum(one.last_hour for one in parts),
            labels_last_hour=sum(one.labels_last_hour for one in parts),
            latest=tuple(query_id for one in parts for query_id in one.latest)[:FEW_IDS],
        )


class LabelStatus(Part):
    """Labels asked for and got.

    Parameters
    ----------
    requested, received, pending : int
        Since the first query.
    """

    #: When traffic was first seen.
    since: Timestamp | None = None

    requested: Count = 0
    received: Count = 0
    #: Kish's size of the weighted sample behind the estimate.
    effective: NonNegative = 0.0

    pending: Count = 0
    delay_s: DelayQuantiles = DelayQuantiles()
    #: Labels of recent queries by their routing time.
    per_hour: NonNegative | None = None
    #: Share of recent queries for which a label was asked.
    requested_share: Probability | None = None
    #: The busiest first; filled in where it is served.
    by_labeler: Many[LabelerStatus] = ()
    #: Of all workloads together, since only its result says of which one a query is; filled in where it is served.
    without_result: Annotated[LabelsWithoutResult | None, Field(exclude_if=lambda found: found is None)] = None


class ReliabilityBin(Part):
    """One bin of the reliability diagram."""

    predicted: Probability
    observed: Probability
    count: Count


class CalibrationError(Part):
    """Prequential calibration error: every label scored against the version that routed it."""

    ece: Interval | None = None
    brier: Interval | None = None
    bins: Many[ReliabilityBin] = ()


class UncertaintyHistogram(Part):
    """Shares of recent queries by u; ``edges`` has one entry more than ``share``, from 0 to 1."""

    edges: Many[Uncertainty] = ()
    share: Many[Probability] = ()


class CostQualityCurve(Part):
    """What other thresholds would give: some policies "escalate u above the threshold", from all to none."""

    #: Parallel; the cost is empty while it is unknown.
    threshold: Many[Real] = ()
    escalation_rate: Many[Probability] = ()
    micro_f1: Many[Real] = ()
    sequential_cost: Many[NonNegative] = ()
    #: Index of the policy in force.
    chosen: Count | None = None


class Saving(Part):
    """Share of the cost of large-only that is saved; negative where the cascade costs more."""

    sequential: Real
    paper: Real


class VersionSummary(Part):
    """The version in force: why it was published and, by name, what it changed: the value before and after."""

    version: Count
    created_at: Timestamp
    trigger: str
    parent_version: Count | None = None
    changed: Members[str, tuple[JsonValue, JsonValue]] = Field(default_factory=dict)


class DeadLetterCount(Part):
    """Records set aside for one reason."""

    stage: str
    reason: str
    count: Count
    last_at: Timestamp | None = None


class DeadLetterStatus(Part):
    """Recent records that were set aside as malformed; those of an unreadable workload count for every one."""

    since: Timestamp
    total: Count = 0
    by_reason: Many[DeadLetterCount] = ()


class ModelHealth(Part):
    """One model server as a router sees it.

    ``state`` says whether the server answers anybody. ``concurrency_limit`` is how many calls it is given at a time;
    ``in_flight`` of them are at the server now, ``queued`` more wait in the router. ``overloaded``: calls wait because
    slow answers, time-outs or rejections have lowered the limit. ``up_since``: since when calls have been let through
    without a break, in this router; null while they are not. ``reason``: why it is not up, in the server's own words
    where it has any. ``misconfigured``: it answers, and refuses everybody as configured.
    """

    state: Literal["up", "probing", "down"]
    calls: Count = 0
    failures: Count = 0
    latency_s: Members[Literal["p50", "p90", "p99"], NonNegative] = Field(default_factory=dict)
    overloaded: Flag = False
    concurrency_limit: Count | None = None
    in_flight: Count = 0
    queued: Count = 0
    up_since: Timestamp | None = None
    reason: Annotated[str | None, Field(exclude_if=lambda reason: reason is None)] = None
    misconfigured: Annotated[Flag, Field(exclude_if=lambda misconfigured: not misconfigured)] = False


VersionSource = Literal["topic", "disk"]
#: ``first``: none was in force before. ``follows``: it was made while that one was in force. ``skips``: it was made
#: after versions that this router has not seen, as after a restart. ``forks``: the fit that made it did not know the
#: version in force, for it names an earlier parent or none; two fits may be at work, or one went on from old state.
VersionLineage = Literal["first", "follows", "skips", "forks"]


#: Where queries come from: the queries topic, or callers of a gateway, who wait for the answer.
Served = Literal["topic", "http"]


class VersionInUse(Part):
    """The version that a router decides by, since when, the one on trial beside it, and how u is measured there.

    ``source`` says where the version came from: the topic, or the router's own disk as long as the topic has brought
    none. ``lineage`` says how it follows the version that was in force before it in this router; see
    :data:`VersionLineage`. Both are null without a version.
    """

    version: Count | None
    since: Timestamp | None = None
    trial: Count | None = None
    signal: SignalName | None = None
    source: VersionSource | None = None
    lineage: VersionLineage | None = None


class WorkloadRouter(Part):
    """What one router, or one gateway, does for one workload."""

    instance_id: str
    serves: Served = "topic"
    ready: Flag
    silent: Flag = False
    version: Count | None = None
    since: Timestamp | None = None
    trial: Count | None = None
    models: Members[Literal["small", "large"], ModelHealth] = Field(default_factory=dict)
    updated_at: Timestamp


class OutageStatus(Part):
    """Model servers that fail more calls than usual: the share of recent calls of each without a valid answer."""

    small_failing: Probability = 0.0
    large_failing: Probability = 0.0


class LabelOutlook(Part):
    """What so many labels would buy, once they have come for long and while traffic stays as it is."""

    #: Share of queries that is labelled; and labels a day, at the mean rate of queries.
    per_query: Probability
    per_day: NonNegative | None = None
    #: Half the 95% interval of the expected micro-F1.
    half_width: NonNegative
    #: Sequential cost of a query under the threshold that would be chosen; None where it is not known.
    cost: NonNegative | None = None
    #: Queries after which a fall of 2 points that labels alone show raises an alarm, or stands half in the estimate,
    #: once its labels are in; None: never.
    found_after: Count | None = None


class LabelEffect(Part):
    """What the latest labels have changed: the threshold in force before them, and the one in force now.

    Costs and expected micro-F1 are those of both thresholds by today's estimate; ``measured`` is the micro-F1 of the
    answers that as many labels before them, and these labels, were given for.
    """

    labels: Count
    since: Timestamp
    uncertainty_threshold: tuple[Real, Real]
    cost: tuple[NonNegative, NonNegative] | None = None
    micro_f1: tuple[Probability, Probability]
    measured: tuple[Interval, Interval] | None = None


class LabelPlan(Part):
    """What labels buy: at several rates, in rising order, the present one of index ``now`` among them."""

    now: Count
    outlooks: Many[LabelOutlook]
    latest: LabelEffect | None = None


class CommandOutcome(Part):
    """What became of an operator's command."""

    #: As the command names itself.
    command_id: str | None = None

    action: Action
    #: Whether nothing was done, for the reason in ``note``.
    is_refused: Flag = False
    #: In force after the command; of ``shadow`` and ``canary``, the one on trial.
    version: Count | None = None
    #: In a few words, for people.
    note: str

    issued_by: str
    issued_at: Timestamp


class HandoffStatus(Part):
    """What handing the small model's certain part to the large one changes."""

    #: As configured, such as ``field@0.9``.
    name: str
    #: False after the fit has switched it off.
    active: Flag
    #: Of the recent calls of the large model: those that went on from a small answer, and those that had to be asked
    #: again.
    handed_over_share: Probability | None = None
    asked_again_share: Probability | None = None
    #: Queries for which it is known what the large model says alone as well.
    guarded: Count = 0
    #: Share of those with equal answers.
    agreement: Probability | None = None
    #: Labelled ones among those that the threshold escalated.
    labels: Count = 0
    #: micro-F1 of the large model alone less that with handoff, on escalated queries; the 95% interval holds at any
    #: time, however often one looks.
    micro_f1_loss: Interval | None = None


class MeasuredMicroF1(Interval):
    """The micro-F1 of what was served since a time, by the labels of these answers alone.

    The 95% interval holds at any time until a later window takes this one's place, however often one looks.
    """

    labels: Count
    since: Timestamp


Severity = Literal["bad", "warn", "calm", "good"]
#: Those that need somebody.
WORRYING: frozenset[Severity] = frozenset({"bad", "warn"})


class Link(Part):
    """What a page's button says, and where on the page's site it leads."""

    label: str
    href: str


class Headline(Part):
    """What to say first of a workload.

    Parameters
    ----------
    kind : str
        Names the rule that spoke.
    cause, effect : str
        What is wrong, and what it does to the answers; ``sentence`` puts both together with ``since``.
    act : str
        What to do, in one sentence; empty where there is nothing to do.
    """

    kind: str
    severity: Severity
    cause: str
    since: Timestamp | None = None
    effect: str = ""
    act: str = ""
    link: Link | None = None
    sentence: str


class WorkloadStatus(Event):
    """How one workload keeps its promise, in one word, one sentence and numbers (key: workload).

    ``version``, ``routers``, ``dead_letters``, ``labels.by_labeler``, ``lag.records`` and ``lag.seconds`` come from
    other topics than the rest: they are null or empty on ``status``, and filled in where the status is served.
    ``micro_f1`` is what the version in force is expected to serve, by the estimate that chose it; ``measured`` what was
    served, over the latest 250 to 500 labels (``fast``) and 1,000 to 2,000 (``slow``).
    ``commands`` holds the outcomes of the latest commands, oldest first. ``standing`` is how the version in force meets
    a target that is more than a micro-F1, and what would bind a new one; absent otherwise. ``large_only`` is there
    while the large model answers alone; ``micro_f1`` is that of its answers then. ``headline`` is filled in where the
    status is served, and holds for a minute; ``sentence`` is what the fit alone knows.
    """

    sent_by_others: ClassVar[bool] = False

    workload: WorkloadName
    state: WorkloadState
    sentence: str
    calibration_version: Count | None = None
    uncertainty_threshold: Real | None = None
    threshold: Probability | None = None
    target: Target
    micro_f1: Interval | None = None
    per_field: Members[str, Probability] = Field(default_factory=dict)
    escalation_rate: Probability | None = None
    cost: CostRate | None = None
    labels: LabelStatus = LabelStatus()
    drift: DriftStatus
    calibration_error: CalibrationError = CalibrationError()
    queries: Count = 0
    lag: JsonObject | None = None
    updated_at: Timestamp | None = None
    details: JsonObject = Field(default_factory=dict)
    saving: Saving | None = None
    uncertainty: UncertaintyHistogram | None = None
    frontier: CostQualityCurve | None = None
    version: VersionSummary | None = None
    routers: Many[WorkloadRouter] = ()
    dead_letters: DeadLetterStatus | None = None
    trial: TrialStatus | None = None
    outage: OutageStatus | None = None
    commands: Many[CommandOutcome] = ()
    handoff: HandoffStatus | None = None
    large_only: Annotated[LargeOnly | None, Field(exclude_if=lambda alone: alone is None)] = None
    measured: Members[Literal["fast", "slow"], MeasuredMicroF1] = Field(default_factory=dict)
    verdicts: Annotated[VerdictStatus | None, Field(exclude_if=lambda verdicts: verdicts is None)] = None
    standing: Annotated[TargetStanding | None, Field(exclude_if=lambda standing: standing is None)] = None
    headline: Annotated[Headline | None, Field(exclude_if=lambda headline: headline is None)] = None
    label_plan: Annotated[LabelPlan | None, Field(exclude_if=lambda plan: plan is None)] = None

    @classmethod
    def cold_start(cls, workload: str, target: Target) -> Self:
        """Return the status of a workload from which no event has arrived yet."""
        return cls(
            workload=workload,
            state="cold_start",
            sentence="Nothing has come in yet; both models will answer every query until a first version is fitted.",
            target=target,
            drift=DriftStatus(state="insufficient_labels"),
        )

    def detail(self, name: str) -> Mapping[str, JsonValue]:
        """Return an object of the free-form details; empty where there is none."""
        found = self.details.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def on_trial(self) -> int | None:
        """The version on trial, while there is one."""
        return None if self.trial is None or self.trial.ended_at is not None else self.trial.version

    @property
    def servers(self) -> list[tuple[str, ModelHealth]]:
        """The model servers with their roles, as each router sees them that still reports."""
        return [(role, server) for one in self.routers if not one.silent for role, server in one.models.items()]


class RouterStatus(Event):
    """What one router instance runs, refuses and has done (key: instance_id).

    ``settings`` holds what it runs with, where that differs from the defaults: JSON by dotted key, secrets redacted, of
    prompts a digest. ``serves`` tells a router of the topic from a gateway.
    """

    sent_by_others: ClassVar[bool] = False

    instance_id: Annotated[str, Field(min_length=1)]
    started_at: Timestamp
    updated_at: Timestamp
    ready: Flag
    serves: Served = "topic"
    versions: Members[str, VersionInUse] = Field(default_factory=dict)
    rejected_versions: Members[str, Count] = Field(default_factory=dict)
    models: Members[str, Members[Literal["small", "large"], ModelHealth]] = Field(default_factory=dict)
    lag: Members[str, Count] = Field(default_factory=dict)
    in_flight: Count = 0
    counters: Members[str, Count] = Field(default_factory=dict)
    lag_s: Members[str, NonNegative] = Field(default_factory=dict)
    settings: Members[str, str] = Field(default_factory=dict)


_Router = TypeVar("_Router", WorkloadRouter, RouterStatus)


def that_answer(routers: Sequence[_Router]) -> list[_Router]:
    """Return the routers on which the answers hang: those of the topic, and gateways where there are no others.

    A gateway that is up answers none of the queries that wait in the topic.
    """
    return [one for one in routers if one.serves == "topic"] or list(routers)


class TopicLag(Part):
    """How far behind a stage is on one topic: in records, and by how old the newest record taken is."""

    records: Count = 0
    seconds: NonNegative | None = None


class StageStatus(Part):
    """One stage of a recalibrator; ``trouble`` says in a few words what keeps it from its work, or soon will."""

    ready: Flag
    lag: Members[str, TopicLag] = Field(default_factory=dict)
    trouble: str = ""


class RecalibratorStatus(Event):
    """What one recalibrator runs, how far behind it is and what its join has heard of labelers (key: instance_id).

    ``settings`` holds what it runs with, as in :class:`RouterStatus`.
    """

    sent_by_others: ClassVar[bool] = False

    instance_id: Annotated[str, Field(min_length=1)]
    started_at: Timestamp
    updated_at: Timestamp
    stages: Members[str, StageStatus] = Field(default_factory=dict)
    labelers: Members[str, Many[LabelerStatus]] = Field(default_factory=dict)
    #: None where no join runs.
    labels_without_result: LabelsWithoutResult | None = None
    #: By topic, since the process began: records that lay in another partition than their query's, sent on by the join.
    records_forwarded: Members[str, Count] = Field(default_factory=dict)
    settings: Members[str, str] = Field(default_factory=dict)


class HappeningEvent(Event):
    """Something that began, ended or was done; written by the fit with the status that shows it first."""

    sent_by_others: ClassVar[bool] = False

    workload: WorkloadName
    at: Timestamp
    #: ``outage``, ``alarm``, ``audit`` and ``set_aside``; the same with ``_over`` for their ends; ``act``. Later
    #: releases may write others.
    kind: str
    #: In plain words.
    sentence: str
    #: Whether somebody should look at it.
    is_bad: Flag = False
    #: Whose labels are set aside, or count again.
    labeler: str | None = None
