"""Signals: the first asks a service to end, the second does not wait. Cycles are searched for; lines repeat."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from aiohttp.http_exceptions import LineTooLong

from ucci_runtime.process import (
    REPEATED_AFTER_S,
    RepeatedLines,
)

ROOT = Path(__file__).parents[2]
#: Bytes of a pipe that a command with more to say cannot get past while nobody reads on, however slow the reader.
SMALL = 4_096

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


@pytest.mark.parametrize("service", ["stream_router", "recalibrator"])
@pytest.mark.parametrize(
    ("command", "received", "code"),
    [("run", signal.SIGTERM, 0), ("run", signal.SIGINT, 0), ("check-config", signal.SIGTERM, -signal.SIGTERM)],
)
def test_a_signal_amid_the_start_looked_like_a_crash(
    service: str, command: str, received: signal.Signals, code: int, tmp_path: Path
) -> None:
    """While its libraries are loaded a service has begun nothing, and ends with exit code 0; it was -15.

    Another command that is cut short does not.
    """
    words = [sys.executable, "-X", "importtime", "-m", service, command, "--config", str(tmp_path / "none.toml")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, pipesize=SMALL, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        # The interpreter names each module as it is loaded; this one is among the first of many.
        for line in process.stderr:
            if "annotated_types" in line:
                break
        process.send_signal(received)
        process.stderr.read()
        assert process.wait(30) == code


SEARCHES = """
    import gc
    import weakref
    from ucci_runtime.process import search_cycles_seldom

    class Node:
        def __init__(self):
            self.itself = self

    loaded = len(gc.get_objects())
    search_cycles_seldom()
    assert gc.get_freeze_count() > loaded // 2

    searches = []
    gc.callbacks.append(lambda phase, _: phase == "start" and searches.append(phase))
    held = [[] for _ in range(5_000)]
    assert not searches, "a few queries in flight begin a search"

    first = weakref.ref(Node())
    for _ in range(50_000):
        Node()
    assert first() is None, "a cycle is never found"
"""


def test_cycles_are_searched_for_seldom_and_found() -> None:
    """Queries in flight are not looked at again and again, and what ends in a cycle does not fill the memory."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(SEARCHES)], check=True, timeout=60)


def line(text: str, *args: str, logger: str = "asyncio", fault: Exception | None = None) -> logging.LogRecord:
    raised = None if fault is None else (type(fault), fault, None)
    return logging.LogRecord(logger, logging.ERROR, "", 0, text, args, raised)


def test_a_log_line_repeated_a_thousand_times_fills_the_disk() -> None:
    now_s = 0.0
    lines = RepeatedLines(clock=lambda: now_s)
    same = [line("too many open files") for _ in range(1_000)]
    assert sum(lines.filter(record) for record in same) == 1
    assert lines.filter(line("another"))
    now_s = REPEATED_AFTER_S
    assert lines.filter(same[0])
    assert "999 more" in same[0].getMessage()


def test_each_malformed_request_writes_a_traceback() -> None:
    """A header too long, or too many of them: one line a minute says that there are such, and of what kind."""
    lines, fault = RepeatedLines(), LineTooLong(b"X: " + b"a" * 8_191, 8_190)
    written = [line("Error of %s", "1.2.3.4", logger="aiohttp.server", fault=fault) for _ in range(10)]
    (passed,) = filter(lines.filter, written)
    assert logging.Formatter().format(passed) == "malformed HTTP request: LineTooLong"


LOGGING_TO_NOBODY = """
import os
import structlog
from ucci_runtime.process import LogFormat, configure_logging

reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 2)
configure_logging(LogFormat.CONSOLE)
for _ in range(20_000):
    structlog.get_logger().warning("nobody reads this", name="\\udcff")
print("goes on")
"""


def test_a_closed_log_ends_no_service() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOGGING_TO_NOBODY], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "goes on\n"
