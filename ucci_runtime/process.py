"""What a process takes from its machine: the clock, signals, and standard error for its log lines and warnings."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from threading import Event, Thread
from types import FrameType
from typing import Any, NamedTuple, TextIO, cast

import structlog

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_reread import Reread
from schemas.settings_text import settings_warnings
from ucci_runtime.broker.ports import Publisher

INTERVAL_S = 60.0


class Tally:
    """What was counted since the last line.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.grown({"not_json": 2}, now_s=0.0)
    {'not_json': 2}
    >>> tally.grown({"not_json": 9}, now_s=1.0)
    {}
    >>> tally.grown({"not_json": 9, "empty": 1}, now_s=60.0)
    {'not_json': 7, 'empty': 1}
    """

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        self._said_s = -inf

    def grown(self, totals: Mapping[str, int], now_s: float) -> dict[str, int]:
        """Return by how much each count has grown since the last line; empty while nothing has or no line is due."""
        more = {name: total - self._said.get(name, 0) for name, total in totals.items()}
        more = {name: count for name, count in more.items() if count > 0}
        if not more or now_s < self._said_s + INTERVAL_S:
            return {}
        self._said, self._said_s = dict(totals), now_s
        return more


FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0
SAID_EVERY_S = 60.0


class Absence:
    """How a start goes on while no broker answers.

    Examples
    --------
    >>> absence = Absence()
    >>> [absence.failed(at_s) for at_s in (0.0, 1.0, 60.0)]
    [True, False, True]
    >>> absence.wait_s
    2.0
    """

    def __init__(self) -> None:
        self.wait_s = FIRST_WAIT_S / 2.0
        """Seconds until the broker is to be asked again; they double with each failure, up to ten."""
        self._said_at_s = -inf

    def failed(self, now_s: float) -> bool:
        """Note that nothing answered; return whether it is to be logged now: at first, then once a minute."""
        self.wait_s = min(2.0 * self.wait_s, LONGEST_WAIT_S)
        is_due = now_s - self._said_at_s >= SAID_EVERY_S
        if is_due:
            self._said_at_s = now_s
        return is_due


#: Files that a server's process asks to be allowed to open: Kafka clients, stores and snapshots need theirs as well.
WANTED_FILES = 8_192

#: New containers between two searches for cycles, instead of Python's 700: a thousand queries in flight are some tens
#: of thousands, and each search looks at those again that have not ended. A query with its model call took 283 µs of
#: CPU with 700, 276 with 700 and a frozen start, 267 with 5,000, 244 with 10,000 and 231 with 50,000 (least of three
#: runs of ``research/model_calls.py`` in turn, on a busy machine). More would save little, and holds more garbage.
NEW_OBJECTS = 10_000

#: The files of a process go in equal parts to its callers, to each of the two models of a workload, and to what must
#: never lack them: Kafka's clients, whose library ends the process then, the store, and everything else.
_SHARES = 4

REPEATED_AFTER_S = 60.0
_MOST_TEMPLATES = 1_000
#: They write of refused connections and of broken requests, a line or a traceback each.
_LOGGERS = ("asyncio", "uvicorn.error", "aiohttp.server", "socketserver")


def raise_file_limit(connections: int = 0) -> None:
    """Allow this process as many open files as it wants, for so many callers too, or as the system lets it have."""
    wanted = max(WANTED_FILES, _SHARES * connections)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


#: Connections that the kernel holds until they are accepted.
BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 takes a free one. Raises OSError when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def url_of(host: str, port: int) -> str:
    """Return the address of what listens there.

    Examples
    --------
    >>> url_of("127.0.0.1", 8080), url_of("::1", 8080)
    ('http://127.0.0.1:8080', 'http://[::1]:8080')
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def affordable_connections(most: int) -> int:
    """Return how many connections may be open for one purpose: at most a quarter of the files that there may be."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // _SHARES))


class RepeatedLines(logging.Filter):
    """Lets a log line through once a minute, and says how often it came in between."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        fault = record.exc_info[1] if record.exc_info else None
        if type(fault).__module__ == "aiohttp.http_exceptions":
            # The caller's, not ours: a traceback says nothing of it.
            record.msg, record.args, record.exc_info = "malformed HTTP request: %s", (type(fault).__name__,), None
        # The template, not the text: that of each connection's line may name its address.
        key, now_s = f"{record.name} {record.msg}", self._clock()
        since_s, suppressed = self._seen.get(key, (-math.inf, 0))
        if now_s - since_s < REPEATED_AFTER_S:
            self._seen[key] = (since_s, suppressed + 1)
            return False
        if len(self._seen) >= _MOST_TEMPLATES:
            self._seen.clear()
        self._seen[key] = (now_s, 0)
        if suppressed:
            record.msg = f"{record.getMessage()} ({suppressed} more since)"
            record.args = ()
        return True


