"""A cause is named in time, and no act that would harm is offered: the hard faults of `tests/faults/states.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.states import STATES, hard
from tests.faults.states_page import write
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

#: Each is graver than the one before, whose end need not be waited for.
HARD = ("cold start", "large model down", "both models down", "routers gone")


def test_a_hard_fault_is_named_and_no_act_harms(broker: LocalBroker, tmp_path: Path) -> None:
    """Each is looked at until its cause is named, within :data:`PATIENCE_S`, not for the minute after."""
    rows = list(hard(broker, tmp_path / "hard", [STATES[name] for name in HARD], minute_s=0.0))
    assert [row["state"] for row in rows] == list(HARD)
    for row in rows:
        assert row["named_s"] is not None, row
        assert not row["harm"], row
        assert row["named"]["headline"]["kind"] in STATES[row["state"]].kinds
        write(tmp_path / "page", row, HARD, "make test")
    assert "4 states" in (tmp_path / "page" / "README.md").read_text()
