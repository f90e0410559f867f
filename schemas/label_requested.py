"""LabelRequested: a query whose right entities people are asked for; withdrawn by a record without value."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from schemas.entities import Entities, equal
from schemas.event import Event, Probability, QueryId, Timestamp, WorkloadName
from schemas.routed import LabelReason, ModelRole, RoutedEvent

#: How long people are asked for a query's label.
REQUEST_RETENTION_S = 7 * 24 * 3_600.0

RequestReason = Literal["exploration", "monitoring", "audit"]

_REASONS: dict[LabelReason, RequestReason] = {"exploration": "exploration", "random": "monitoring", "audit": "audit"}


class LabelRequested(Event):
    """A query that waits for a label, with all that a labeler needs (key: query_id)."""

    sent_by_others: ClassVar[bool] = False
    #: What the feedback must name.
    query_id: QueryId

    workload: WorkloadName
    #: The query.
    text: str
    #: The served answer, to start from.
    entities: Entities
    #: Which model gave it.
    answered_by: ModelRole
    #: What the other model answered, where it says something else; absent where it agrees, failed or did not run.
    other_entities: Annotated[Entities | None, Field(exclude_if=lambda answer: answer is None)] = None
    #: ``exploration``: the large model was run to compare; ``monitoring``: drawn at random, to watch the quality
    #: served; ``audit``: labels so far contradict each other or the models, and this one is to decide.
    reason: RequestReason
    #: With which the request was drawn, whatever the answer.
    probability: Probability
    #: g(u) of the version that decided, in [0, 1]: how likely the small answer was thought to be wrong. Absent where
    #: no version had decided, or the small model failed.
    error_probability: Annotated[Probability | None, Field(exclude_if=lambda error: error is None)] = None
    #: When the query was routed.
    requested_at: Timestamp

    @classmethod
    def from_result(cls, routed: RoutedEvent) -> Self:
        """Return the request that a result carries."""
        other = routed.large if routed.answered_by == "small" else routed.small
        said = other.entities if other is not None and other.valid else None
        return cls(
            query_id=routed.query_id,
            workload=routed.workload,
            text=routed.text,
            entities=routed.entities,
            answered_by=routed.answered_by,
            other_entities=None if said is None or equal(said, routed.entities) else said,
            reason=_REASONS[routed.label.reason or "random"],
            probability=routed.label.probability,
            error_probability=routed.decision.error_probability,
            requested_at=routed.routed_at,
        )
