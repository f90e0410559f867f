"""A process's status, every few seconds, to its compacted topic; nothing waits for it.

A status that does not get through is dropped: the next one says more.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import NamedTuple

from ucci_runtime.broker.ports import Publisher

INTERVAL_S = 2.0
#: By this name a broker's publisher drops what it cannot send soon.
PUBLISHER = "heartbeat"

_FIRST_S = 0.5
_CLOSE_S = 1.0


class Beat(NamedTuple):
    """One status as it is sent."""

    instance_id: str
    value: bytes


class HeartbeatThread(Thread):
    """The thread that sends the status.

    ``status``: returns the status as of now, None to leave this one out; called in this thread.
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
            wait_s = INTERVAL_S
        self._send()
        self._publisher.close(_CLOSE_S)

    def _send(self) -> None:
        beat = self._status()
        if beat is not None:
            self._publisher.post(self._topic, beat.instance_id.encode(), beat.value)
