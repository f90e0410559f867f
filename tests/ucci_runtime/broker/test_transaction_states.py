"""The transaction's states: every pair of state and event, and what each error leads to."""

from __future__ import annotations

import pytest

from ucci_runtime.broker.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    Fenced,
    IllegalTransition,
    RecreateProducer,
    Rejoin,
    RetryCall,
)
from ucci_runtime.broker.transaction_states import TRANSITIONS, Event, Remedy, State, Transaction, remedy

PATHS: dict[State, list[Event]] = {
    State.STARTING: [],
    State.READY: [Event.INITIALISED],
    State.PRODUCING: [Event.INITIALISED, Event.BEGUN],
    State.COMMITTING: [Event.INITIALISED, Event.BEGUN, Event.OFFSETS_SENT],
    State.ABORTING: [Event.INITIALISED, Event.BEGUN, Event.FAILED],
    State.FENCED: [Event.FENCED],
    State.CLOSED: [Event.CLOSED],
}


def in_state(state: State) -> Transaction:
    transaction = Transaction()
    for event in PATHS[state]:
        transaction.advance(event)
    assert transaction.state is state
    return transaction


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_transaction_follows_the_transition_table(state: State, event: Event) -> None:
    """An event leads to the state in the table, or is refused and changes nothing."""
    transaction = in_state(state)
    following = TRANSITIONS[state].get(event)
    if following is None:
        with pytest.raises(IllegalTransition, match=event.value):
            transaction.advance(event)
        assert transaction.state is state
    else:
        assert transaction.advance(event) is following is transaction.state


def test_no_state_commits_without_offsets() -> None:
    leading = {state for state, events in TRANSITIONS.items() if Event.COMMITTED in events}
    assert leading == {State.COMMITTING}
    assert {s for s, events in TRANSITIONS.items() if State.COMMITTING in events.values()} == {State.PRODUCING}


def test_a_fenced_producer_can_only_be_closed() -> None:
    assert set(TRANSITIONS[State.FENCED]) == {Event.CLOSED}


@pytest.mark.parametrize("state", [State.PRODUCING, State.COMMITTING])
@pytest.mark.parametrize("error", [AbortTransaction("x"), Rejoin("x")])
def test_an_open_transaction_is_aborted(state: State, error: BrokerError) -> None:
    assert remedy(state, error, out_of_time=False) is Remedy.ABORT
    assert remedy(state, error, out_of_time=True) is Remedy.ABORT


@pytest.mark.parametrize("state", [State.STARTING, State.READY, State.ABORTING])
@pytest.mark.parametrize("error", [AbortTransaction("x"), Rejoin("x")])
def test_what_cannot_be_aborted_is_abandoned(state: State, error: BrokerError) -> None:
    assert remedy(state, error, out_of_time=False) is Remedy.ABANDON


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("out_of_time", [False, True])
def test_errors_that_waiting_cannot_mend_stop_the_process(state: State, out_of_time: bool) -> None:
    for error in (Fenced("x"), AccessDenied("x")):
        assert remedy(state, error, out_of_time=out_of_time) is Remedy.STOP


@pytest.mark.parametrize("state", State)
def test_a_call_that_may_be_repeated_is_until_the_time_is_over(state: State) -> None:
    assert remedy(state, RetryCall("x"), out_of_time=False) is Remedy.REPEAT
    assert remedy(state, RetryCall("x"), out_of_time=True) is Remedy.ABANDON
    assert remedy(state, RecreateProducer("x"), out_of_time=False) is Remedy.ABANDON
