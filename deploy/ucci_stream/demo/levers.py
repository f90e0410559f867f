"""What handoff and early stop saved in a demo run: what was paid, beside the same calls made whole.

The recordings know how long each whole answer is, and results say what was generated of it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from schemas.costs import ModelCosts, QueryCost, TokenUse, query_cost
from schemas.routed import RoutedEvent
from schemas.status import EarlyStopStatus, HandoffStatus, WorkloadStatus
from ucci_demo.recorded.traffic import RecordedQuery
from ucci_stream.demo.scenario import PlannedQuery

Answered = tuple[PlannedQuery, RoutedEvent]
LeverStatus = TypeVar("LeverStatus", HandoffStatus, EarlyStopStatus)


@dataclass(frozen=True, slots=True)
class Saved:
    """A share of what the same calls cost whole; what a lever itself costs is taken off."""

    sequential: float
    paper: float

    def __str__(self) -> str:
        return f"{self.sequential:.1%} / {self.paper:.1%} of the cost"


@dataclass(frozen=True, slots=True)
class Lever(Generic[LeverStatus]):
    """One lever over the whole stream.

    Parameters
    ----------
    used : float
        Share of the large calls that went on from a small answer, or of the small calls that were stopped.
    saved : Saved
    status : HandoffStatus or EarlyStopStatus
        What the service itself says of it at the end.
    """

    used: float
    saved: Saved
    status: LeverStatus


@dataclass(frozen=True, slots=True)
class Levers:
    """What the levers that are on did.

    Parameters
    ----------
    whole_calls : mapping of str to QueryCost
        The service's mean cost of a query in each phase, had it made the same calls whole.
    handoff, early_stop : Lever or None
        None where it is off.
    """

    whole_calls: Mapping[str, QueryCost]
    handoff: Lever[HandoffStatus] | None
    early_stop: Lever[EarlyStopStatus] | None


def whole_calls(recorded: RecordedQuery) -> tuple[TokenUse, TokenUse]:
    """Return what the small and the large model generate in whole calls; reading is not priced in the demo."""
    return TokenUse(generated=recorded.small.tokens), TokenUse(generated=recorded.large.tokens)


def levers_of(
    answered: Sequence[Answered],
    bounds: Mapping[str, tuple[int, int]],
    costs: ModelCosts,
    status: WorkloadStatus | None,
) -> Levers | None:
    """Return what the levers did, or None where all are off.

    Parameters
    ----------
    answered : sequence of pairs
        Queries with their results.
    bounds : mapping of str to pair of int
        Each phase's first and one-past-last query index.
    costs : ModelCosts
        Of tokens.
    status : WorkloadStatus or None
        Of the end of the stream.
    """
    if status is None or not answered or (status.handoff is None and status.early_stop is None):
        return None
    index = np.array([query.index for query, _ in answered])
    whole = np.array([_both(_whole_cost(query, routed, costs)) for query, routed in answered])
    paid = np.array([_both(routed.cost) for _, routed in answered])
    spared = np.array([_spared(query, routed, costs) for query, routed in answered])
    total = whole.sum(axis=0)
    by_phase = {name: whole[(first <= index) & (index < last)] for name, (first, last) in bounds.items()}
    means = {name: (some.sum(axis=0) / max(1, len(some))).tolist() for name, some in by_phase.items()}
    large = [routed for _, routed in answered if routed.large is not None]
    begun = sum(routed.handoff is not None and routed.handoff.characters > 0 for routed in large)
    handoff, early_stop = status.handoff, status.early_stop
    # What was not saved on small calls was saved on large ones.
    on_large = Saved(*((whole - paid - spared).sum(axis=0) / total).tolist())
    on_small = Saved(*(spared.sum(axis=0) / total).tolist())
    cut = sum(routed.stopped for _, routed in answered) / len(answered)
    return Levers(
        {name: QueryCost(sequential=sequential, paper=paper) for name, (sequential, paper) in means.items()},
        None if handoff is None else Lever(begun / max(1, len(large)), on_large, handoff),
        None if early_stop is None else Lever(cut, on_small, early_stop),
    )


def _both(cost: QueryCost) -> tuple[float, float]:
    return cost.sequential, cost.paper


def _whole_cost(query: PlannedQuery, routed: RoutedEvent, costs: ModelCosts) -> QueryCost:
    """Return what the query costs with the same decision and whole calls."""
    small, large = whole_calls(query.recorded)
    calls = [large] if routed.large is not None else []
    return query_cost(costs, escalated=routed.decision.escalated, small=small, large=calls)


def _spared(query: PlannedQuery, routed: RoutedEvent, costs: ModelCosts) -> tuple[float, float]:
    """Return what was saved on the small call by both costs; the paper's counts that call where it answers alone."""
    generated = 0 if routed.small is None else routed.small.completion_tokens
    if routed.early_stop is not None:
        generated += routed.early_stop.lost_tokens
    spared = costs.of_small(whole_calls(query.recorded)[0]) - costs.of_small(TokenUse(generated=generated))
    return spared, 0.0 if routed.decision.escalated else spared
