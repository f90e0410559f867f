"""One query's life: small → decide → large? → result. Pure: names the next step, and takes its outcome.

::

    ask small ─▶ decide ─┬─ kept ──────────────────────▶ serve small
                         └─ escalated ─▶ ask large ─┬─▶ serve large
                                                    ├─▶ serve small, degraded     large failed, small is valid
                                                    ├─▶ wait for a server, ask    none is valid, one is down
                                                    └─▶ give up                   both failed on this very query
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts, query_cost
from schemas.draws import uniform
from schemas.query import QueryEvent
from schemas.routed import Decision, LabelRequest, ModelRole, ModelRun, RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.trial import CalibrationTrial
from stream_router.calibration.active_versions import decide_beside


class RunEnd(Enum):
    """How asking a model ended."""

    VALID = "valid"
    FAILED = "failed"
    """It failed on this query: refused, not an answer, or out of attempts while the server answers others."""
    DOWN = "down"
    """The server is down, or too busy to take a query that can do without it; nothing is said about this query."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One model's run and how it ended."""

    run: ModelRun
    end: RunEnd


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this model, then pass its run on."""

    role: ModelRole


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Wait until one of these servers is up, then ask it; the first named goes first."""

    roles: tuple[ModelRole, ...]


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve this model's answer."""

    role: ModelRole


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Both models failed on this query."""


Step = Ask | WaitFor | Serve | GiveUp

_WAIT_FOR_LARGE = WaitFor(("large",))

_AFTER_BOTH: dict[tuple[RunEnd, RunEnd], Step] = {
    (RunEnd.VALID, RunEnd.VALID): Serve("large"),
    (RunEnd.VALID, RunEnd.FAILED): Serve("small"),
    (RunEnd.VALID, RunEnd.DOWN): Serve("small"),
    (RunEnd.FAILED, RunEnd.VALID): Serve("large"),
    (RunEnd.FAILED, RunEnd.FAILED): GiveUp(),
    (RunEnd.FAILED, RunEnd.DOWN): _WAIT_FOR_LARGE,
    (RunEnd.DOWN, RunEnd.VALID): Serve("large"),
    (RunEnd.DOWN, RunEnd.FAILED): WaitFor(("small",)),
    (RunEnd.DOWN, RunEnd.DOWN): WaitFor(("small", "large")),
}
"""By how the small and the large run ended."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The decision on a query, what went with it, whose it is, and when it was made."""

    decision: Decision
    label: LabelRequest
    version: CalibrationVersion | None
    decided_at: datetime


def decide(
    version: CalibrationVersion | None,
    uncertainty: float | None,
    query_id: str,
    workload: WorkloadSettings,
    trial: CalibrationTrial | None = None,
) -> tuple[Decision, LabelRequest, CalibrationVersion | None]:
    """Decide by the version in force when the small answer arrived, or by the one on trial where that acts.

    Parameters
    ----------
    version : CalibrationVersion or None
        None in a cold start: both models run, the large answer is served, the larger label rate applies.
    uncertainty : float or None
        None when the small model failed.
    workload : WorkloadSettings
        Its sampling rates are those of a cold start.
    trial : CalibrationTrial, optional
        In a cold start there is nothing to try it against.

    Returns
    -------
    Decision
    LabelRequest
    CalibrationVersion or None
        Whose decision it is.
    """
    if version is not None:
        if trial is None:
            decision, by = version.decide(uncertainty, query_id), version
        else:
            decision, by = decide_beside(version, trial, uncertainty, query_id)
        return decision, by.request_label(decision, query_id), by
    decision = Decision(escalated=True, reason="cold_start", uncertainty=uncertainty, large_probability=1.0)
    rate = max(workload.sampling.label_probability_kept, workload.sampling.label_probability_escalated)
    requested = uniform(query_id, workload.name) < rate
    label = LabelRequest(requested=requested, probability=rate, reason="random" if requested else None)
    return decision, label, None