#: One for all servers of the process: a logger takes the same filter once.
_REPEATED = RepeatedLines()


def search_cycles_seldom() -> None:
    """Have Python's collector leave alone what is there by now, and search among what comes less often.

    Called once all modules are loaded. What is in no cycle is freed at once, as ever.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()


class LastingStream:
    """A stream for log lines; one that cannot be written is dropped.

    A closed pipe or a full disk behind standard error is no reason to stop answering.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a line, or drop it."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand over what was written."""
        with suppress(OSError, ValueError):
            self._stream.flush()


class LogFormat(StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


def configure_logging(log_format: LogFormat) -> None:
    """Send the lines of this process to standard error; called once, before anything logs."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REPEATED)
    if log_format is LogFormat.JSON:
        renderers: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # The library's own tracebacks show local variables, and the settings with their secrets among them.
        trace = structlog.dev.plain_traceback
        renderers = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=trace)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: structlog.WriteLogger(cast(TextIO, LastingStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )


class Hangup:
    """What SIGHUP asks for: that the configuration is reloaded. Ends nothing, whatever the file says.

    ``read``: reads the file as the start does; raises ConfigError. ``take_over``: applies those settings that may
    change, and returns the outcome.
    """

    def __init__(self, read: Callable[[], Settings], take_over: Callable[[Settings], Reread]) -> None:
        self._read = read
        self._take_over = take_over
        self._has_come = Event()

    def watch(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Take SIGHUPs from now on; called in the main thread.

        ``loop``: serves each at once. Without one they are noted, and :meth:`serve` is to be called from time to time:
        a handler may interrupt the main thread anywhere, with a logger's lock taken.
        """
        if loop is None:
            signal.signal(signal.SIGHUP, lambda _number, _frame: self._has_come.set())
        else:
            loop.add_signal_handler(signal.SIGHUP, self._reload)

    def serve(self) -> None:
        """Do what the last SIGHUP asked for, where one has come since the last call."""
        if self._has_come.is_set():
            self._has_come.clear()
            self._reload()

    def _reload(self) -> None:
        log = structlog.get_logger()
        try:
            done = self._take_over(self._read())
        except ConfigError as error:
            log.error("configuration not taken over; the running one stays", faults=error.faults)  # noqa: TRY400 a user's
            return
        log_settings_warnings(done.settings)
        say = log.warning if done.waiting else log.info
        say("configuration read anew", applied=list(done.applied), need_restart=list(done.waiting))
        if done.gone:
            log.warning("the file no longer sets what it did; was it cut short?", keys=list(done.gone))


def log_settings_warnings(settings: Settings) -> None:
    """Log what an operator should look at in the settings, a line each."""
    for warning in settings_warnings(settings, at_start=True):
        structlog.get_logger().warning(warning)


def end_on_signals(end: Callable[[signal.Signals], None], loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Have the first SIGTERM or SIGINT end the service, and the second the process at once.

    ``end``: called with the first signal; returns without waiting for the end. ``loop``: calls ``end`` in this loop.
    Without one it interrupts the main thread wherever that stands: ``end`` must then take no lock that this thread may
    hold, such as a logger's.
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


#: Of a process's status to its compacted topic.
HEARTBEAT_S = 2.0
#: By this name a broker's publisher drops what it cannot send soon.
PUBLISHER = "heartbeat"

_FIRST_S = 0.5
_CLOSE_S = 1.0


class Beat(NamedTuple):
    """One status as it is sent."""

    instance_id: str
    value: bytes


class HeartbeatThread(Thread):
    """The thread that sends the status; nothing waits for it.

    A status that does not get through is dropped: the next one says more. ``status``: returns the status as of now,
    None to leave this one out; called in this thread.
    """

    def __init__(self, publisher: Publisher, topic: str, status: Callable[[], Beat | None], closing: Event) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._publisher = publisher
        self._topic = topic
        self._status = status
        self._closing = closing

    def run(self) -> None:
        """Send a status every few seconds, the first soon, until closed, and a last one then."""
        wait_s = _FIRST_S
        while not self._closing.wait(wait_s):
            self._send()
            wait_s = HEARTBEAT_S
        self._send()
        self._publisher.close(_CLOSE_S)

    def _send(self) -> None:
        beat = self._status()
        if beat is not None:
            self._publisher.post(self._topic, beat.instance_id.encode(), beat.value)
