"""Places for calls in flight: as many as the limit allows are taken at once, others queue in turn.

What may never happen: a place lost to a cancelled caller.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict


class NoPlaceError(TimeoutError):
    """No place came free in time."""


class CallSlots:
    """A first-come-first-served bound on concurrent calls; the bound may move while they are in flight."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0
        self._queue: OrderedDict[asyncio.Future[bool], None] = OrderedDict()

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return max(0, self._count - self._taken)

    @property
    def taken(self) -> int:
        """Places that somebody has; more than there are, for a while, after their number fell."""
        return self._taken

    @property
    def queued(self) -> int:
        """Callers that wait for a place."""
        return len(self._queue)

    async def acquire(self, timeout_s: float | None = None) -> bool:
        """Take a place, in turn; False, and no place, when the queue was turned away.

        ``timeout_s``: longest wait; without it a caller waits until it gets a place or is turned away. Raises
        NoPlaceError when the wait took too long.
        """
        if self._taken < self._count:
            self._taken += 1
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue[turn] = None
        try:
            async with asyncio.timeout(timeout_s):
                return await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            self._queue.pop(turn, None)
            if turn.done() and not turn.cancelled() and turn.result():
                self.release()  # the place was handed over in the very moment of giving up
            if isinstance(error, TimeoutError):
                raise NoPlaceError from None
            raise

    def release(self) -> None:
        """Give a place back, or hand it to the next in the queue."""
        self._taken -= 1
        self._hand_over()

    def resize(self, count: int) -> None:
        """Have so many places from now on; nobody who has one loses it."""
        self._count = count
        self._hand_over()

    def turn_away(self) -> None:
        """Send everybody who queues away without a place."""
        while self._queue:
            turn, _ = self._queue.popitem(last=False)
            if not turn.done():
                turn.set_result(False)

    def _hand_over(self) -> None:
        while self._queue and self._taken < self._count:
            turn, _ = self._queue.popitem(last=False)
            if not turn.done():
                self._taken += 1
                turn.set_result(True)
