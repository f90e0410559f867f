"""Retries as a share of successes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.retry_budget import MOST_SAVED, RETRIES_A_SUCCESS, RetryBudget


@given(st.lists(st.booleans(), max_size=500))
def test_retries_never_exceed_what_was_saved_and_the_share_of_the_successes(events: list[bool]) -> None:
    budget, successes, retries = RetryBudget(), 0, 0
    for is_success in events:
        if is_success:
            budget.earn()
            successes += 1
        else:
            retries += budget.take()
        assert retries <= MOST_SAVED + RETRIES_A_SUCCESS * successes + 1e-6


def test_a_server_that_answers_pays_for_one_retry_in_five_answers() -> None:
    budget = RetryBudget()
    while budget.take():
        pass
    for _ in range(5):
        assert not budget.take()
        budget.earn()
    assert budget.take()
