"""Health of a server: every state meets every event; latencies against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.server_health import Breaker, HealthEvent, HealthState, LatencyWindow

PATIENCE_S = 10.0
COUNTED = (HealthEvent.UNREACHABLE, HealthEvent.PROBE_FAILED, HealthEvent.PROBE_DELAYED)


def in_state(state: HealthState) -> Breaker:
    breaker = Breaker(PATIENCE_S)
    if state is HealthState.SUSPECT:
        breaker.advance(HealthEvent.FAILURE, 1.0)
    elif state is not HealthState.CLOSED:
        breaker.advance(HealthEvent.OUTAGE, 1.0)
    if state is HealthState.HALF_OPEN:
        breaker.advance(HealthEvent.PROBE_SENT, 2.0)
    assert breaker.state is state
    return breaker


DOUBTS = (HealthEvent.FAILURE, *COUNTED)
ENDS = {HealthEvent.SUCCESS: HealthState.CLOSED, HealthEvent.OUTAGE: HealthState.OPEN}
ABSENT = dict.fromkeys(DOUBTS, HealthState.OPEN) | ENDS | {HealthEvent.PROBE_SENT: HealthState.HALF_OPEN}
LEADS_TO: dict[HealthState, dict[HealthEvent, HealthState]] = {
    HealthState.CLOSED: dict.fromkeys(DOUBTS, HealthState.SUSPECT) | ENDS,
    HealthState.SUSPECT: dict.fromkeys((*DOUBTS, HealthEvent.PROBE_SENT), HealthState.SUSPECT) | ENDS,
    HealthState.OPEN: ABSENT,
    HealthState.HALF_OPEN: ABSENT,
}


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [(before, event, after) for before, events in LEADS_TO.items() for event, after in events.items()],
)
def test_each_event_leads_from_each_state_where_the_diagram_says(
    before: HealthState, event: HealthEvent, after: HealthState
) -> None:
    breaker = in_state(before)
    assert breaker.advance(event, 5.0) is after
    assert breaker.since_s == (5.0 if after is not before else in_state(before).since_s)
    assert breaker.is_closed is (after is HealthState.CLOSED)
    assert breaker.lets_through is (after in (HealthState.CLOSED, HealthState.SUSPECT))
    assert (breaker.health == "up") is breaker.lets_through


def test_probe_while_closed_is_illegal() -> None:
    breaker = in_state(HealthState.CLOSED)
    with pytest.raises(RuntimeError, match="probe_sent while closed"):
        breaker.advance(HealthEvent.PROBE_SENT, 5.0)
    assert (breaker.state, breaker.successes, breaker.since_s) == (HealthState.CLOSED, 0, 0.0)


def test_failed_calls_alone_never_open_it_however_many() -> None:
    breaker = in_state(HealthState.CLOSED)
    assert {breaker.advance(HealthEvent.FAILURE, float(now)) for now in range(1_000)} == {HealthState.SUSPECT}


@pytest.mark.parametrize("event", [HealthEvent.UNREACHABLE, HealthEvent.PROBE_FAILED])
def test_consecutive_failures_open_the_breaker(event: HealthEvent) -> None:
    breaker = in_state(HealthState.SUSPECT)
    for each in [event] * 2 + [HealthEvent.SUCCESS] + [event] * 2:
        breaker.advance(each, 0.0)
        assert breaker.lets_through
    assert breaker.advance(event, 0.0) is HealthState.OPEN


def test_delayed_probes_open_after_the_patience() -> None:
    breaker = in_state(HealthState.SUSPECT)
    began_s = breaker.since_s
    assert breaker.advance(HealthEvent.PROBE_SENT, began_s) is HealthState.SUSPECT
    for number in range(50):
        for event in (HealthEvent.PROBE_DELAYED, HealthEvent.PROBE_SENT, HealthEvent.FAILURE):
            assert breaker.advance(event, began_s + PATIENCE_S * number / 50) is HealthState.SUSPECT
    assert breaker.advance(HealthEvent.PROBE_DELAYED, began_s + PATIENCE_S) is HealthState.OPEN


def test_earlier_failures_do_not_reopen_it() -> None:
    breaker = in_state(HealthState.OPEN)
    for _ in range(10):
        breaker.advance(HealthEvent.PROBE_FAILED, 2.0)
    breaker.advance(HealthEvent.SUCCESS, 3.0)
    assert breaker.advance(HealthEvent.PROBE_FAILED, 3.0) is HealthState.SUSPECT


def test_probe_pauses_grow_to_a_second() -> None:
    breaker = Breaker(PATIENCE_S)
    breaker.advance(HealthEvent.OUTAGE, 100.0)
    now, pauses = 100.0, []
    for _ in range(8):
        pauses.append(breaker.probe_in_s(now))
        now += pauses[-1]
        assert breaker.probe_in_s(now) == pytest.approx(0.0)
        breaker.advance(HealthEvent.PROBE_SENT, now)
    assert pauses[0] == pytest.approx(0.2)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(1.0)


def test_a_new_outage_is_probed_soon_again() -> None:
    breaker = in_state(HealthState.HALF_OPEN)
    breaker.advance(HealthEvent.SUCCESS, 50.0)
    breaker.advance(HealthEvent.OUTAGE, 60.0)
    assert breaker.probe_in_s(60.0) == pytest.approx(0.2)


@given(st.lists(st.sampled_from(HealthEvent)))
def test_only_successes_count_as_evidence(events: list[HealthEvent]) -> None:
    breaker = Breaker(PATIENCE_S)
    for now, event in enumerate(events):
        if event is HealthEvent.PROBE_SENT and breaker.is_closed:
            continue
        breaker.advance(event, float(now))
        assert event is not HealthEvent.SUCCESS or breaker.is_closed
        assert event is not HealthEvent.OUTAGE or not breaker.is_closed
    assert breaker.successes == events.count(HealthEvent.SUCCESS)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60), st.integers(1, 20))
def test_mean_and_quantiles_are_those_of_the_last_calls(latencies_s: list[float], size: int) -> None:
    window = LatencyWindow(size)
    for latency_s in latencies_s:
        window.add(latency_s)
    kept = latencies_s[-size:]
    assert window.mean_s == pytest.approx(np.mean(kept), abs=1e-9)
    expected = np.quantile(kept, [0.5, 0.9, 0.99], method="lower")
    assert list(window.quantiles_s().values()) == pytest.approx(expected.tolist())


def test_nothing_is_known_before_the_first_call() -> None:
    assert LatencyWindow().mean_s is None
    assert LatencyWindow().quantiles_s() == {}
