"""LabelledExample: everything that the fit needs to know of one labelled query, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from schemas.basis import BasisMark, HandoffName
from schemas.entities import count_pairs, equal
from schemas.event import (
    DEFAULT_SIGNAL,
    Count,
    Event,
    Flag,
    Members,
    Ordinal,
    Part,
    Probability,
    QueryId,
    SignalName,
    Timestamp,
    Uncertainty,
    WorkloadName,
)
from schemas.feedback import FeedbackEvent, LabelerName, Verdict
from schemas.routed import DecisionReason, LabelReason, ModelRun, RoutedEvent


class OutcomeCounts(Part):
    """Pairs of one answer: those predicted, and those of them that are right."""

    true_positives: Count
    predicted: Count

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.true_positives > self.predicted:
            raise ValueError(f"true_positives {self.true_positives} exceeds predicted {self.predicted}")
        return self


class FieldCounts(Part):
    """Pairs of the served answer in one field."""

    true_positives: Count
    predicted: Count
    gold: Count


class LabelledExample(Event):
    """One routed query together with its gold entities, reduced to counts, or with a verdict alone.

    A verdict says whether the served answer is exact, and nothing of pairs: where nobody gave entities, all counts are
    null.
    """

    kind: Literal["labelled"] = "labelled"
    query_id: QueryId
    workload: WorkloadName
    uncertainty: Uncertainty | None
    error_probability: Probability | None = None
    calibration_version: Count | None = None
    small_exact: Flag | None
    #: ``large`` is null when the large model did not run. A model that ran and failed has zero counts.
    small: OutcomeCounts | None
    large: OutcomeCounts | None
    #: Number of gold pairs.
    gold_count: Count | None
    #: Propensities: that the large model ran, and that the label was requested.
    large_probability: Probability
    label_probability: Probability

    label_requested: Flag
    #: Why the label was requested: that of an ``audit`` comes from people whom the operator trusts.
    label_reason: LabelReason | None = None

    reason: DecisionReason
    #: Whether both models gave equal entities; null where one of them was not called or gave no valid answer.
    agree: Flag | None = None

    routed_at: Timestamp
    labelled_at: Timestamp
    #: Contributions of one query replace each other by the highest revision.
    revision: Ordinal = 1
    #: The query's earlier contribution is taken out and nothing put in its place.
    retracted: Flag = False
    #: Whose label it is; null where nobody is named.
    labeler: LabelerName | None = None
    #: Whether the workload names this labeler in ``trusted_labelers``; null where it names nobody.
    trusted: Flag | None = None
    #: Number of other labelers whose own label of this query, neither withdrawn nor skipped, differs from this one.
    disputed: Count = 0
    #: Counts of the served answer by field, for the status page and for targets of single fields.
    per_field: Members[str, FieldCounts] | None = None
    #: How u was measured, such as ``token_margin``; labels of another signal than the workload's do not count.
    signal: SignalName = DEFAULT_SIGNAL
    #: Under which handoff the large model answered, such as ``field@0.9``; null: under none. Labels under another one
    #: than that in force do not count.
    handoff: HandoffName | None = None
    #: Of the large model's answer without handoff, where the query was drawn to compare both.
    large_alone: OutcomeCounts | None = None
    #: Of the small model's answer by field, for the fields with a target of their own; absent where the small answer
    #: was served, whose counts ``per_field`` has.
    small_per_field: Annotated[Members[str, OutcomeCounts] | None, Field(exclude_if=lambda it: it is None)] = None
    #: Mark of what the answers rest on: prompt, fields, models. Labels of another one than the workload's do not count;
    #: those without one do.
    basis: BasisMark | None = None
    #: What was said last of the answer that was served; beside a label, somebody's verdict on the same query.
    verdict: Annotated[Verdict | None, Field(exclude_if=lambda verdict: verdict is None)] = None

    @property
    def is_counted(self) -> bool:
        """Whether somebody gave entities."""
        return self.small is not None

    @property
    def served(self) -> OutcomeCounts | None:
        """Counts of the answer that was served; a degraded one is the small model's."""
        return self.small if self.large is None or self.reason == "degraded" else self.large

    @property
    def served_exact(self) -> bool | None:
        """Whether the answer that was served is right in everything; None where nobody gave entities."""
        served = self.served
        return None if served is None else served.true_positives == served.predicted == self.gold_count

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        known = {self.small is None, self.gold_count is None, self.small_exact is None}
        if len(known) > 1 or (not self.is_counted and (self.verdict is None or self.large is not None)):
            raise ValueError("small_exact, small and gold_count: all are null beside a verdict alone, or none is")
        for name, counts in (("small", self.small), ("large", self.large), ("large_alone", self.large_alone)):
            if counts is not None and self.gold_count is not None and counts.true_positives > self.gold_count:
                raise ValueError(f"{name}.true_positives {counts.true_positives} exceeds gold_count {self.gold_count}")
        return self

    @classmethod
    def from_events(
        cls,
        routed: RoutedEvent,
        feedback: FeedbackEvent,
        *,
        fields: Iterable[str] | None = None,
        revision: int | None = None,
        arrived_at: datetime | None = None,
        trusted_labelers: Collection[str] = (),
        disputed: int = 0,
    ) -> Self:
        """Join one result with one label.

        Skipped or retracted feedback gives an example with ``retracted`` true, a verdict one without counts.
        ``trusted_labelers``: the workload's; where it names nobody, ``trusted`` stays null. Raises ValueError if the
        two events are of different queries.
        """
        if routed.query_id != feedback.query_id:
            raise ValueError(f"feedback of {feedback.query_id!r} does not belong to result {routed.query_id!r}")
        wanted = None if fields is None else tuple(fields)
        verdict = None if feedback.retracted else feedback.verdict
        small, large = routed.small, routed.large
        agree = None
        # An answer that failed says nothing of agreement: most failures are an outage, not a property of the query.
        if large is not None and small is not None and large.valid and small.valid:
            agree = equal(small.entities, large.entities, wanted)
        return cls(
            query_id=routed.query_id,
            workload=routed.workload,
            uncertainty=routed.decision.uncertainty,
            error_probability=routed.decision.error_probability,
            calibration_version=routed.decision.calibration_version,
            **(_NO_COUNTS if verdict is not None else _counts(routed, feedback.entities or {}, wanted)),
            large_probability=routed.decision.large_probability,
            label_probability=routed.label.probability,
            label_requested=routed.label.requested,
            label_reason=routed.label.reason,
            reason=routed.decision.reason,
            agree=agree,
            routed_at=routed.routed_at,
            labelled_at=feedback.labelled_at or arrived_at or routed.routed_at,
            revision=feedback.revision if revision is None else revision,
            retracted=feedback.retracted or (feedback.entities is None and verdict is None),
            labeler=feedback.labeler,
            trusted=(feedback.labeler in trusted_labelers) if trusted_labelers else None,
            disputed=disputed,
            signal=routed.signal,
            handoff=None if routed.handoff is None else routed.handoff.name,
            basis=routed.basis,
            verdict=verdict,
        )

    def with_small_counts(self, routed: RoutedEvent, feedback: FeedbackEvent, fields: Collection[str]) -> Self:
        """Return the example with the small answer's counts in some fields, where the large one was served."""
        if not (fields and self.is_counted) or routed.answered_by == "small":
            return self
        counted = {field: _outcome(routed.small, feedback.entities or {}, (field,))[0] for field in fields}
        return self.model_copy(update={"small_per_field": counted})


