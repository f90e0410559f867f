"""One query's life: small → decide → large? → result. Pure: names the next step, and takes its outcome.

::

    ask small ─▶ decide ─┬─ kept ──────────────────────▶ serve small
                         └─ escalated ─▶ ask large ─┬─▶ serve large
                                                    ├─▶ serve small, degraded     large failed, small is valid
                                                    ├─▶ wait for a server, ask    none is valid, one is down
                                                    └─▶ give up                   both failed on this very query

With a handoff, the large model goes on from the part of the small answer that is certain. Where that leads to no valid
answer it is asked again, alone, once. A drawn share of queries asks it alone as well, to compare; that answer is never
served.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts, TokenUse, query_cost
from schemas.draws import uniform
from schemas.handoff import Handoff, handoff_name
from schemas.query import QueryEvent
from schemas.routed import Decision, DecisionReason, LabelRequest, ModelRole, ModelRun, QueryHandoff, RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.trial import CalibrationTrial
from stream_router.calibration.active_versions import decide_beside
from stream_router.cascade.handoff import handed_over
from stream_router.ports import TokenMark

_RAW_CHARS_ALONE = 4_096
"""Kept of the text of an answer that is not served."""

_COMPARED: frozenset[DecisionReason] = frozenset({"threshold", "infeasible", "small_failed"})
"""Why a query may have escalated that is drawn to compare. Explored ones and those of a cold start are not served so
once the threshold decides."""


class RunEnd(Enum):
    """How asking a model ended."""

    VALID = "valid"
    FAILED = "failed"
    """It failed on this query: refused, not an answer, or out of attempts while the server answers others."""
    DOWN = "down"
    """The server is down, or too busy to take a query that can do without it; nothing is said about this query."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One model's run and how it ended.

    Parameters
    ----------
    invalid : bool
        Whether it failed by what was asked or answered: a valid answer may follow if it is asked otherwise.
    marks : tuple of TokenMark
        Of the answer's tokens, where they are known.
    """

    run: ModelRun
    end: RunEnd
    invalid: bool = False
    marks: tuple[TokenMark, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this model, then pass its run on; the large one ``alone`` is asked to compare with what is served."""

    role: ModelRole
    alone: bool = False


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

_SMALL_STANDS_IN = (RunEnd.VALID, RunEnd.DOWN)
"""Where the small answer is served while the large server is down."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The decision on a query, what went with it, whose it is, when it was made, and by which handoff."""

    decision: Decision
    label: LabelRequest
    version: CalibrationVersion | None
    decided_at: datetime
    handoff: Handoff | None = None


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
    large_outage : str
        What to do with a valid small answer while the large server is down.

    Attributes
    ----------
    small, large : Asked or None
        None while not asked.
    drawn : Drawn or None
        None while the small model has not been asked.
    begun : str
        The beginning of the answer that the large model goes on from; empty where it begins anew.
    alone : Asked or None
        The large model without handoff, asked to compare.
    """

    __slots__ = (
        "_large_outage",
        "_lost",
        "_workload",
        "alone",
        "begun",
        "drawn",
        "large",
        "query",
        "small",
    )

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
        self.begun = ""
        self.alone: Asked | None = None
        self._lost: Asked | None = None

    def next_step(self) -> Step:
        """Return what to do next."""
        if self.small is None or self.drawn is None:
            return Ask("small")
        if self.large is None:
            return Ask("large") if self.drawn.decision.escalated else Serve("small")
        if self.begun and self._is_compared and self.alone is None:
            return Ask("large", alone=True)
        ends = (self.small.end, self.large.end)
        if ends == _SMALL_STANDS_IN and self._large_outage == "wait":
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
        query_id = self.query.query_id
        uncertainty = asked.run.uncertainty if valid else None
        decision, label, by = decide(version, uncertainty, query_id, self._workload, trial)
        if self.large is not None and by is not None and not decision.escalated:
            # The large model has been asked whatever u is, and failed: the propensity of that was 1.
            forced = {"escalated": True, "reason": "small_failed", "large_probability": 1.0}
            decision = decision.model_copy(update=forced)
            label = by.request_label(decision, query_id)
        handoff = self._workload.offered_handoff if by is None else by.handoff
        self.drawn = Drawn(decision, label, by, now, handoff if handoff_name(handoff) else None)
        if self.drawn.handoff is not None and decision.escalated and self.large is None:
            self.begun = handed_over(asked.run.raw or "", asked.marks, self.drawn.handoff)

    def large_ended(self, asked: Asked) -> None:
        """Take what came of asking the large model, which is asked again where it could not go on."""
        if self.begun and asked.invalid:
            self.begun, self._lost = "", asked
        else:
            self.large = asked

    def alone_ended(self, asked: Asked) -> None:
        """Take what came of asking the large model alone, to compare."""
        self.alone = asked

    @property
    def _is_compared(self) -> bool:
        """Whether this query is drawn to compare, and the large model's answer is there to be compared.

        Drawn inside the label draw, by the same hash: as long as fewer are compared than labelled, all are labelled.
        """
        if self._workload.handoff is None or self.drawn is None or self.drawn.handoff is None:
            return False
        if self.large is None or self.large.end is not RunEnd.VALID or self.drawn.decision.reason not in _COMPARED:
            return False
        return uniform(self.query.query_id, self._workload.name) < self._workload.handoff.guard_share

    def result(self, served: ModelRole, costs: ModelCosts, routed_by: str) -> RoutedEvent:
        """Return the result.

        A small answer served although the decision was to escalate is marked ``degraded``; the propensity and the
        label stay those of the decision, since the draw was made. The call of a large model that gave no answer
        counts, even where its server was known to be down, so that savings are never overstated.

        Parameters
        ----------
        served : str
            Whose answer; as :meth:`next_step` says.
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
            cost=query_cost(costs, escalated=decision.escalated, small=_used(self.small.run), large=self._large_calls),
            label=self.drawn.label,
            routed_at=self.drawn.decided_at,
            routed_by=routed_by,
            metadata=self.query.metadata,
            signal=self._workload.uncertainty,
            handoff=self._handoff(),
            basis=self._workload.basis_mark,
        )

    @property
    def _large_calls(self) -> list[TokenUse]:
        return [_used(asked.run) for asked in (self.large, self._lost, self.alone) if asked is not None]

    def _handoff(self) -> QueryHandoff | None:
        """Return what was handed over; None where nothing ever is."""
        assert self.drawn is not None
        assert self.small is not None
        name = handoff_name(self.drawn.handoff)
        if name is None:
            return None
        lost = None if self._lost is None else self._lost.run
        return QueryHandoff(
            name=name,
            characters=len(self.begun),
            tokens=sum(mark.start < len(self.begun) for mark in self.small.marks),
            asked_again=lost is not None,
            lost_tokens=0 if lost is None else lost.completion_tokens,
            lost_prompt_tokens=0 if lost is None else lost.prompt_tokens,
            guarded=self._is_compared,
            alone=None if self.alone is None else _shortened(self.alone.run),
        )


def _shortened(run: ModelRun) -> ModelRun:
    """Return a run that adds little to the size of a record: its entities say what it answered."""
    return run.model_copy(update={"raw": None if run.raw is None else run.raw[:_RAW_CHARS_ALONE]})


def _used(run: ModelRun) -> TokenUse:
    return TokenUse(run.prompt_tokens, run.completion_tokens)
