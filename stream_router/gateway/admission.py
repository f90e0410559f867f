"""Which queries are taken now: as many as there are places for, and hardly any while the broker takes no results.

An answer whose result the broker does not acknowledge is never given, so asking the models for it is wasted. While the
last write was not acknowledged, one query at a time finds out whether the next one is.

A body takes a place while it comes, so that slow ones hold no more memory than queries do. It keeps that from nobody:
the one that has been coming for longest gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from ucci_runtime.refusals import RequestRefused

RETRY_AFTER_S = 1
#: After how long a write is given up.
BROKER_RETRY_AFTER_S = 5

#: Of all bodies still arriving, besides the longest allowed.
COMING_BYTES = 64_000_000


class Admission:
    """The places for queries that are being answered; used in one event loop.

    ``is_open``, ``is_closed``: whether queries were taken once, and are no more. ``broker_away``: why the last write
    was not acknowledged; None while writes are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._coming: dict[asyncio.Timeout, int] = {}
        self.is_open = False
        self.is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.in_flight = 0
        self.broker_away: str | None = None

    async def drained(self, timeout_s: float) -> None:
        """Wait until nothing is being answered, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    def check(self) -> None:
        """See that a query would be taken.

        Raises RequestRefused: 429 when all places are taken, 503 before the start, in a drain, and while the broker
        takes no results.
        """
        if self.is_closed:
            raise RequestRefused(503, "draining", "this gateway is about to end: ask another", None, RETRY_AFTER_S)
        if not self.is_open:
            message = "this gateway has not read the calibration yet: GET /readyz says what is missing"
            raise RequestRefused(503, "starting", message, None, RETRY_AFTER_S)
        if self.in_flight + len(self._coming) >= self._most and not self._give_way():
            message = f"{self._most} queries are being answered, as many as gateway.max_in_flight allows"
            raise RequestRefused(429, "too_many_in_flight", message, None, RETRY_AFTER_S)
        if self.broker_away is not None and self.in_flight:
            message = "the broker takes no results at present, and no answer is given without one"
            raise RequestRefused(503, "broker_unreachable", message, None, BROKER_RETRY_AFTER_S)

    @asynccontextmanager
    async def coming(self, timeout_s: float) -> AsyncIterator[Callable[[int], None]]:
        """Hold a place while a body comes; yields what is to be called with each piece's length in bytes.

        Raises TimeoutError when it takes too long, or longer than all others that come while there are too many.
        """
        async with asyncio.timeout(timeout_s) as deadline:
            self._coming[deadline] = 0

            def arrived(size: int) -> None:
                if deadline in self._coming:
                    self._coming[deadline] += size
                while len(self._coming) > 1 and sum(self._coming.values()) > COMING_BYTES:
                    self._give_way()

            try:
                yield arrived
            finally:
                self._coming.pop(deadline, None)

    def _give_way(self) -> bool:
        """End the body that has been coming for longest; False where none is."""
        oldest = next(iter(self._coming), None)
        if oldest is not None:
            del self._coming[oldest]
            oldest.reschedule(0.0)
        return oldest is not None

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place while a query is being answered. Raises RequestRefused as :meth:`check`."""
        self.check()
        self.in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
