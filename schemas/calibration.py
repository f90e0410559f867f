"""CalibrationVersion: the map from uncertainty to error probability, the threshold on it, and the evidence for both.

Routers decide by a version. One that contradicts itself (decreasing knots, a number that is not finite, a digest of
something else) cannot be constructed.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from math import nextafter
from operator import ge, gt
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from schemas.basis import Basis, Handoff
from schemas.canonical import digest
from schemas.costs import CostRate, ModelCosts, Price
from schemas.draws import second, uniform
from schemas.event import (
    DEFAULT_SIGNAL,
    Count,
    Event,
    JsonObject,
    Many,
    Members,
    NonNegative,
    Ordinal,
    Part,
    Probability,
    Real,
    Timestamp,
    Uncertainty,
    WorkloadName,
)
from schemas.routed import Decision, DecisionReason, Decisions, LabelReason, LabelRequest

MAX_KNOTS = 4_096
#: The highest number that is taken into force or followed: above it, the next versions would run out of numbers.
HIGHEST_VERSION = 2**53 - 2**20

ESCALATE_ALL = -1.0
ESCALATE_NONE = 1.0

#: Begins the salt of the audit's draw, which makes it independent of those of exploration and labels.
_AUDIT_SALT = "audit:"

CalibrationState = Literal["active", "cold_start", "infeasible"]


class LabelShares(NamedTuple):
    """Share of the kept and of the escalated queries that people are asked to label, each in [0, 1]."""

    kept: float
    escalated: float

    def is_near(self, other: LabelShares, tolerance: float) -> bool:
        """Whether neither share differs from the other's by more than a part of it."""
        return all(abs(a - b) <= tolerance * b for a, b in zip(self, other, strict=True))


