"""A client's close that never returns is left behind; one that freezes the whole process ends it."""

from __future__ import annotations

import subprocess
import sys
from threading import Event

import pytest

from ucci_runtime.broker import kafka_watched_calls
from ucci_runtime.broker.kafka_watched_calls import close_or_leave

FROZEN = """
import ctypes
from ucci_runtime.broker import kafka_watched_calls as calls
calls.FROZEN_S = 0.5
calls.close_or_leave("intake", lambda: ctypes.PyDLL(None).sleep(60))  # a call by PyDLL keeps the interpreter's lock
"""


def test_a_router_froze_in_a_clients_close_for_good() -> None:
    """No thread could run, so every probe timed out: now the process exits, and its supervisor restarts it."""
    ended = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, text=True, check=False, timeout=50)
    assert ended.returncode == 1
    assert "in close_or_leave" in ended.stderr, "the log does not show where it stood"


def test_a_close_that_never_returns_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_watched_calls, "CLOSE_S", 0.05)
    never = Event()
    close_or_leave("intake", never.wait)
    never.set()
