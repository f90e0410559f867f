"""Signals that come before a service can take them. Loads nothing, so as to be there before all that takes long."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def end_while_nothing_runs() -> None:
    """Have SIGTERM and SIGINT end ``… run`` or ``… serve`` with exit code 0 until the service takes them.

    Nothing has begun until then. Other commands are left as they are: one that was interrupted has not done what it was
    called for.
    """
    if sys.argv[1:2] in (["run"], ["serve"]):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    # No exception: it could come up within an import, which may take it for the import's own.
    os._exit(0)
