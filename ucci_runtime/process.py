"""What a process takes from its machine: the clock, signals, and standard error for its log lines and warnings."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from types import FrameType
from typing import Any

import structlog

from schemas.settings import Settings
from schemas.settings_text import settings_warnings


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()


class LogFormat(StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


def configure_logging(log_format: LogFormat) -> None:
    """Send the lines of this process to standard error; called once, before anything logs."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    trace = [structlog.processors.format_exc_info] if log_format is LogFormat.JSON else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *trace,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=True,
    )


def log_settings_warnings(settings: Settings) -> None:
    """Log what an operator should look at in the settings, a line each."""
    log = structlog.get_logger()
    for warning in settings_warnings(settings):
        log.warning(warning)


def end_on_signals(end: Callable[[signal.Signals], None], loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Have the first SIGTERM or SIGINT end the service, and the second the process at once.

    Parameters
    ----------
    end : callable
        Called with the first signal; returns without waiting for the end.
    loop : asyncio.AbstractEventLoop, optional
        Calls ``end`` in this loop. Without one it interrupts the main thread wherever that stands: ``end`` must then
        take no lock that this thread may hold, such as a logger's.
    """
    seen: list[int] = []

    def received(number: int, _frame: FrameType | None = None) -> None:
        seen.append(number)
        if len(seen) > 1:
            os._exit(128 + number)
        end(signal.Signals(number))

    for number in (signal.SIGTERM, signal.SIGINT):
        if loop is None:
            signal.signal(number, received)
        else:
            loop.add_signal_handler(number, received, number)
