"""Health of a server: every state meets every event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.core.breaker import Breaker, Event, IllegalTransitionError, State

LIMIT = 3


def in_state(state: State) -> Breaker:
    breaker = Breaker(LIMIT)
    if state is not State.CLOSED:
        breaker.advance(Event.OUTAGE, 1.0)
    if state is State.HALF_OPEN:
        breaker.advance(Event.PROBE_SENT, 2.0)
    assert breaker.state is state
    return breaker


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        (State.CLOSED, Event.SUCCESS, State.CLOSED),
        (State.CLOSED, Event.FAILURE, State.CLOSED),
        (State.CLOSED, Event.OUTAGE, State.OPEN),
        (State.OPEN, Event.SUCCESS, State.CLOSED),
        (State.OPEN, Event.FAILURE, State.OPEN),
        (State.OPEN, Event.OUTAGE, State.OPEN),
        (State.OPEN, Event.PROBE_SENT, State.HALF_OPEN),
        (State.HALF_OPEN, Event.SUCCESS, State.CLOSED),
        (State.HALF_OPEN, Event.FAILURE, State.OPEN),
        (State.HALF_OPEN, Event.OUTAGE, State.OPEN),
        (State.HALF_OPEN, Event.PROBE_SENT, State.HALF_OPEN),
    ],
)
def test_each_event_leads_from_each_state_where_the_diagram_says(before: State, event: Event, after: State) -> None:
    breaker = in_state(before)
    assert breaker.advance(event, 5.0) is after
    assert breaker.since_s == (5.0 if after is not before else in_state(before).since_s)
    assert breaker.is_closed is (after is State.CLOSED)


def test_a_probe_while_calls_go_through_is_refused_and_changes_nothing() -> None:
    breaker = in_state(State.CLOSED)
    with pytest.raises(IllegalTransitionError, match="probe_sent while up"):
        breaker.advance(Event.PROBE_SENT, 5.0)
    assert (breaker.state, breaker.successes, breaker.since_s) == (State.CLOSED, 0, 0.0)


def test_failures_in_a_row_open_it_and_one_success_between_them_starts_the_count_anew() -> None:
    breaker = Breaker(LIMIT)
    for event in [Event.FAILURE] * 2 + [Event.SUCCESS] + [Event.FAILURE] * 2:
        assert breaker.advance(event, 0.0) is State.CLOSED
    assert breaker.advance(Event.FAILURE, 0.0) is State.OPEN


def test_failures_from_before_the_recovery_do_not_open_it_again_at_once() -> None:
    breaker = in_state(State.OPEN)
    for _ in range(10):
        breaker.advance(Event.FAILURE, 2.0)
    breaker.advance(Event.SUCCESS, 3.0)
    assert breaker.advance(Event.FAILURE, 3.0) is State.CLOSED


def test_probes_come_soon_at_first_and_never_more_than_a_second_apart() -> None:
    breaker = Breaker(LIMIT)
    breaker.advance(Event.OUTAGE, 100.0)
    now, pauses = 100.0, []
    for _ in range(8):
        pauses.append(breaker.probe_in_s(now))
        now += pauses[-1]
        assert breaker.probe_in_s(now) == pytest.approx(0.0)
        breaker.advance(Event.PROBE_SENT, now)
    assert pauses[0] == pytest.approx(0.2)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(1.0)


def test_a_new_outage_is_probed_soon_again() -> None:
    breaker = in_state(State.HALF_OPEN)
    breaker.advance(Event.SUCCESS, 50.0)
    breaker.advance(Event.OUTAGE, 60.0)
    assert breaker.probe_in_s(60.0) == pytest.approx(0.2)


@given(st.lists(st.sampled_from(Event)))
def test_after_a_success_calls_go_through_and_only_successes_count_as_evidence(events: list[Event]) -> None:
    breaker = Breaker(LIMIT)
    for now, event in enumerate(events):
        if event is Event.PROBE_SENT and breaker.is_closed:
            continue
        breaker.advance(event, float(now))
        assert event is not Event.SUCCESS or breaker.is_closed
        assert event is not Event.OUTAGE or not breaker.is_closed
    assert breaker.successes == events.count(Event.SUCCESS)
