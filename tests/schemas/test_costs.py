"""Costs of calls and of tokens: both figures of a query, whatever is priced, and no trace in versions of old."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.costs import ModelCosts, TokenUse, expected_cost, query_cost
from schemas.event import MAX_INTEGER
from schemas.settings import WorkloadSettings

prices = st.floats(0.01, 1_000.0)
reading = st.floats(0.0, 1_000.0)
uses = st.builds(TokenUse, st.integers(0, 10_000), st.integers(0, 10_000))
token_costs = st.builds(
    ModelCosts, small=prices, large=prices, unit=st.just("token"), prompt_small=reading, prompt_large=reading
)


@given(token_costs, uses, st.lists(uses, min_size=1, max_size=3))
def test_a_query_costs_its_tokens(costs: ModelCosts, small: TokenUse, large: list[TokenUse]) -> None:
    """Every call is paid in the sequential cost; the paper's has the first large one alone."""

    def paid(use: TokenUse, price: float, prompt: float) -> float:
        return use.generated * price + use.read * prompt

    cost = query_cost(costs, escalated=True, small=small, large=large)
    calls = [paid(use, costs.large, costs.prompt_large) for use in large]
    assert cost.paper == pytest.approx(calls[0])
    assert cost.sequential == pytest.approx(paid(small, costs.small, costs.prompt_small) + sum(calls))


@given(token_costs, uses, uses, st.floats(0.0, 1.0))
def test_mean_calls_give_the_mean_cost_of_a_policy(
    costs: ModelCosts, small: TokenUse, large: TokenUse, rate: float
) -> None:
    kept = query_cost(costs, escalated=False, small=small, large=[])
    escalated = query_cost(costs, escalated=True, small=small, large=[large])
    expected = expected_cost(costs.of_calls(small, large, large), rate)
    for name in ("sequential", "paper"):
        mean = (1.0 - rate) * getattr(kept, name) + rate * getattr(escalated, name)
        assert getattr(expected, name) == pytest.approx(mean, abs=1e-6)


def test_large_only_is_priced_without_what_was_handed_over() -> None:
    """A call that a small answer begins generates less; a service of large calls alone would not have it."""
    costs = ModelCosts(small=1.0, large=3.0, unit="token", prompt_large=0.1)
    calls = costs.of_calls(TokenUse(100, 50), TokenUse(120, 30), TokenUse(100, 50))
    assert expected_cost(calls, 0.5).large_only == pytest.approx(3.0 * 50 + 0.1 * 100)
    assert expected_cost(calls, 0.5).sequential == pytest.approx(50 + 0.5 * (3.0 * 30 + 0.1 * 120))


def test_costs_of_calls_are_written_as_they_always_were() -> None:
    """Versions of former releases are written again with the bytes that their digest covers."""
    assert ModelCosts(small=1.0, large=3.0).model_dump() == {"small": 1.0, "large": 3.0}
    assert ModelCosts(small=1.0, large=3.0).model_dump_json() == '{"small":1.0,"large":3.0}'


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({"large": 3.0, "prompt_large": 0.1}, 'add unit = "token"'),
        ({"large": 3.0, "unit": "token", "large_alone": 4.0}, "leave it out"),
    ],
)
def test_prices_that_say_two_things_are_refused(cost: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        WorkloadSettings.model_validate({"name": "w", "fields": ["a"], "target": {"micro_f1": 0.9}, "cost": cost})


def test_a_server_that_claims_any_number_of_tokens_has_a_cost() -> None:
    """No result is lost to what a server says of its tokens."""
    costs = ModelCosts(small=1.0, large=1e6, unit="token", prompt_large=1e6)
    lie = TokenUse(MAX_INTEGER, MAX_INTEGER)
    assert query_cost(costs, escalated=True, small=lie, large=[lie] * 3).sequential <= MAX_INTEGER
    assert expected_cost(costs.of_calls(lie, lie, TokenUse()), 1.0).sequential <= MAX_INTEGER
    assert costs.of_calls(TokenUse(), TokenUse(), TokenUse()).small > 0.0