class CalibrationMap(Part):
    """The map g as knots: uncertainty strictly increasing, error probability non-decreasing."""

    uncertainty: Annotated[Many[Uncertainty], Field(max_length=MAX_KNOTS)]
    error_probability: Annotated[Many[Probability], Field(max_length=MAX_KNOTS)]

    @model_validator(mode="after")
    def _is_a_map(self) -> Self:
        knots, values = self.uncertainty, self.error_probability
        if len(knots) != len(values):
            raise ValueError(f"{len(knots)} uncertainty knots but {len(values)} error probabilities")
        if any(map(ge, knots, knots[1:])):
            raise ValueError("uncertainty: knots must increase strictly")
        if any(map(gt, values, values[1:])):
            raise ValueError("error_probability: must not decrease")
        return self

    @cached_property
    def _lines(self) -> tuple[tuple[float, float, float, float], ...]:
        """Below the first knot, between each two, above the last: value and knot at its left, its width and its rise.

        What lies outside the knots does not rise, so that one look-up reads the map without any case.
        """
        knots, values = self.uncertainty, self.error_probability
        inner = ((v, k, right - k, w - v) for (k, right), (v, w) in zip(pairwise(knots), pairwise(values), strict=True))
        return ((values[0], 0.0, 1.0, 0.0), *inner, (values[-1], 0.0, 1.0, 0.0))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return np.asarray(self.uncertainty), np.asarray(self.error_probability)

    @overload
    def at(self, uncertainty: float) -> float: ...
    @overload
    def at(self, uncertainty: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def at(self, uncertainty: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """Read the map: linear between knots, clipped outside (paper, section 4.2).

        ``uncertainty``: u, in [0, 1]. Raises ValueError if the map has no knots, as in a cold start.

        Examples
        --------
        >>> g = CalibrationMap(uncertainty=(0.1, 0.3), error_probability=(0.0, 0.5))
        >>> round(g.at(0.2), 3), g.at(0.0), g.at(1.0)
        (0.25, 0.0, 0.5)
        """
        if not self.uncertainty:
            raise ValueError("map: a cold start has no error probability")
        if isinstance(uncertainty, np.ndarray):
            return np.interp(uncertainty, *self._arrays)
        value, knot, width, rise = self._lines[bisect_right(self.uncertainty, uncertainty)]
        return value + (uncertainty - knot) / width * rise

    def inverse(self, error_probability: float) -> float:
        """Return the largest u whose error probability is not above a given one: -1 when all are, 1 when none is.

        Examples
        --------
        >>> g = CalibrationMap(uncertainty=(0.1, 0.3), error_probability=(0.0, 0.5))
        >>> round(g.inverse(0.25), 3), g.inverse(0.5), g.inverse(-0.1)
        (0.2, 1.0, -1.0)
        """
        knots, values = self.uncertainty, self.error_probability
        if error_probability >= values[-1]:
            return ESCALATE_NONE
        if error_probability < values[0]:
            return ESCALATE_ALL
        right = bisect_right(values, error_probability)
        value, knot, width, rise = self._lines[right]
        found = knot + (error_probability - value) / rise * width
        # Rounding must not keep a query that the probability escalates: the map is continuous, one step down is enough.
        return min(found, nextafter(knots[right], knot))


#: What can bind, by the keys of the target; ``FIELD_PREFIX`` begins the name of a field.
CAP, BUDGET, QUALITY = "max_escalation", "cost", "micro_f1"

FIELD_PREFIX = "fields."

#: Of micro-F1, or of queries: what is promised lies strictly inside.
TargetShare = Annotated[Real, Field(gt=0.0, lt=1.0)]


def _is_absent(value: object) -> bool:
    """Whether a target leaves a key out, as whoever makes versions may: their digest is of what they wrote."""
    return not value


class Target(Part):
    """The promise: what the served answers must reach or may cost, and the margin with which a threshold must do so.

    Either a quality is held at the least cost (``micro_f1``, ``fields``, or both), or the best quality that a budget
    buys (``cost``). ``max_escalation`` limits either.
    """

    #: micro-F1 of the served answers.
    micro_f1: Annotated[TargetShare | None, Field(exclude_if=_is_absent)] = None
    #: Standard errors by which the estimate must exceed the target.
    safety: Annotated[Real, Field(ge=0.0, le=10.0)] = 0.65
    #: Largest share of queries that the large model may answer, exploration included: a cap for scarce servers, which
    #: comes before the quality.
    max_escalation: Annotated[TargetShare | None, Field(exclude_if=_is_absent)] = None
    #: Budget: the mean sequential cost of a query, in the unit of the workload's ``cost``.
    cost: Annotated[Price | None, Field(exclude_if=_is_absent)] = None
    #: micro-F1 of single fields, each to be met beside ``micro_f1`` where both are given.
    fields: Annotated[Members[str, TargetShare], Field(exclude_if=_is_absent)] = Field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether a micro-F1 is all that is promised."""
        return self.cost is None and self.max_escalation is None and not self.fields

    def __str__(self) -> str:
        """Return what is promised, in the words of a sentence.

        Examples
        --------
        >>> str(Target(micro_f1=0.91, fields={"camera": 0.9}, max_escalation=0.4))
        'micro-F1 0.91 and camera 0.9, with at most 40% escalated'
        >>> str(Target(cost=1.7))
        'a cost of 1.7 a query'
        """
        parts = [] if self.micro_f1 is None else [f"micro-F1 {self.micro_f1:g}"]
        parts += [f"{name} {target:g}" for name, target in self.fields.items()]
        parts += [] if self.cost is None else [f"a cost of {self.cost:g} a query"]
        capped = "" if self.max_escalation is None else f", with at most {100.0 * self.max_escalation:g}% escalated"
        return " and ".join(parts) + capped


class Atom(Part):
    """A value of u that so many queries share that no threshold parts them: a draw does."""

    #: The queries with ``above`` < u ≤ ``most``.
    above: Annotated[Real, Field(ge=ESCALATE_ALL, lt=1.0)]
    most: Uncertainty
    #: Share of them that is kept where they lie below the threshold, before exploration. The others escalate, drawn and
    #: recorded as explored queries are.
    keep_probability: Probability


class Signal(Part):
    """What u was measured on; a map is valid for one uncertainty signal, model, prompt and decoding mode only."""

    kind: str = DEFAULT_SIGNAL
    small_model: str
    decoding: Literal["free", "json_schema"] = "free"


class Interval(Part):
    """An estimate with the bounds of its confidence interval."""

    estimate: Real
    lower: Real
    upper: Real


#: So many standard errors from an estimate the bounds of a 95% interval lie.
Z95 = 1.959963984540054


class BudgetStanding(Part):
    """How a budget is kept, in the unit of the workload's ``cost``."""

    #: What the next queries may cost on average: the budget, and what was spent too little or too much before.
    allowed: NonNegative
    #: Mean sequential cost of the latest queries that a version has decided.
    realised: NonNegative | None = None
    #: How many these are.
    queries: Count = 0


class TargetStanding(Part):
    """How a threshold stands to a target that is more than a micro-F1."""

    #: What keeps the threshold where it is: ``micro_f1``, a field's name after ``fields.``, ``max_escalation`` or
    #: ``cost``; null where nothing does, since no query would have to escalate.
    binds: str | None = None
    #: Share of queries that the large model would answer without the cap.
    wanted_escalation: Probability | None = None
    #: micro-F1 of each field with a target of its own, with the interval of ``micro_f1``.
    fields: Members[str, Interval] = Field(default_factory=dict)

    budget: BudgetStanding | None = None

    @property
    def is_capped(self) -> bool:
        """Whether the cap on escalation binds."""
        return self.binds == CAP


class Evidence(Part):
    """The numbers behind a version."""

    #: Why this version was made, for example ``bootstrap``, ``threshold_moved``, ``drift``, ``maximum_age``.
    trigger: str
    #: Span of routing times of the labels used.
    window_from: Timestamp | None = None
    window_to: Timestamp | None = None
    #: Labelled queries in the window, and those of them where both models ran.
    labels: Count = 0
    pairs: Count = 0
    #: Kish sample sizes after weighting.
    effective_labels: NonNegative = 0.0
    effective_pairs: NonNegative = 0.0
    #: Prequential: each label scored by the version that routed it.
    ece: Interval | None = None
    brier: Interval | None = None
    #: Estimate at the chosen threshold; ``lower`` is the bound that the choice rests on.
    micro_f1: Interval | None = None
    #: Expected share of queries with u above the threshold.
    escalation_rate: Probability | None = None

    expected_cost: CostRate | None = None
    #: The highest estimate that any threshold reaches, given when the target is infeasible.
    best_micro_f1: Probability | None = None

    drift_state: str | None = None
    #: Further numbers by name, for people and plots.
    details: JsonObject = Field(default_factory=dict)
    #: Absent where the target is a micro-F1 alone.
    standing: Annotated[TargetStanding | None, Field(exclude_if=lambda standing: standing is None)] = None


class Hold(Part):
    """Who keeps new fits from being published, by which command, since when and why."""

    action: str
    issued_by: str
    issued_at: Timestamp
    reason: str


class LargeOnly(Part):
    """The large model answers every query alone, since the cascade would cost more; see ``small_probability``."""

    #: Share of queries, drawn, that the small model is asked too. All whose label is requested are among them, so that
    #: every label says something of both models.
    small_probability: Probability
    since: Timestamp
    #: Null: until labels show that the cascade costs less again.
    until: Timestamp | None = None
    #: Empty where ``large_only_when_dear`` began it.
    issued_by: str = ""

    def lasts(self, now: datetime) -> bool:
        """Whether it is not over at a time."""
        return self.until is None or now < self.until


#: What keeps new fits from being published: ``paused`` until ``resume``, ``pinned`` until ``unpin``.
Holds = Members[str, Hold]


class CalibrationVersion(Event):
    """One version of the calibration of one workload (key: workload).

    While ``audit_probability`` is above 0, labels are suspected: trusted people are to label all explored queries, and
    this share of those above the threshold. It may be left out.

    ``handoff`` is what the labels behind the version were made under, and what is handed over for the queries that it
    decides. It is absent where none is configured, and not ``active`` after the fit has switched it off.

    ``basis`` is what the answers behind the version rest on: prompt, fields, models. Routers with another one refuse
    it. Where it is left out, any fits.

    ``atom`` cuts queries that share one u, by a draw. It is absent where the threshold parts the queries well enough.

    Where routers have a key, ``signature`` says that the fit has published it: the lower-case hex HMAC-SHA256 of the
    object without it and ``digest`` in RFC 8785 canonical JSON.

    ``large_only`` has the large model answer alone. It is absent where the cascade answers.

    ``holds`` says what people have decided about the versions to come; routers pass over it. It is absent where no hold
    is in force: each that begins or ends is a version of its own.
    """

    # Of a key given twice, a reader that takes the first value finds that the digest does not fit.
    sent_by_others: ClassVar[bool] = False

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
    handoff: Handoff | None = None
    basis: Basis | None = None
    atom: Atom | None = None
    holds: Annotated[Holds, Field(exclude_if=_is_absent)] = Field(default_factory=dict)
    large_only: Annotated[LargeOnly | None, Field(exclude_if=_is_absent)] = None
    signature: str = ""
    digest: str = ""

    @model_validator(mode="before")
    @classmethod
    def _digest_fits(cls, data: Any) -> Any:
        """Compare with the object as it came, so that fields of a later contract stay covered by the digest."""
        if isinstance(data, dict) and data.get("digest") and data["digest"] != digest(data):
            message = "digest: does not fit the content; the record was altered or cut"
            raise PydanticCustomError("digest", "{message}", {"message": message, "field": "digest"})
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
        """Leave out what its maker left out, or its digest would no longer fit."""
        fields: dict[str, Any] = dump(self)
        for later in ("audit_probability", "handoff", "basis", "atom", "signature"):
            if later not in self.model_fields_set:
                fields.pop(later, None)
        return fields

    @classmethod
    def sealed(cls, **content: Any) -> Self:
        """Construct a version, with its digest. Raises pydantic.ValidationError if the content contradicts itself."""
        return cls(**content).altered()

    def altered(self, **content: Any) -> Self:
        """Return a copy that differs in this content, with the digest on it."""
        unsealed = self.model_copy(update=content)
        return unsealed.model_copy(update={"digest": digest(unsealed.model_dump(mode="json"))})

    @property
    def is_sealed(self) -> bool:
        """Whether a digest is present; its fit is checked at construction."""
        return bool(self.digest)

    @overload
    def error_probability(self, uncertainty: float) -> float: ...
    @overload
    def error_probability(self, uncertainty: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def error_probability(self, uncertainty: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """Return P(error | u); see :meth:`CalibrationMap.at`."""
        return self.map.at(uncertainty)

    def decide(self, uncertainty: float | None, query_id: str, draw: float | None = None) -> Decision:
        """Decide for one query: escalate iff u > ``uncertainty_threshold``, or when exploration draws it.

        Pure and deterministic: the draw is a hash of the query's id and the workload's name. ``uncertainty``: u, in [0,
        1]; None when the small model failed, which always escalates. Raises ValueError if u is not a number in [0, 1].
        """
        if uncertainty is not None and not 0.0 <= uncertainty <= 1.0:
            raise ValueError(f"uncertainty: must lie in [0, 1] (got {uncertainty})")
        is_cold = self.state == "cold_start"
        reason: DecisionReason
        if is_cold:
            reason = "cold_start"
        elif uncertainty is None:
            reason = "small_failed"
        elif uncertainty > self.uncertainty_threshold:
            reason = "infeasible" if self.state == "infeasible" else "threshold"
        else:
            draw = uniform(query_id, self.workload) if draw is None else draw
            kept = self._kept_share(uncertainty)
            explored = draw < self.exploration_probability or (kept < 1.0 and second(draw) >= kept)
            reason = "exploration" if explored else "kept"
        return Decision(
            escalated=reason != "kept",
            reason=reason,
            uncertainty=uncertainty,
            error_probability=None if is_cold or uncertainty is None else self.map.at(uncertainty),
            threshold=None if is_cold else self.threshold,
            calibration_version=None if is_cold else self.version,
            large_probability=self._explored_share(uncertainty) if reason in ("exploration", "kept") else 1.0,
        )

    def _kept_share(self, uncertainty: float | None) -> float:
        """Return the share of the queries of one u at or below the threshold that is kept, exploration apart."""
        atom = self.atom
        if atom is None or uncertainty is None or not atom.above < uncertainty <= atom.most:
            return 1.0
        return atom.keep_probability

    def _explored_share(self, uncertainty: float | None) -> float:
        kept = self._kept_share(uncertainty)
        explored = self.exploration_probability
        return explored if kept == 1.0 else 1.0 - (1.0 - explored) * kept

    def decide_alone(self, uncertainty: float | None) -> Decision:
        """Decide for one query while the large model answers alone; ``uncertainty`` where the small one was asked."""
        return Decision(
            escalated=True,
            reason="large_only",
            uncertainty=uncertainty,
            error_probability=None if uncertainty is None else self.map.at(uncertainty),
            threshold=self.threshold,
            calibration_version=self.version,
            large_probability=1.0,
            small_probability=None if self.large_only is None else self.large_only.small_probability,
        )

    def decide_many(self, uncertainty: NDArray[np.float64], draws: NDArray[np.float64] | None = None) -> Decisions:
        """Decide for many queries at once, as :meth:`decide` does for one.

        ``uncertainty``: u, in [0, 1]; NaN where the small model failed. ``draws``: :func:`schemas.draws.uniform` of
        each query's id and the workload's name, by which queries are explored; None: no query is. Raises ValueError if
        a u lies outside [0, 1].
        """
        least, most = np.fmin.reduce(uncertainty, initial=0.0), np.fmax.reduce(uncertainty, initial=0.0)
        if least < 0.0 or most > 1.0:
            raise ValueError(f"uncertainty: must lie in [0, 1] (got {least if least < 0.0 else most})")
        if self.state == "cold_start":
            everywhere = np.ones(uncertainty.shape, dtype=bool)
            return Decisions(everywhere, ~everywhere, np.full(uncertainty.shape, np.nan), np.ones(uncertainty.shape))
        kept = uncertainty <= self.uncertainty_threshold
        explored, large_probability = np.zeros_like(kept), np.where(kept, self.exploration_probability, 1.0)
        if draws is not None:
            explored = kept & (draws < self.exploration_probability)
        if self.atom is not None:
            among = kept & (uncertainty > self.atom.above) & (uncertainty <= self.atom.most)
            large_probability[among] = self._explored_share(self.atom.most)
            if draws is not None:
                explored |= among & (second(draws) >= self.atom.keep_probability)
        return Decisions(
            escalated=~kept | explored,
            explored=explored,
            error_probability=np.where(np.isnan(uncertainty), np.nan, self.error_probability(uncertainty)),
            large_probability=large_probability,
        )

    @property
    def label_shares(self) -> LabelShares:
        """The shares of queries that people are asked to label, audits left out."""
        return LabelShares(self.label_probability_kept, self.label_probability_escalated)

    def label_probability(self, uncertainty: Any, escalated: Any) -> Any:
        """Return the probability that a query is labelled for any reason, for one query or an array of them.

        ``uncertainty``: u, NaN where the small model gave none. ``escalated``: a query with u up to the threshold that
        was escalated was explored, and counts as kept.
        """
        kept = ~np.asarray(escalated, dtype=bool) | (np.asarray(uncertainty) <= self.uncertainty_threshold)
        if self.large_only is not None:
            kept = np.zeros_like(kept)
        above = self.label_probability_escalated
        found = np.where(kept, self.label_probability_kept, above + (1.0 - above) * self.audit_probability)
        return found if found.ndim else float(found)

    def request_label(self, decision: Decision, query_id: str, draw: float | None = None) -> LabelRequest:
        """Decide whether people are asked for this query's gold entities, and which people.

        Exploration is drawn inside the label draw (the same hash), so explored queries are always labelled, and their
        marginal probability given u is that of the kept side: while an audit is open, trusted people are asked for them
        all. Above the threshold an audit is drawn by another hash, which adds to the probability of a label. Returns
        ``probability`` is that of being labelled for any reason, given u.
        """
        # An answer of the large model alone says nothing of what an audit is about.
        is_pair = decision.uncertainty is not None and decision.reason in ("threshold", "infeasible", "large_only")
        audit = self.audit_probability if is_pair else 0.0
        audited = audit > 0.0 and uniform(query_id, _AUDIT_SALT + self.workload) < audit
        shares = self.label_shares
        probability = shares.kept if decision.reason in ("kept", "exploration") else shares.escalated
        if decision.reason == "cold_start":
            probability = max(shares)
        requested = audited or (uniform(query_id, self.workload) if draw is None else draw) < probability
        # The small model is asked of queries whose number lies below its share, and of no others.
        most = 1.0 if decision.small_probability is None else decision.small_probability
        probability += (most - probability) * audit
        reason: LabelReason | None = None
        if requested:
            explored = decision.reason == "exploration"
            audited = audited or (explored and self.audit_probability > 0.0)
            reason = "audit" if audited else "exploration" if explored else "random"
        return LabelRequest(requested=requested, probability=probability, reason=reason)
