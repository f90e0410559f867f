"""TrafficSummary: what the fit needs to know of unlabelled traffic; additive counts on a grid of u."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.basis import BasisMark, HandoffName
from schemas.event import (
    DEFAULT_SIGNAL,
    Count,
    Event,
    Many,
    NonNegative,
    Ordinal,
    Part,
    Real,
    SignalName,
    Timestamp,
    WorkloadName,
)

MAX_CELLS = 4_096
#: Mostly 0, and then left out.
_Rare = Annotated[Count, Field(exclude_if=lambda count: not count)]
_Counts = Annotated[Many[Count], Field(max_length=MAX_CELLS)]


class GridSpec(Part):
    """A grid of u, logit-spaced between ``low`` and ``high``; the outermost cells take what lies beyond."""

    cells: Annotated[int, Field(strict=True, ge=2, le=MAX_CELLS)] = 512
    #: Not below what 1 - u can still tell apart: odds of much smaller u overflow.
    low: Annotated[Real, Field(ge=1e-15, lt=0.5)] = 1e-6
    high: Annotated[Real, Field(gt=0.5, lt=1.0)] = 1.0 - 1e-3


class VersionTraffic(Part):
    """Counts of the queries that one calibration version routed, u of which was measured one way."""

    #: Null before the first version.
    calibration_version: Count | None
    #: All results, those without u included.
    queries: Count
    #: Indices of the grid cells that are not empty, increasing.
    cell: _Counts = ()
    #: Parallel to ``cell``: queries with u, queries where both models answered validly, those of them with equal
    #: answers, and those of the pairs that exploration (or cold start) drew rather than the threshold.
    count: _Counts = ()
    pairs: _Counts = ()
    agreeing: _Counts = ()
    pairs_explored: _Counts = ()

    escalated: Count = 0
    explored: Count = 0
    small_failed: Count = 0
    #: Queries of which the small model was not asked.
    small_skipped: _Rare = 0
    degraded: Count = 0
    labels_requested: Count = 0
    small_calls: Count = 0
    large_calls: Count = 0
    #: Sums, in the unit of the configured prices.
    cost_sequential: NonNegative = 0.0
    cost_paper: NonNegative = 0.0
    #: Sums over the calls that were answered validly, in seconds.
    small_latency_s: NonNegative = 0.0
    large_latency_s: NonNegative = 0.0
    #: How u was measured, such as ``token_margin``.
    signal: SignalName = DEFAULT_SIGNAL
    #: Under which handoff the large model answered, such as ``field@0.9``; null: under none.
    handoff: HandoffName | None = None
    #: Queries for which the large model went on from the small answer, and those of them for which it was asked again.
    handed_over: _Rare = 0
    asked_again: _Rare = 0
    #: Queries for which it is known what the large model says alone as well, and those of them with equal answers.
    guarded: _Rare = 0
    guard_agreeing: _Rare = 0
    #: Generated and read; the large model's without those of comparisons.
    small_tokens: _Rare = 0
    small_prompt_tokens: _Rare = 0
    large_tokens: _Rare = 0
    large_prompt_tokens: _Rare = 0
    #: Of small answers that the large model went on from: it read them instead of generating them.
    handed_over_tokens: _Rare = 0
    #: Of large calls that gave no valid answer under a handoff; they are among the large model's.
    lost_tokens: _Rare = 0
    lost_prompt_tokens: _Rare = 0
    #: Mark of what the answers rest on: prompt, fields, models.
    basis: BasisMark | None = None

    @model_validator(mode="after")
    def _parallel(self) -> Self:
        parallel = (self.cell, self.count, self.pairs, self.agreeing, self.pairs_explored)
        if len(set(map(len, parallel))) > 1:
            raise ValueError("cell, count, pairs, agreeing and pairs_explored must have equal lengths")
        if any(b <= a for a, b in pairwise(self.cell)):
            raise ValueError("cell: must be strictly increasing")
        for count, pairs, agreeing in zip(self.count, self.pairs, self.agreeing, strict=True):
            if not agreeing <= pairs <= count:
                raise ValueError(f"agreeing {agreeing} <= pairs {pairs} <= count {count} does not hold")
        return self


class TrialTraffic(Part):
    """Counts of the queries for which a version on trial decided too."""

    #: The one on trial.
    version: Ordinal
    #: For which both decisions are known.
    queries: Count
    #: Of those: escalated by the version on trial, and by the one in force.
    escalated: Count = 0
    base_escalated: Count = 0
    #: With equal decisions.
    agreeing: Count = 0
    #: Decided by the version on trial.
    acted: Count = 0


class TrafficSummary(Event):
    """Traffic of one workload, seen by one join instance within a few seconds."""

    sent_by_others: ClassVar[bool] = False

    kind: Literal["traffic"] = "traffic"
    workload: WorkloadName
    first_routed_at: Timestamp
    last_routed_at: Timestamp
    grid: GridSpec
    versions: Annotated[Many[VersionTraffic], Field(min_length=1, max_length=1_000)]
    trials: Annotated[Many[TrialTraffic], Field(max_length=1_000)] = ()

    @model_validator(mode="after")
    def _cells_on_grid(self) -> Self:
        for part in self.versions:
            if part.cell and part.cell[-1] >= self.grid.cells:
                raise ValueError(f"cell {part.cell[-1]} lies outside a grid of {self.grid.cells}")
        return self