class QueryCascade:
    """One query on its way through the cascade.

    Parameters
    ----------
    query : QueryEvent
    workload : WorkloadSettings
    large_outage : str
        What to do with a valid small answer while the large server is down.

    Attributes
    ----------
    small, large : Asked or None
        None while not asked.
    drawn : Drawn or None
        None while the small model has not been asked.
    """

    __slots__ = ("_large_outage", "_workload", "drawn", "large", "query", "small")

    def __init__(
        self,
        query: QueryEvent,
        workload: WorkloadSettings,
        large_outage: Literal["serve_small", "wait"] = "serve_small",
    ) -> None:
        self.query = query
        self._workload = workload
        self._large_outage = large_outage
        self.small: Asked | None = None
        self.large: Asked | None = None
        self.drawn: Drawn | None = None

    def next_step(self) -> Step:
        """Return what to do next."""
        if self.small is None or self.drawn is None:
            return Ask("small")
        if self.large is None:
            return Ask("large") if self.drawn.decision.escalated else Serve("small")
        ends = (self.small.end, self.large.end)
        if ends == (RunEnd.VALID, RunEnd.DOWN) and self._large_outage == "wait":
            return _WAIT_FOR_LARGE
        return _AFTER_BOTH[ends]

    @property
    def can_do_without_large(self) -> bool:
        """Whether there is a small answer that may be served in place of a large one that does not come."""
        return self.small is not None and self.small.end is RunEnd.VALID and self._large_outage == "serve_small"

    def small_ended(
        self,
        asked: Asked,
        version: CalibrationVersion | None,
        now: datetime,
        trial: CalibrationTrial | None = None,
    ) -> None:
        """Take what came of asking the small model, and decide.

        Parameters
        ----------
        asked : Asked
        version : CalibrationVersion or None
            In force now.
        now : datetime
            Becomes ``routed_at``.
        trial : CalibrationTrial, optional
            On trial now.
        """
        self.small = asked
        valid = asked.end is RunEnd.VALID
        if valid and self.large is not None and self.large.end is RunEnd.DOWN:
            # Both servers were down, and the small one came back first: this answer decides as if it were the first.
            self.large = None
        uncertainty = asked.run.uncertainty if valid else None
        query_id = self.query.query_id
        decision, label, by = decide(version, uncertainty, query_id, self._workload, trial)
        if self.large is not None and by is not None and not decision.escalated:
            # The large model has been asked whatever u is, and failed: the propensity of that was 1.
            forced = {"escalated": True, "reason": "small_failed", "large_probability": 1.0}
            decision = decision.model_copy(update=forced)
            label = by.request_label(decision, query_id)
        self.drawn = Drawn(decision, label, by, now)

    def large_ended(self, asked: Asked) -> None:
        """Take what came of asking the large model."""
        self.large = asked

    def result(self, served: ModelRole, costs: ModelCosts, routed_by: str) -> RoutedEvent:
        """Return the result.

        A small answer served although the decision was to escalate is marked ``degraded``; the propensity and the
        label stay those of the decision, since the draw was made. The call of a large model that gave no answer
        counts, even where its server was known to be down, so that savings are never overstated.

        Parameters
        ----------
        served : str
            Whose answer; as :meth:`next_step` says.
        costs : ModelCosts
        routed_by : str
            The router's instance id.

        Raises
        ------
        ValueError
            When that model gave no answer.
        """
        chosen = self.small if served == "small" else self.large
        if chosen is None or chosen.run.entities is None or self.small is None or self.drawn is None:
            raise ValueError(f"the {served} model gave no answer to serve")
        decision = self.drawn.decision
        if served == "small" and decision.escalated:
            decision = decision.model_copy(update={"reason": "degraded"})
        return RoutedEvent(
            query_id=self.query.query_id,
            workload=self._workload.name,
            text=self.query.text,
            entities=chosen.run.entities,
            answered_by=served,
            decision=decision,
            small=self.small.run,
            large=None if self.large is None else self.large.run,
            cost=query_cost(costs, escalated=decision.escalated, large_called=self.large is not None),
            label=self.drawn.label,
            routed_at=self.drawn.decided_at,
            routed_by=routed_by,
            metadata=self.query.metadata,
            signal=self._workload.uncertainty,
        )
