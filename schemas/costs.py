"""The two costs of a query, always reported together, in units of one small call.

``paper`` counts the small call of a kept query and the large call of an escalated one (paper, section 3);
``sequential`` counts what a cascade really pays: the small call always, and the large call when it ran.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.event import MAX_INTEGER, NonNegative, Part, Real


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


class QueryCost(Part):
    """The two costs of one query, in units of one call of the small model."""

    sequential: NonNegative
    paper: NonNegative


class CostRate(Part):
    """Mean cost of a query three ways, in units of one small call."""

    sequential: NonNegative
    paper: NonNegative
    large_only: NonNegative


def query_cost(costs: ModelCosts, *, escalated: bool, large_calls: int) -> QueryCost:
    """Return both costs of one query.

    Parameters
    ----------
    costs : ModelCosts
    escalated : bool
    large_calls : int
        Calls of the large model; more than one where it was asked again without handoff, or alone, to compare.

    Examples
    --------
    >>> query_cost(ModelCosts(small=1.0, large=3.0), escalated=True, large_calls=1)
    QueryCost(sequential=4.0, paper=3.0)
    """
    return QueryCost(
        sequential=costs.small + large_calls * costs.large,
        paper=costs.large if escalated else costs.small,
    )


def expected_cost(costs: ModelCosts, escalation_rate: float, exploration_probability: float = 0.0) -> CostRate:
    """Return the mean costs of a policy that escalates a share of queries and explores among the rest.

    Parameters
    ----------
    escalation_rate : float
        Share of queries above the threshold, in [0, 1].
    exploration_probability : float
        Probability that one of the others runs the large model too.

    Examples
    --------
    >>> expected_cost(ModelCosts(small=1.0, large=3.0), 0.5)
    CostRate(sequential=2.5, paper=2.0, large_only=3.0)
    """
    large_rate = escalation_rate + (1.0 - escalation_rate) * exploration_probability
    return CostRate(
        sequential=costs.small + large_rate * costs.large,
        paper=costs.small + large_rate * (costs.large - costs.small),
        large_only=costs.large,
    )
