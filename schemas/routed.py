"""QueryEvent and RoutedEvent: a query, and its one committed result with everything needed to learn from it later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import to_json

from schemas.basis import BasisMark, HandoffName
from schemas.costs import QueryCost
from schemas.entities import Entities
from schemas.event import (
    DEFAULT_SIGNAL,
    Count,
    Event,
    Flag,
    JsonObject,
    Members,
    NonNegative,
    Ordinal,
    Part,
    Probability,
    QueryId,
    SignalName,
    Timestamp,
    Uncertainty,
    WorkloadName,
)

MAX_TEXT_CHARS = 32_768
MAX_METADATA_BYTES = 65_536


def _bounded(value: JsonObject) -> JsonObject:
    if (size := len(to_json(value))) > MAX_METADATA_BYTES:
        raise ValueError(f"holds {size} bytes of JSON, more than {MAX_METADATA_BYTES}: pass a reference")
    return value


Metadata = Annotated[JsonObject, AfterValidator(_bounded)]


class QueryEvent(Event):
    """One query to answer."""

    #: Unique; 1 to 512 characters.
    query_id: QueryId
    #: 1 to 32,768 characters.
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
    #: May be left out where one workload is configured, or a default one.
    workload: WorkloadName | None = None
    #: RFC 3339 with an offset.
    created_at: Timestamp | None = None
    #: Handed through to the result untouched; at most 64 KiB of JSON.
    metadata: Metadata | None = None


ModelRole = Literal["small", "large"]
DecisionReason = Literal[
    "threshold", "exploration", "cold_start", "infeasible", "small_failed", "kept", "degraded", "large_only"
]
LabelReason = Literal["random", "exploration", "audit"]
TrialMode = Literal["shadow", "canary"]


class TrialDecision(Part):
    """What a version on trial decided for the same query, beside what the version in force decided."""

    #: The one on trial.
    version: Ordinal
    #: ``shadow`` or ``canary``.
    mode: TrialMode
    #: Its decision.
    escalated: Flag
    #: The one in force.
    base_version: Ordinal
    #: Its decision.
    base_escalated: Flag
    #: Whether the trial's decision was the one acted on; the fields around this one are the trial's then.
    acted: Flag


class Decision(Part):
    """What the cascade decided for one query, and with which probability it would have run the large model."""

    #: Whether the large model was called.
    escalated: Flag
    #: One of ``threshold``, ``exploration``, ``cold_start``, ``infeasible``, ``small_failed``, ``kept``, ``degraded``,
    #: ``large_only``.
    reason: DecisionReason
    #: u of the small model's answer, in [0, 1], as the result's ``signal`` measures it; null when it failed.
    uncertainty: Uncertainty | None = None
    #: g(u) of the version in force.
    error_probability: Probability | None = None
    #: theta = g(uncertainty_threshold), for people.
    threshold: Probability | None = None
    #: Null before the first version.
    calibration_version: Count | None = None
    #: The propensity: probability, under the policy in force, that the large model ran for this query.
    large_probability: Probability
    #: The probability that the small model was asked; absent where it always is, which is unless the reason is
    #: ``large_only``.
    small_probability: Annotated[Probability | None, Field(exclude_if=lambda share: share is None)] = None
    #: While a version is on trial. Where it was acted on, everything else here is that version's.
    trial: TrialDecision | None = None


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions on many queries, shape (queries,) each."""

    #: Whether the large model is called, exploration included.
    escalated: NDArray[np.bool_]
    #: Whether exploration alone calls it.
    explored: NDArray[np.bool_]
    #: g(u); NaN where u is unknown, and in a cold start.
    error_probability: NDArray[np.float64]
    #: The propensity.
    large_probability: NDArray[np.float64]


class ModelRun(Part):
    """What one model did for one query; ``valid`` false and ``error`` set when it ran and failed.

    ``field_margins`` says how sure the small model was of each field: the mean margin p1 - p2 of the tokens of its
    value. It is there where the small call was streamed, and absent otherwise.
    """

    model: str
    raw: str | None = None
    entities: Entities | None = None
    valid: Flag
    uncertainty: Uncertainty | None = None
    completion_tokens: Count = 0
    finish_reason: str | None = None
    latency_s: NonNegative = 0.0
    error: str | None = None
    prompt_tokens: Count = 0
    field_margins: Annotated[Members[str, Probability] | None, Field(exclude_if=lambda margins: margins is None)] = None


class QueryHandoff(Part):
    """What was handed over for one query, while handing over is on; the large run is the answer made of both parts."""

    #: The handoff that the query was routed under, such as ``field@0.9``.
    name: HandoffName
    #: Of the small answer that the large model went on from; 0 where it began anew or did not run. The large run's
    #: ``completion_tokens`` are those that it generated itself.
    characters: Count = 0
    tokens: Count = 0
    #: Whether going on led to no valid answer, so that the large model was asked once more, alone.
    asked_again: Flag = False
    #: Generated and read in vain before it was asked again.
    lost_tokens: Count = 0
    lost_prompt_tokens: Count = 0
    #: Whether the query was drawn to compare with the large model alone.
    guarded: Flag = False
    #: The large model's answer without handoff, which was not served; null where the query was not drawn, or where
    #: nothing was handed over for it, so that the large run is this answer already.
    alone: ModelRun | None = None


class LabelRequest(Part):
    """Whether people are asked for this query's gold entities, with which probability and why."""

    requested: Flag
    probability: Probability
    reason: LabelReason | None = None


class RoutedEvent(Event):
    """The committed result of one query (key: query_id)."""

    sent_by_others: ClassVar[bool] = False

    query_id: QueryId
    workload: WorkloadName
    text: str
    entities: Entities
    answered_by: ModelRole
    decision: Decision
    small: ModelRun | None
    large: ModelRun | None
    cost: QueryCost
    label: LabelRequest
    routed_at: Timestamp
    routed_by: str
    metadata: Metadata | None = None
    #: How u was measured, such as ``token_margin``.
    signal: SignalName = DEFAULT_SIGNAL
    #: Null where nothing is handed over: not configured, or switched off in the version that decided.
    handoff: QueryHandoff | None = None
    #: Mark of what the answers rest on: prompt, fields, models.
    basis: BasisMark | None = None
    #: Mark of the key that label, exploration and trial were drawn with; absent where there was none.
    drawn_with: Annotated[str | None, Field(pattern=r"^[0-9a-f]{8}$", exclude_if=lambda mark: mark is None)] = None
    #: Name of the gateway's key that the query came by (``gateway.api_keys.NAME``); absent without one.
    caller: Annotated[str | None, Field(exclude_if=lambda name: name is None)] = None

    @property
    def large_alone(self) -> ModelRun | None:
        """What the large model said without handoff, where the query was drawn to compare; None where it was not."""
        if self.handoff is None or not self.handoff.guarded:
            return None
        return self.handoff.alone or self.large

    @model_validator(mode="after")
    def _answer_comes_from_a_run(self) -> Self:
        run = self.small if self.answered_by == "small" else self.large
        if run is None or not run.valid:
            raise ValueError(f"answered_by: {self.answered_by} did not give a valid answer")
        return self
