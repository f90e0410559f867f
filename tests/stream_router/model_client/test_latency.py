"""Mean and quantiles of recent latencies, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.latency import LatencyWindow


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
