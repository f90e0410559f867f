"""Calls into the Kafka client that may never return, each made on another thread and waited for with a deadline.

The caller gets what the call returned or raised, or :class:`CallStuck` once the deadline has passed. The stuck thread
is left behind: nothing can end it. It keeps its client until the call returns; nothing else here keeps one, so that a
client that was replaced goes with its threads and files.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

import structlog

#: How long a client may take to end before it is left behind.
CLOSE_S = 10.0

#: When a close that holds the interpreter's lock, so that nobody can leave it behind, ends the process.
FROZEN_S = 2 * CLOSE_S

_log = structlog.get_logger()
T = TypeVar("T")
_Work = tuple[Callable[..., Any], tuple[Any, ...], "Future[Any]"]


class CallStuck(Exception):
    """A call outlived its deadline; its thread takes no further ones."""


class WatchedCalls:
    """One daemon thread that makes one call after the other."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._stuck: Future[Any] | None = None
        Thread(target=self._serve, name=name, daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether a call that outlived its deadline has still not returned."""
        return self._stuck is not None and not self._stuck.done()

    def call(self, deadline_s: float, function: Callable[..., T], *args: Any) -> T:
        """Make a call; blocks for at most ``deadline_s``.

        Raises CallStuck when it has not returned by then. Use no instance again that raised it; raises whatever the
        call raises.
        """
        future: Future[T] = Future()
        self._work.put((function, args, future))
        try:
            return future.result(deadline_s)
        except TimeoutError:
            self._stuck = future
            name = getattr(function, "__name__", function)
            raise CallStuck(f"{name} has not returned for {deadline_s:g} s") from None
        finally:
            # An error keeps this frame, and the future keeps the error: their circle would hold the client.
            del future, function, args

    def close(self) -> None:
        """End the thread after the call in progress; never blocks."""
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            _make(*work)
            del work


def _make(function: Callable[..., Any], args: tuple[Any, ...], future: Future[Any]) -> None:
    try:
        future.set_result(function(*args))
    except Exception as error:  # noqa: BLE001 raised again in the waiting thread
        future.set_exception(error)
    finally:
        del function, args, future


def close_or_leave(name: str, close: Callable[[], object]) -> None:
    """Close a client, or leave it behind where that does not end; blocks for at most :data:`CLOSE_S`.

    A close that freezes the interpreter ends the process instead, with exit code 1 and the stacks on stderr.
    """
    calls = WatchedCalls(f"{name}-close")
    try:
        with _ends_where_frozen():
            calls.call(CLOSE_S, close)
    except CallStuck as stuck:
        _log.warning("a client was left behind", client=name, reason=str(stuck))
    finally:
        calls.close()


_arming = Lock()
_closes: list[None] = []


@contextmanager
def _ends_where_frozen() -> Iterator[None]:
    """Have the interpreter's own watchdog, which needs no lock, run while any close does; the latest one winds it up.

    Client 2.16.1 answers a rebalance that ends within a member's close while it holds the lock, and may wait for ever.
    """
    with _arming:
        _closes.append(None)
        faulthandler.dump_traceback_later(FROZEN_S, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        with _arming:
            _closes.pop()
            if not _closes:
                faulthandler.cancel_dump_traceback_later()
