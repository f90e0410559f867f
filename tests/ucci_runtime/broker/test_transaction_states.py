"""The transaction's states: what none of them allows, and what each error leads to."""

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


def test_no_state_commits_without_offsets() -> None:
    transaction = Transaction()
    transaction.advance(Event.INITIALISED)
    transaction.advance(Event.BEGUN)
    with pytest.raises(IllegalTransition, match="committed"):
        transaction.advance(Event.COMMITTED)
    assert transaction.state is State.PRODUCING
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
