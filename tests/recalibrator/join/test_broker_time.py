"""Senders whose clocks are wrong: nothing is dated later than it arrived."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recalibrator.join.broker_time import TOLERANCE_MS, broker_time_ms, dated_feedback, dated_result, is_behind, to_ms
from tests.support.recalibrator_events import START, feedback, routed

NOW_MS = to_ms(START)
YEAR_MS = 365 * 24 * 3600 * 1_000


@pytest.mark.parametrize(
    ("timestamp_ms", "by_broker", "expected"),
    [
        (NOW_MS - YEAR_MS, False, NOW_MS - YEAR_MS),
        (NOW_MS + TOLERANCE_MS, False, NOW_MS + TOLERANCE_MS),
        (NOW_MS + TOLERANCE_MS + 1, False, NOW_MS),
        (NOW_MS + YEAR_MS, True, NOW_MS + YEAR_MS),
        (0, True, NOW_MS),
        (-1, False, NOW_MS),
        (10**18, True, NOW_MS),
    ],
)
def test_broker_stamp_counts_always_producer_stamp_within_bounds(
    timestamp_ms: int, by_broker: bool, expected: int
) -> None:
    assert broker_time_ms(timestamp_ms, NOW_MS, by_broker=by_broker) == expected


def test_a_date_beyond_the_tolerance_becomes_the_arrival() -> None:
    near = routed(0, routed_at=START + timedelta(minutes=5))
    assert dated_result(near, NOW_MS) is near
    assert dated_result(near, NOW_MS - 1).routed_at == START - timedelta(milliseconds=1)
    late = feedback(0, labelled_at=START + timedelta(days=400))
    assert dated_feedback(late, NOW_MS).labelled_at == START
    undated = feedback(0, labelled_at=None)
    assert dated_feedback(undated, NOW_MS) is undated


def test_a_result_dated_an_hour_before_arrival_is_behind() -> None:
    assert is_behind(routed(0, routed_at=START - timedelta(hours=1, seconds=1)), NOW_MS)
    assert not is_behind(routed(0, routed_at=START - timedelta(minutes=59)), NOW_MS)
