"""How a gateway's process ends, on the broker in memory."""

from threading import Event, current_thread
from threading import enumerate as threads

import pytest

from tests.support.gateways import DEADLINE_S, gateway
from tests.support.memory_broker.broker import MemoryPublisher


async def test_a_last_report_under_way_aborted_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a drained router ended with -6, as a thread does that comes back while the interpreter ends."""
    sent = Event()

    def slowly(_: MemoryPublisher, timeout_s: float = 0.0) -> None:
        if current_thread().name == "heartbeat":
            sent.wait(DEADLINE_S + timeout_s)

    before = set(threads())
    monkeypatch.setattr(MemoryPublisher, "close", slowly)
    async with gateway() as asked:
        pass
    try:
        assert asked.service.hangs, "the process ends without the interpreter's clean-up"
    finally:
        sent.set()
        for thread in {one for one in threads() if one.name == "heartbeat"} - before:
            thread.join(DEADLINE_S)
    assert not asked.service.hangs
