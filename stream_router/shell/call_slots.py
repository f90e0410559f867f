"""Places for calls in flight: a bounded number is taken at once, others queue, and a queue can be turned away whole.

What may never happen: a place lost to a cancelled caller.
"""

from __future__ import annotations

import asyncio
from collections import deque


class CallSlots:
    """A first-come-first-served bound on concurrent calls.

    Parameters
    ----------
    count : int
        Places, at least 1.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: deque[asyncio.Future[bool]] = deque()

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return self._free

    async def acquire(self) -> bool:
        """Take a place, in turn; False, and no place, when the queue was turned away."""
        if self._free:
            self._free -= 1
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.release()  # the place was handed over in the very moment of the cancellation
            raise

    def release(self) -> None:
        """Give a place back, or hand it to the next in the queue."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._free += 1

    def turn_away(self) -> None:
        """Send everybody who queues away without a place."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(False)
