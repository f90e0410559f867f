"""CalibrationVersion: what a router needs to decide, and the evidence behind it.

One version flows in by a compacted topic; decisions flow out. A version that contradicts itself (decreasing knots,
a number that is not finite, a digest of something else) cannot be constructed.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from schemas.canonical import digest
from schemas.deciding import Plan, Segment, segments
from schemas.draws import uniform
from schemas.event import (
    DEFAULT_SIGNAL,
    MAX_INTEGER,
    Count,
    Event,
    NonNegative,
    Ordinal,
    Part,
    Probability,
    Real,
    Timestamp,
    Uncertainty,
    WorkloadName,
    adopt,
)
from schemas.json_value import JsonObject
from schemas.routed import Decision, DecisionReason, Decisions, LabelReason, LabelRequest

MAX_KNOTS = 4_096
ESCALATE_ALL = -1.0
ESCALATE_NONE = 1.0

_AUDIT_SALT = "audit:"
"""Begins the salt of the audit's draw, which makes it independent of those of exploration and labels."""

CalibrationState = Literal["active", "cold_start", "infeasible"]


class CalibrationMap(Part):
    """The map g as knots: uncertainty strictly increasing, error probability non-decreasing."""

    uncertainty: Annotated[tuple[Uncertainty, ...], Field(max_length=MAX_KNOTS)]
    error_probability: Annotated[tuple[Probability, ...], Field(max_length=MAX_KNOTS)]

    @model_validator(mode="after")
    def _is_a_map(self) -> Self:
        knots, values = self.uncertainty, self.error_probability
        if len(knots) != len(values):
            raise ValueError(f"{len(knots)} uncertainty knots but {len(values)} error probabilities")
        if any(b <= a for a, b in pairwise(knots)):
            raise ValueError("uncertainty: knots must increase strictly")
        if any(b < a for a, b in pairwise(values)):
            raise ValueError("error_probability: must not decrease")
        return self


class Target(Part):
    """The promise: micro-F1 to hold, and the margin with which a threshold must meet it.

    Parameters
    ----------
    micro_f1 : float
        micro-F1 of the served answers.
    safety : float
        Standard errors by which the estimate must exceed the target.
    certified : float or None
        Confidence with which labels must prove that a threshold meets the target, before it is used; None: the
        estimate with its margin decides alone. Needs ``exploration_probability`` above 0, and thousands of labels.
    """

    micro_f1: Annotated[Real, Field(gt=0.0, lt=1.0)]
    safety: Annotated[Real, Field(ge=0.0, le=10.0)] = 0.5
    certified: Annotated[Real, Field(ge=0.5, lt=1.0)] | None = None


class Signal(Part):
    """What u was measured on; a map is valid for one uncertainty signal, model, prompt and decoding mode only."""

    kind: str = DEFAULT_SIGNAL
    small_model: str
    decoding: Literal["free", "json_schema"] = "free"


class ModelCosts(Part):
    """Cost of one call of each model; only the ratio matters.

    Parameters
    ----------
    small : float
        One call of the small model; the unit.
    large : float
        One call of the large model.
    """

    small: Annotated[Real, Field(gt=0.0, le=float(MAX_INTEGER))] = 1.0
    large: Annotated[Real, Field(gt=0.0, le=float(MAX_INTEGER))]


class Interval(Part):
    """An estimate with the bounds of its confidence interval."""

    estimate: Real
    lower: Real
    upper: Real


class CostRate(Part):
    """Mean cost of a query three ways, in units of one small call."""

    sequential: NonNegative
    paper: NonNegative
    large_only: NonNegative


class Evidence(Part):
    """The numbers behind a version.

    Parameters
    ----------
    trigger : str
        Why this version was made, for example ``bootstrap``, ``threshold_moved``, ``drift``, ``maximum_age``.
    window_from, window_to : datetime or None
        Span of routing times of the labels used.
    labels, pairs : int
        Labelled queries in the window, and those of them where both models ran.
    effective_labels, effective_pairs : float
        Kish sample sizes after weighting.
    ece, brier : Interval or None
        Prequential: each label scored by the version that routed it.
    micro_f1 : Interval or None
        Estimate at the chosen threshold; ``lower`` is the bound that the choice rests on.
    escalation_rate : float or None
        Expected share of queries with u above the threshold.
    expected_cost : CostRate or None
    best_micro_f1 : float or None
        The highest estimate that any threshold reaches, told when the target is infeasible.
    drift_state : str or None
    details : dict
        Further numbers by name, for people and plots.
    """

    trigger: str
    window_from: Timestamp | None = None
    window_to: Timestamp | None = None
    labels: Count = 0
    pairs: Count = 0
    effective_labels: NonNegative = 0.0
    effective_pairs: NonNegative = 0.0
    ece: Interval | None = None
    brier: Interval | None = None
    micro_f1: Interval | None = None
    escalation_rate: Probability | None = None
    expected_cost: CostRate | None = None
    best_micro_f1: Probability | None = None
    drift_state: str | None = None
    details: JsonObject = Field(default_factory=dict)


