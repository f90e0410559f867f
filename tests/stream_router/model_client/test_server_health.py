"""Health of a server: what opens its breaker, and how often it is probed then; latencies against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.server_health import Breaker, HealthEvent, HealthState, LatencyWindow

PATIENCE_S = 10.0


def suspect() -> Breaker:
    breaker = Breaker(PATIENCE_S)
    assert breaker.advance(HealthEvent.FAILURE, 1.0) is HealthState.SUSPECT
    return breaker


def test_failed_calls_alone_never_open_it_however_many() -> None:
    breaker = suspect()
    assert {breaker.advance(HealthEvent.FAILURE, float(now)) for now in range(1_000)} == {HealthState.SUSPECT}


@pytest.mark.parametrize("event", [HealthEvent.UNREACHABLE, HealthEvent.PROBE_FAILED])
def test_consecutive_failures_open_the_breaker(event: HealthEvent) -> None:
    breaker = suspect()
    for each in [event] * 2 + [HealthEvent.SUCCESS] + [event] * 2:
        breaker.advance(each, 0.0)
        assert breaker.lets_through
    assert breaker.advance(event, 0.0) is HealthState.OPEN


def test_delayed_probes_open_after_the_patience() -> None:
    breaker = suspect()
    began_s = breaker.since_s
    assert breaker.advance(HealthEvent.PROBE_SENT, began_s) is HealthState.SUSPECT
    for number in range(50):
        for event in (HealthEvent.PROBE_DELAYED, HealthEvent.PROBE_SENT, HealthEvent.FAILURE):
            assert breaker.advance(event, began_s + PATIENCE_S * number / 50) is HealthState.SUSPECT
    assert breaker.advance(HealthEvent.PROBE_DELAYED, began_s + PATIENCE_S) is HealthState.OPEN


@pytest.mark.parametrize("event", [HealthEvent.UNREACHABLE, HealthEvent.PROBE_FAILED, HealthEvent.PROBE_DELAYED])
def test_only_an_answer_ends_an_outage(event: HealthEvent) -> None:
    """Failures of the time before it count no more then."""
    breaker = Breaker(PATIENCE_S)
    for each in (HealthEvent.OUTAGE, event, HealthEvent.PROBE_SENT, event, HealthEvent.PROBE_SENT, event):
        breaker.advance(each, 1.0)
        assert not breaker.lets_through
    assert breaker.advance(HealthEvent.SUCCESS, 2.0) is HealthState.CLOSED
    assert breaker.advance(event, 2.0) is HealthState.SUSPECT


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


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60), st.integers(1, 20))
def test_mean_and_quantiles_are_those_of_the_last_calls(latencies_s: list[float], size: int) -> None:
    window = LatencyWindow(size)
    for latency_s in latencies_s:
        window.add(latency_s)
    kept = latencies_s[-size:]
    assert window.mean_s == pytest.approx(np.mean(kept), abs=1e-9)
    expected = np.quantile(kept, [0.5, 0.9, 0.99], method="lower")
    assert list(window.quantiles_s().values()) == pytest.approx(expected.tolist())
