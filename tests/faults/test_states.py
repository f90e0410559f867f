"""A cause is named in time, and no act that would harm is offered: the hard faults of `tests/faults/states.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.stalls import StalledBroker
from tests.faults.states import STATES, hard
from tests.faults.states_page import write
from tests.support.broker import running_broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

#: Each is graver than the one before, whose end need not be waited for.
HARD = ("cold start", "large model down", "both models down", "routers gone")
#: A broker that stood still was blamed on the fit, and its return asked for a restart.
STILL = ("Kafka away", "Kafka back")


@pytest.mark.parametrize("names", [HARD, STILL], ids=["services", "Kafka"])
def test_a_hard_fault_is_named_and_no_act_harms(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Each is looked at until its cause is named, within :data:`PATIENCE_S`, not for the minute after."""
    with running_broker(StalledBroker(tmp_path / "kafka")) as broker:
        rows = list(hard(broker, tmp_path / "hard", [STATES[name] for name in names], minute_s=0.0))
    assert [row["state"] for row in rows] == list(names)
    for row in rows:
        assert row["named_s"] is not None, row
        assert not row["harm"], row
        write(tmp_path / "page", row, names, "make test")
    assert f"{len(names)} states" in (tmp_path / "page" / "README.md").read_text()
