"""Retries as a share of successes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.concurrency_limit import MOST_SAVED, RETRIES_A_SUCCESS, RetryBudget


@given(st.lists(st.booleans(), max_size=500))
def test_retries_stay_within_the_budget(events: list[bool]) -> None:
    """Retries never exceed the savings plus the share earned by successes."""
    budget, successes, retries = RetryBudget(), 0, 0
    for is_success in events:
        if is_success:
            budget.earn()
            successes += 1
        else:
            retries += budget.take()
        assert retries <= MOST_SAVED + RETRIES_A_SUCCESS * successes + 1e-6


def test_five_answers_earn_one_retry() -> None:
    budget = RetryBudget()
    while budget.take():
        pass
    for _ in range(5):
        assert not budget.take()
        budget.earn()
    assert budget.take()
