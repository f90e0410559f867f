"""Calls into the client library that must not block for good: each runs on its own thread against a deadline.

``send_offsets_to_transaction`` ignores its own time-out when the broker restarts at the wrong moment. A call that
outlives its deadline is left behind with its thread; whoever called goes on with another client.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CallStuck(Exception):
    """A call outlived its deadline; its thread is lost and these calls take no further ones."""


class _Call(Generic[T]):
    def __init__(self, function: Callable[..., T], args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args
        self.returned: list[T] = []
        self.raised: Exception | None = None
        self.over = Event()

    def run(self) -> None:
        try:
            self.returned.append(self.function(*self.args))
        except Exception as error:  # noqa: BLE001 raised again by whoever waits
            self.raised = error
        finally:
            self.over.set()


class WatchedCalls:
    """One thread that makes one call after the other.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        Thread(target=self._serve, name=name, daemon=True).start()

    def call(self, deadline_s: float, function: Callable[..., T], *args: Any) -> T:
        """Make a call; blocks for at most ``deadline_s``.

        Raises
        ------
        CallStuck
            When it has not returned by then. Use no instance again that raised it.
        Exception
            Whatever the call raises.
        """
        call = _Call(function, args)
        self._calls.put(call)
        if not call.over.wait(deadline_s):
            raise CallStuck(f"{getattr(function, '__name__', function)} has not returned for {deadline_s:g} s")
        if call.raised is not None:
            raise call.raised
        return call.returned[0]

    def close(self) -> None:
        """End the thread after the call in progress; never blocks."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