class CalibrationVersion(Event):
    """One version of the calibration of one workload (key: workload).

    While ``audit_probability`` is above 0, labels are suspected: trusted people are to label all explored queries, and
    this share of those above the threshold. In records of earlier releases it is absent.
    """

    workload: WorkloadName
    version: Ordinal
    created_at: Timestamp
    map: CalibrationMap
    uncertainty_threshold: Annotated[Real, Field(ge=ESCALATE_ALL, le=ESCALATE_NONE)]
    threshold: Probability | None
    exploration_probability: Probability
    label_probability_kept: Probability
    label_probability_escalated: Probability
    audit_probability: Probability = 0.0
    target: Target
    state: CalibrationState
    signal: Signal
    costs: ModelCosts | None = None
    evidence: Evidence
    parent_version: Count | None = None
    digest: str = ""

    @model_validator(mode="before")
    @classmethod
    def _digest_fits(cls, data: Any) -> Any:
        """Compare with the object as it came, so that fields of a later contract stay covered by the digest."""
        if isinstance(data, dict) and data.get("digest") and data["digest"] != digest(data):
            raise ValueError("digest: does not fit the content; the record was altered or cut")
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.state != "cold_start" and not self.map.uncertainty:
            raise ValueError(f"map: needs at least one knot in state {self.state}")
        if self.exploration_probability > min(self.label_probability_kept, self.label_probability_escalated):
            raise ValueError("exploration_probability: must not exceed the label probabilities")
        return self

    @model_serializer(mode="wrap")
    def _as_sealed(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what an earlier release did not know, or its digest would no longer fit."""
        fields: dict[str, Any] = dump(self)
        if "audit_probability" not in self.model_fields_set:
            fields.pop("audit_probability", None)
        return fields

    @classmethod
    def sealed(cls, **content: Any) -> Self:
        """Construct a version from its content and put the digest on it.

        Parameters
        ----------
        **content
            All fields but ``digest``.

        Raises
        ------
        pydantic.ValidationError
            If the content contradicts itself.
        """
        unsealed = cls(**content)
        return unsealed.model_copy(update={"digest": digest(unsealed.model_dump(mode="json"))})

    @property
    def is_sealed(self) -> bool:
        """Whether a digest is present; its fit is checked at construction."""
        return bool(self.digest)

    @cached_property
    def _segments(self) -> tuple[Segment, ...]:
        return segments(self.map.uncertainty, self.map.error_probability)

    @cached_property
    def _knots(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return np.asarray(self.map.uncertainty), np.asarray(self.map.error_probability)

    @overload
    def error_probability(self, uncertainty: float) -> float: ...
    @overload
    def error_probability(self, uncertainty: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def error_probability(self, uncertainty: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """Read the map g: linear between knots, clipped outside (paper, section 4.2).

        Parameters
        ----------
        uncertainty : float or ndarray of float, any shape
            u, in [0, 1].

        Returns
        -------
        float or ndarray of the same shape
            P(error | u), in [0, 1].

        Raises
        ------
        ValueError
            If the map has no knots, as in a cold start.
        """
        if not self.map.uncertainty:
            raise ValueError("map: a cold start has no error probability")
        if isinstance(uncertainty, np.ndarray):
            return np.interp(uncertainty, *self._knots)
        value, knot, width, rise = self._segments[bisect_right(self.map.uncertainty, uncertainty)]
        return value + (uncertainty - knot) / width * rise

    def decide(self, uncertainty: float | None, query_id: str) -> Decision:
        """Decide for one query: escalate iff u > ``uncertainty_threshold``, or when exploration draws it.

        Pure and deterministic: the draw is a hash of the query's id and the workload's name.

        Parameters
        ----------
        uncertainty : float or None
            u, in [0, 1]; None when the small model failed, which always escalates.
        query_id : str

        Returns
        -------
        Decision
            With the propensity that belongs to it.

        Raises
        ------
        ValueError
            If u is not a number in [0, 1].
        """
        threshold, knots, segments, above, explored, kept, without_u, names, keyed, explored_below = self._plan
        if uncertainty is None:
            return adopt(Decision, without_u.copy(), names)  # all of this validated version
        if not 0.0 <= uncertainty <= 1.0:
            raise ValueError(f"uncertainty: must lie in [0, 1] (got {uncertainty})")
        if uncertainty > threshold:
            fields = above.copy()
        else:
            drawn = keyed.copy()
            drawn.update(query_id.encode())
            fields = explored.copy() if drawn.digest() < explored_below else kept.copy()
        fields["uncertainty"] = uncertainty = float(uncertainty)
        if knots:
            value, knot, width, rise = segments[bisect_right(knots, uncertainty)]
            fields["error_probability"] = value + (uncertainty - knot) / width * rise
        return adopt(Decision, fields, names)  # as above, and u was checked

    @cached_property
    def _plan(self) -> Plan:
        if self.state == "cold_start":
            return Plan.of(self.workload, ESCALATE_ALL, "cold_start", "cold_start", self.exploration_probability)
        above: DecisionReason = "infeasible" if self.state == "infeasible" else "threshold"
        known, g = (self.threshold, self.version), (self.map.uncertainty, self._segments)
        return Plan.of(
            self.workload, self.uncertainty_threshold, above, "small_failed", self.exploration_probability, known, *g
        )

    def decide_many(self, uncertainty: NDArray[np.float64], draws: NDArray[np.float64] | None = None) -> Decisions:
        """Decide for many queries at once, as :meth:`decide` does for one.

        Parameters
        ----------
        uncertainty : ndarray, shape (queries,)
            u, in [0, 1]; NaN where the small model failed.
        draws : ndarray, shape (queries,), optional
            :func:`schemas.draws.uniform` of each query's id and the workload's name, by which queries are explored.
            None: no query is.

        Returns
        -------
        Decisions

        Raises
        ------
        ValueError
            If a u lies outside [0, 1].

        Examples
        --------
        >>> version = CalibrationVersion.sealed(
        ...     workload="w", version=1, created_at="2026-01-31T12:00:00Z", state="active",
        ...     map=CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.5)),
        ...     uncertainty_threshold=0.4, threshold=0.2, exploration_probability=0.02, label_probability_kept=0.1,
        ...     label_probability_escalated=0.1, target=Target(micro_f1=0.9), signal=Signal(small_model="m"),
        ...     evidence=Evidence(trigger="example"),
        ... )
        >>> many = version.decide_many(np.array([0.2, 0.6, np.nan]), draws=np.array([0.01, 0.5, 0.5]))
        >>> many.escalated.tolist(), many.explored.tolist(), many.error_probability.tolist()
        ([True, True, True], [True, False, False], [0.1, 0.3, nan])
        """
        least, most = np.fmin.reduce(uncertainty, initial=0.0), np.fmax.reduce(uncertainty, initial=0.0)
        if least < 0.0 or most > 1.0:
            raise ValueError(f"uncertainty: must lie in [0, 1] (got {least if least < 0.0 else most})")
        if self.state == "cold_start":
            everywhere = np.ones(uncertainty.shape, dtype=bool)
            return Decisions(everywhere, ~everywhere, np.full(uncertainty.shape, np.nan), np.ones(uncertainty.shape))
        kept = uncertainty <= self.uncertainty_threshold
        explored = np.zeros_like(kept) if draws is None else kept & (draws < self.exploration_probability)
        return Decisions(
            escalated=~kept | explored,
            explored=explored,
            error_probability=np.where(np.isnan(uncertainty), np.nan, self.error_probability(uncertainty)),
            large_probability=np.where(kept, self.exploration_probability, 1.0),
        )

    def request_label(self, decision: Decision, query_id: str) -> LabelRequest:
        """Decide whether people are asked for this query's gold entities, and which people.

        Exploration is drawn inside the label draw (the same hash), so explored queries are always labelled, and their
        marginal probability given u is that of the kept side: while an audit is open, trusted people are asked for
        them all. Above the threshold an audit is drawn by another hash, which adds to the probability of a label.

        Returns
        -------
        LabelRequest
            ``probability`` is that of being labelled for any reason, given u.
        """
        audit = self.audit_probability if decision.reason in ("threshold", "infeasible") else 0.0
        audited = audit > 0.0 and uniform(query_id, _AUDIT_SALT + self.workload) < audit
        if decision.reason == "cold_start":
            probability = max(self.label_probability_kept, self.label_probability_escalated)
        elif decision.reason in ("kept", "exploration"):
            probability = self.label_probability_kept
        else:
            probability = self.label_probability_escalated
        requested = audited or uniform(query_id, self.workload) < probability
        probability += (1.0 - probability) * audit
        reason: LabelReason | None = None
        if requested:
            explored = decision.reason == "exploration"
            audited = audited or (explored and self.audit_probability > 0.0)
            reason = "audit" if audited else "exploration" if explored else "random"
        return LabelRequest._trusted(requested=requested, probability=probability, reason=reason)  # noqa: SLF001 - as in decide
