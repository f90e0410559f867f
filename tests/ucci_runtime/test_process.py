"""Signals: the first asks a service to end, the second does not wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

WITHOUT_LOOP = """
    import time
    from ucci_runtime.process import end_on_signals

    end_on_signals(lambda received: print(received.name, flush=True))
    print("ready", flush=True)
    while True:
        time.sleep(1.0)
"""
IN_A_LOOP = """
    import asyncio
    from ucci_runtime.process import end_on_signals

    async def serve() -> None:
        end_on_signals(lambda received: print(received.name, flush=True), asyncio.get_running_loop())
        print("ready", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())
"""


@pytest.mark.parametrize("code", [WITHOUT_LOOP, IN_A_LOOP], ids=["no_loop", "loop"])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_the_process_at_once(code: str, first: signal.Signals) -> None:
    """A service that never gets to its end can still be stopped, by either signal."""
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(first)
        assert process.stdout.readline() == f"{first.name}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
