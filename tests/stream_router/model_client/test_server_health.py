"""Health of a server: every state meets every event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.server_health import Breaker, Event, IllegalTransitionError, State

LIMIT = 3
PATIENCE_S = 10.0
COUNTED = (Event.UNREACHABLE, Event.PROBE_FAILED, Event.PROBE_DELAYED)


def in_state(state: State) -> Breaker:
    breaker = Breaker(PATIENCE_S, LIMIT)
    if state is State.SUSPECT:
        breaker.advance(Event.FAILURE, 1.0)
    elif state is not State.CLOSED:
        breaker.advance(Event.OUTAGE, 1.0)
    if state is State.HALF_OPEN:
        breaker.advance(Event.PROBE_SENT, 2.0)
    assert breaker.state is state
    return breaker


LEADS_TO: dict[State, dict[Event, State]] = {
    State.CLOSED: {
        **dict.fromkeys((Event.FAILURE, *COUNTED), State.SUSPECT),
        Event.SUCCESS: State.CLOSED,
        Event.OUTAGE: State.OPEN,
    },
    State.SUSPECT: {
        **dict.fromkeys((Event.FAILURE, *COUNTED, Event.PROBE_SENT), State.SUSPECT),
        Event.SUCCESS: State.CLOSED,
        Event.OUTAGE: State.OPEN,
    },
    State.OPEN: {
        **dict.fromkeys((Event.FAILURE, *COUNTED, Event.OUTAGE), State.OPEN),
        Event.SUCCESS: State.CLOSED,
        Event.PROBE_SENT: State.HALF_OPEN,
    },
    State.HALF_OPEN: {
        **dict.fromkeys((Event.FAILURE, *COUNTED, Event.OUTAGE), State.OPEN),
        Event.SUCCESS: State.CLOSED,
        Event.PROBE_SENT: State.HALF_OPEN,
    },
}


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [(before, event, after) for before, events in LEADS_TO.items() for event, after in events.items()],
)
def test_each_event_leads_from_each_state_where_the_diagram_says(before: State, event: Event, after: State) -> None:
    breaker = in_state(before)
    assert breaker.advance(event, 5.0) is after
    assert breaker.since_s == (5.0 if after is not before else in_state(before).since_s)
    assert breaker.is_closed is (after is State.CLOSED)
    assert breaker.lets_through is (after in (State.CLOSED, State.SUSPECT))
    assert (breaker.health == "up") is breaker.lets_through


def test_a_probe_while_there_is_no_doubt_is_an_error_and_changes_nothing() -> None:
    breaker = in_state(State.CLOSED)
    with pytest.raises(IllegalTransitionError, match="probe_sent while closed"):
        breaker.advance(Event.PROBE_SENT, 5.0)
    assert (breaker.state, breaker.successes, breaker.since_s) == (State.CLOSED, 0, 0.0)


def test_failed_calls_alone_never_open_it_however_many() -> None:
    breaker = in_state(State.CLOSED)
    assert {breaker.advance(Event.FAILURE, float(now)) for now in range(1_000)} == {State.SUSPECT}


@pytest.mark.parametrize("event", [Event.UNREACHABLE, Event.PROBE_FAILED])
def test_probes_that_fail_and_refused_connections_open_it_unless_something_is_answered_between(event: Event) -> None:
    breaker = in_state(State.SUSPECT)
    for each in [event] * 2 + [Event.SUCCESS] + [event] * 2:
        breaker.advance(each, 0.0)
        assert breaker.lets_through
    assert breaker.advance(event, 0.0) is State.OPEN


def test_probes_that_a_busy_server_delays_open_it_only_after_its_patience() -> None:
    breaker = in_state(State.SUSPECT)
    began_s = breaker.since_s
    assert breaker.advance(Event.PROBE_SENT, began_s) is State.SUSPECT
    for number in range(50):
        for event in (Event.PROBE_DELAYED, Event.PROBE_SENT, Event.FAILURE):
            assert breaker.advance(event, began_s + PATIENCE_S * number / 50) is State.SUSPECT
    assert breaker.advance(Event.PROBE_DELAYED, began_s + PATIENCE_S) is State.OPEN


def test_failures_from_before_the_recovery_do_not_open_it_again_at_once() -> None:
    breaker = in_state(State.OPEN)
    for _ in range(10):
        breaker.advance(Event.PROBE_FAILED, 2.0)
    breaker.advance(Event.SUCCESS, 3.0)
    assert breaker.advance(Event.PROBE_FAILED, 3.0) is State.SUSPECT


def test_probes_come_soon_at_first_and_never_more_than_a_second_apart() -> None:
    breaker = Breaker(PATIENCE_S, LIMIT)
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
    breaker = Breaker(PATIENCE_S, LIMIT)
    for now, event in enumerate(events):
        if event is Event.PROBE_SENT and breaker.is_closed:
            continue
        breaker.advance(event, float(now))
        assert event is not Event.SUCCESS or breaker.is_closed
        assert event is not Event.OUTAGE or not breaker.is_closed
    assert breaker.successes == events.count(Event.SUCCESS)
