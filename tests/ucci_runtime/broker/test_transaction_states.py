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


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_transaction_follows_the_transition_table(state: State, event: Event) -> None:
    """An event leads to the state in the table, or is refused and changes nothing."""
    transaction = Transaction()
    for before in PATHS[state]:
        transaction.advance(before)
    assert transaction.state is state
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


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("out_of_time", [False, True])
def test_each_error_has_its_remedy_in_each_state(state: State, out_of_time: bool) -> None:
    """An open transaction is aborted; what cannot be, or is repeated for too long, is abandoned."""
    is_open = state in {State.PRODUCING, State.COMMITTING}
    remedies: dict[type[BrokerError], Remedy] = {
        Fenced: Remedy.STOP,
        AccessDenied: Remedy.STOP,
        RetryCall: Remedy.ABANDON if out_of_time else Remedy.REPEAT,
        AbortTransaction: Remedy.ABORT if is_open else Remedy.ABANDON,
        Rejoin: Remedy.ABORT if is_open else Remedy.ABANDON,
        RecreateProducer: Remedy.ABANDON,
    }
    assert {kind: remedy(state, kind("x"), out_of_time=out_of_time) for kind in remedies} == remedies
