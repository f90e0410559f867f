"""What a handoff saved in a demo run: what was paid, against the same calls made without it.

The recordings know how long each whole answer is, and results say what was generated of it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.costs import ModelCosts, QueryCost, TokenUse, query_cost
from schemas.routed import RoutedEvent
from schemas.status import HandoffStatus, WorkloadStatus
from ucci_demo.recorded.traffic import RecordedQuery
from ucci_stream.demo.scenario import PlannedQuery

Answered = tuple[PlannedQuery, RoutedEvent]


@dataclass(frozen=True, slots=True)
class Saved:
    """A share of what the same calls cost whole; what a lever itself costs is taken off."""

    sequential: float
    paper: float

    def __str__(self) -> str:
        return f"{self.sequential:.1%} / {self.paper:.1%} of the cost"


@dataclass(frozen=True, slots=True)
class Lever:
    """The handoff over the whole stream."""

    #: Share of the large calls that went on from a small answer.
    used: float

    saved: Saved
    #: What the service itself says of it at the end.
    status: HandoffStatus


@dataclass(frozen=True, slots=True)
class Levers:
    """What the lever did."""

    #: The service's mean cost of a query in each phase, had it made the same calls whole.
    whole_calls: Mapping[str, QueryCost]

    handoff: Lever


def whole_calls(recorded: RecordedQuery) -> tuple[TokenUse, TokenUse]:
    """Return what the small and the large model generate in whole calls; reading is not priced in the demo."""
    return TokenUse(generated=recorded.small.tokens), TokenUse(generated=recorded.large.tokens)


def levers_of(
    answered: Sequence[Answered],
    bounds: Mapping[str, tuple[int, int]],
    costs: ModelCosts,
    status: WorkloadStatus | None,
) -> Levers | None:
    """Return what the handoff did, or None where it is off."""
    if status is None or not answered or status.handoff is None:
        return None
    index = np.array([query.index for query, _ in answered])
    whole = np.array([_both(_whole_cost(query, routed, costs)) for query, routed in answered])
    paid = np.array([_both(routed.cost) for _, routed in answered])
    by_phase = {name: whole[(first <= index) & (index < last)] for name, (first, last) in bounds.items()}
    means = {name: (some.sum(axis=0) / max(1, len(some))).tolist() for name, some in by_phase.items()}
    large = [routed for _, routed in answered if routed.large is not None]
    begun = sum(routed.handoff is not None and routed.handoff.characters > 0 for routed in large)
    saved = Saved(*((whole - paid).sum(axis=0) / whole.sum(axis=0)).tolist())
    return Levers(
        {name: QueryCost(sequential=sequential, paper=paper) for name, (sequential, paper) in means.items()},
        Lever(begun / max(1, len(large)), saved, status.handoff),
    )


def _both(cost: QueryCost) -> tuple[float, float]:
    return cost.sequential, cost.paper


def _whole_cost(query: PlannedQuery, routed: RoutedEvent, costs: ModelCosts) -> QueryCost:
    """Return what the query costs with the same decision and whole calls."""
    small, large = whole_calls(query.recorded)
    calls = [large] if routed.large is not None else []
    return query_cost(costs, escalated=routed.decision.escalated, small=small, large=calls)
