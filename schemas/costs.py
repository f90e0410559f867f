"""The two costs of a query, always reported together, in the unit of the configured prices: by default one small call.

``paper`` counts the small call of a kept query and the large call of an escalated one (paper, section 3);
``sequential`` counts what a cascade really pays: the small call always, and every call of the large model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from schemas.event import MAX_INTEGER, NonNegative, Part, Real

Price = Annotated[Real, Field(gt=0.0, le=float(MAX_INTEGER))]

#: What a call costs whose server says that it used no token, or more than there are; sums of a few stay exact.
LEAST_CALL, MOST_CALL = 1e-9, 2.0**50


class TokenUse(NamedTuple):
    """Tokens that calls of one model read and generated; of one call, or the mean of several."""

    read: float = 0.0
    generated: float = 0.0


class ModelCosts(Part):
    """What one call of each model costs, or one token; where all costs are relative, only the ratio matters."""

    #: One call of the small model, or one token that it generates.
    small: Price = 1.0
    #: The same of the large model.
    large: Price
    # Former versions lack these, and must keep their digest when they are written again.
    #: ``call`` prices calls, whatever their length; ``token`` prices tokens, so that shorter answers cost less.
    unit: Annotated[Literal["call", "token"], Field(exclude_if=lambda unit: unit == "call")] = "call"
    #: One token that a model reads; with ``unit = "token"``.
    prompt_small: Annotated[NonNegative, Field(exclude_if=lambda price: not price)] = 0.0
    prompt_large: Annotated[NonNegative, Field(exclude_if=lambda price: not price)] = 0.0
    #: One call of the large model that no small answer begins, where that is dearer (see ``handoff``); with ``unit =
    #: "call"``.
    large_alone: Annotated[Price | None, Field(exclude_if=lambda price: price is None)] = None

    @model_validator(mode="after")
    def _of_one_unit(self) -> Self:
        if self.unit == "call" and (self.prompt_small or self.prompt_large):
            raise ValueError('prompt_small and prompt_large price tokens: add unit = "token", or leave them out')
        if self.unit == "token" and self.large_alone is not None:
            raise ValueError('large_alone prices a call and unit is "token", which counts it: leave it out')
        return self

    @property
    def alone(self) -> float:
        """One call of the large model that no small answer begins, for costs of calls."""
        return self.large if self.large_alone is None else self.large_alone

    def of_small(self, used: TokenUse) -> float:
        """Return the cost of a small call that used so many tokens."""
        return self.small if self.unit == "call" else _paid(used, self.small, self.prompt_small)

    def of_large(self, used: TokenUse) -> float:
        """Return the cost of a large call that used so many tokens."""
        return self.large if self.unit == "call" else _paid(used, self.large, self.prompt_large)

    def of_calls(self, small: TokenUse, large: TokenUse, alone: TokenUse) -> ModelCosts:
        """Return what one call costs.

        Examples
        --------
        >>> tokens = ModelCosts(small=1.0, large=3.0, unit="token", prompt_large=0.5)
        >>> mean = tokens.of_calls(TokenUse(100, 50), TokenUse(110, 40), TokenUse(100, 50))
        >>> mean.small, mean.large, mean.alone
        (50.0, 175.0, 200.0)
        """
        if self.unit == "call":
            return self
        whole = self.of_large(alone)
        return ModelCosts(
            small=max(LEAST_CALL, self.of_small(small)),
            large=max(LEAST_CALL, self.of_large(large)),
            large_alone=whole if whole > 0.0 and alone != large else None,
        )


def _paid(used: TokenUse, price: float, prompt_price: float) -> float:
    return min(MOST_CALL, price * used.generated + prompt_price * used.read)


class QueryCost(Part):
    """The two costs of one query, in the unit of the configured prices."""

    sequential: NonNegative
    paper: NonNegative


class CostRate(Part):
    """Mean cost of a query three ways, in the unit of the configured prices."""

    sequential: NonNegative
    paper: NonNegative
    large_only: NonNegative


def query_cost(costs: ModelCosts, *, escalated: bool, small: TokenUse | None, large: Sequence[TokenUse]) -> QueryCost:
    """Return both costs of one query.

    ``small``: None where the small model was not asked. ``large``: of each call of the large model, that which was to
    be served first; more than one where it was asked again without handoff, or alone, to compare.

    Examples
    --------
    >>> query_cost(ModelCosts(small=1.0, large=3.0), escalated=True, small=TokenUse(), large=[TokenUse()])
    QueryCost(sequential=4.0, paper=3.0)
    >>> tokens = ModelCosts(small=1.0, large=3.0, unit="token", prompt_small=0.5, prompt_large=0.5)
    >>> query_cost(tokens, escalated=True, small=TokenUse(80, 40), large=[TokenUse(90, 30)])
    QueryCost(sequential=215.0, paper=135.0)
    """
    first, paid = 0.0 if small is None else costs.of_small(small), [costs.of_large(used) for used in large]
    if small is None and costs.unit == "call":
        paid = [costs.alone] * len(large)
    return QueryCost(sequential=first + sum(paid), paper=paid[0] if escalated and paid else first)


def expected_cost(costs: ModelCosts, escalation_rate: float, exploration_probability: float = 0.0) -> CostRate:
    """Return the mean costs of a policy that escalates a share of queries and explores among the rest."""
    large_rate = escalation_rate + (1.0 - escalation_rate) * exploration_probability
    return CostRate(
        sequential=costs.small + large_rate * costs.large,
        paper=costs.small + large_rate * (costs.large - costs.small),
        large_only=costs.alone,
    )
