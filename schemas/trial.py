"""CalibrationTrial: a version that is tried beside the one in force, and what it is compared by.

Trials have a topic of their own: whoever does not read it goes on by the version in force.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from schemas.calibration import CalibrationVersion, Interval
from schemas.costs import CostRate
from schemas.draws import uniform
from schemas.event import MAX_NAME_CHARS, Count, Event, Part, Probability, Real, Timestamp, WorkloadName
from schemas.routed import TrialMode

Share = Annotated[Real, Field(gt=0.0, le=1.0)]


class CalibrationTrial(Event):
    """A version on trial (key: workload); a record without value ends it."""

    sent_by_others: ClassVar[bool] = False

    workload: WorkloadName
    #: ``shadow``: routers compute and report its decisions and act on none. ``canary``: they act on those of a share of
    #: queries.
    mode: TrialMode
    #: Of queries, in (0, 1]; null for a shadow.
    share: Share | None = None
    #: What is tried, sealed under a number of its own, which is never in force.
    version: CalibrationVersion
    #: The version in force when the trial began.
    base_version: Count | None = None

    started_at: Timestamp
    #: Who, and why.
    issued_by: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    reason: Annotated[str, Field(max_length=4_096)] = ""
    #: Lower-case hex HMAC-SHA256 of all the rest, where the fit has a key; else empty.
    signature: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.version.workload != self.workload:
            raise ValueError(f"version: is of workload {self.version.workload!r}, not {self.workload!r}")
        if not self.version.is_sealed:
            raise ValueError("version: has no digest")
        if (self.share is not None) is not (self.mode == "canary"):
            raise ValueError("share: belongs to a canary, and to nothing else")
        return self

    def acts_on(self, query_id: str) -> bool:
        """Return whether the version on trial decides a query, by a hash of its id independent of other draws."""
        # The number first: only the beginning of a salt counts, and names may be long.
        salt = f"canary {self.version.version} {self.workload}"
        return self.share is not None and uniform(query_id, salt) < self.share


class TrialArm(Part):
    """One of the two versions that a trial compares."""

    #: Of the base: the one in force now.
    version: Count | None = None
    #: Share of all compared queries that this version escalated, or would have.
    escalation_rate: Probability | None = None
    #: Mean cost of a query at that rate.
    cost: CostRate | None = None
    #: As the fit estimates it for the threshold, with 95% bounds.
    estimated_micro_f1: Interval | None = None
    #: Queries decided by it since the trial began.
    queries: Count = 0
    #: Requested labels of those.
    labels: Count = 0
    #: Of the answers served to those, by inverse label propensity, with 95% bounds; null below 20 labels. An answer
    #: errs when one of its pairs is wrong or missing.
    micro_f1: Interval | None = None
    error_rate: Interval | None = None


class TrialStatus(Part):
    """A trial, under way or the latest, and how both versions compare."""

    mode: TrialMode
    share: Probability | None = None
    version: Count
    #: The version whose content is tried.
    content_of: Count | None = None

    base_version: Count | None = None
    started_at: Timestamp
    #: Null while it runs.
    ended_at: Timestamp | None = None
    #: ``promote``, ``stop_trial``, or the act that took its place: ``activate``, ``pin``, ``shadow``, ``canary``.
    ended_by: str | None = None

    issued_by: str
    reason: str = ""
    #: Queries for which both decisions are known.
    compared: Count = 0
    #: Share of those with equal decisions.
    agreement: Probability | None = None

    trial: TrialArm
    base: TrialArm
