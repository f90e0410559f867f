"""A drift that ends: what held before it holds again at once."""

from __future__ import annotations

import numpy as np

from recalibrator.core import Recalibrator
from tests.support.cascade_stream import Answers, drive, settings, typo_world

DRIFT_AT, BACK_AT, QUERIES = 6_000, 12_000, 16_000


def large_calls() -> np.ndarray:
    """Return which queries the large model answered, of a stream whose drift ends."""
    world = typo_world(BACK_AT, DRIFT_AT)

    def draw(number: int) -> Answers:
        return world.draw(number if number < BACK_AT else number - BACK_AT)

    return np.array(drive(Recalibrator(settings()), draw, QUERIES, mean_delay=2_000.0).large_called)


def test_few_calls_too_many_after_a_drift_has_ended() -> None:
    """For thousands of queries a seventh more than before were made, while labels were late."""
    called = large_calls()
    before, after = called[DRIFT_AT - 2_000 : DRIFT_AT].mean(), called[BACK_AT + 1_000 : BACK_AT + 4_000].mean()
    assert called[BACK_AT - 2_000 : BACK_AT].mean() > 1.5 * before
    assert after < 1.05 * before