_Gold = dict[str, str | tuple[str, ...] | None]
_NO_COUNTS: dict[str, Any] = dict.fromkeys(("small_exact", "small", "large", "gold_count"))


def _counts(routed: RoutedEvent, gold: _Gold, fields: tuple[str, ...] | None) -> dict[str, Any]:
    small, large, alone = routed.small, routed.large, routed.large_alone
    counts, gold_count = _outcome(small, gold, fields)
    named = dict.fromkeys((*routed.entities, *gold)) if fields is None else fields
    return {
        "small_exact": small is not None and small.valid and equal(small.entities, gold, fields),
        "small": counts,
        "large": None if large is None else _outcome(large, gold, fields)[0],
        "gold_count": gold_count,
        "per_field": {one: FieldCounts(**count_pairs(routed.entities, gold, (one,))._asdict()) for one in named},
        # One that failed says nothing of what handing over costs.
        "large_alone": None if alone is None or not alone.valid else _outcome(alone, gold, fields)[0],
    }


def _outcome(run: ModelRun | None, gold: _Gold, fields: tuple[str, ...] | None) -> tuple[OutcomeCounts, int]:
    entities = run.entities if run is not None and run.valid else None
    counts = count_pairs(entities, gold, fields)
    return OutcomeCounts(true_positives=counts.true_positives, predicted=counts.predicted), counts.gold
