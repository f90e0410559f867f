"""Brokers that stand still for as long as services did not survive; `python -m tests.faults.stalls` draws hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.stalls import pause, served, with_own_time_outs

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SEED = 20260601


def test_a_broker_that_stood_still_left_services_dead_or_ended(tmp_path: Path) -> None:
    """After 12 s, longer than its own session, each client had dropped it for good the second time; after 28 s each was
    fenced by the join that had waited in the broker's buffers."""
    with served(tmp_path, SEED, 1) as (stage, (broker,)):
        with_own_time_outs(stage)
        stage.start()
        for seconds in (12.0, 12.0, 28.0):
            found = pause(stage, broker, seconds, kills=False)
            assert None not in found["back_s"].values(), found
            assert found["ended"] == []
        _, findings = stage.judge()
    assert [one for one in findings if not one.what.startswith("drift is")] == []
