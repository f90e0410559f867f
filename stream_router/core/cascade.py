"""One query's life, step by step: small → decide → large? → result. Pure; who calls the models is told what to do.

::

    ask small ─▶ decide ─┬─ kept ────────────────────────────────▶ serve small
                         └─ escalated ─▶ ask large ─┬─ valid ────▶ serve large
                                                    ├─ failed ───▶ serve small, degraded    (or wait, as configured)
                                                    └─ both failed ─▶ wait for a server that is down, else give up
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal

from schemas.calibration import CalibrationVersion, ModelCosts
from schemas.costs import query_cost
from schemas.draws import uniform
from schemas.query import QueryEvent
from schemas.routed import Decision, LabelRequest, ModelRole, ModelRun, RoutedEvent
from schemas.settings import Sampling


class RunEnd(Enum):
    """How the attempt to ask a model ended."""

    VALID = "valid"
    FAILED = "failed"
    """It failed on this query: refused, invalid, or out of attempts while the server answers others."""
    DOWN = "down"
    """The server is down; nothing is said about this query."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One model's run and how it ended."""

    run: ModelRun
    end: RunEnd


class Step(Enum):
    """What to do next."""

    SERVE_SMALL = "serve_small"
    SERVE_LARGE = "serve_large"
    ASK_LARGE = "ask_large"
    WAIT_SMALL = "wait_small"
    WAIT_LARGE = "wait_large"
    WAIT_EITHER = "wait_either"
    GIVE_UP = "give_up"


def decide(
    version: CalibrationVersion | None, uncertainty: float | None, query_id: str, workload: str, sampling: Sampling
) -> tuple[Decision, LabelRequest]:
    """Decide by the version in force when the small answer arrived.

    Parameters
    ----------
    version : CalibrationVersion or None
        None in a cold start: both models run, the large answer is served, the larger label rate applies.
    uncertainty : float or None
        None when the small model failed.
    """
    if version is not None:
        decision = version.decide(uncertainty, query_id)
        return decision, version.request_label(decision, query_id)
    decision = Decision(escalated=True, reason="cold_start", uncertainty=uncertainty, large_probability=1.0)
    rate = max(sampling.label_probability_kept, sampling.label_probability_escalated)
    requested = uniform(query_id, workload) < rate
    return decision, LabelRequest(requested=requested, probability=rate, reason="random" if requested else None)


def next_step(
    small: Asked, decision: Decision, large: Asked | None, large_outage: Literal["serve_small", "wait"]
) -> Step:
    """Return what to do next.

    Parameters
    ----------
    large : Asked or None
        None while it has not been asked.
    large_outage : str
        What to do with a valid small answer while the large server is down.
    """
    if large is None:
        return Step.ASK_LARGE if decision.escalated else Step.SERVE_SMALL
    if large.end is RunEnd.VALID:
        return Step.SERVE_LARGE
    if small.end is RunEnd.VALID:
        return Step.WAIT_LARGE if large.end is RunEnd.DOWN and large_outage == "wait" else Step.SERVE_SMALL
    if small.end is RunEnd.DOWN:
        return Step.WAIT_EITHER if large.end is RunEnd.DOWN else Step.WAIT_SMALL
    return Step.WAIT_LARGE if large.end is RunEnd.DOWN else Step.GIVE_UP


@dataclass(frozen=True, slots=True)
class Finished:
    """Everything that a result is made of."""

    query: QueryEvent
    workload: str
    served: ModelRole
    decision: Decision
    label: LabelRequest
    small: ModelRun
    large: ModelRun | None
    costs: ModelCosts
    routed_at: datetime
    routed_by: str


def assemble(finished: Finished) -> RoutedEvent:
    """Return the result.

    A small answer served although the decision was to escalate is marked ``degraded``; the propensities and the label
    stay those of the decision, since the draw was made.
    """
    run = finished.large if finished.served == "large" else finished.small
    decision = finished.decision
    if finished.served == "small" and decision.escalated:
        decision = decision.model_copy(update={"reason": "degraded"})
    entities = run.entities if run is not None else None
    return RoutedEvent(
        query_id=finished.query.query_id,
        workload=finished.workload,
        text=finished.query.text,
        entities=entities or {},
        answered_by=finished.served,
        decision=decision,
        small=finished.small,
        large=finished.large,
        cost=query_cost(finished.costs, escalated=decision.escalated, large_called=finished.large is not None),
        label=finished.label,
        routed_at=finished.routed_at,
        routed_by=finished.routed_by,
        metadata=finished.query.metadata,
    )
