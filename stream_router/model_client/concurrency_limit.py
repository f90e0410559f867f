"""How many calls one model server is given at a time, learnt from how its calls end. Pure.

The rule is that of DCTCP (Alizadeh et al., SIGCOMM 2010) with concurrent calls in place of a congestion window: a call
is *marked* when it ended by overload or took a large share of its time-out, and once per round of calls

    limit ← limit · (1 − α / 2) + √limit · (1 − α)          α = share of the round's calls that were marked

The decrease is in proportion to α, so that a rare slow answer costs next to nothing, and a round in which every call
is marked halves the limit. The increase of √limit is the queue that Netflix's Gradient2 allows. The limit begins at
10, TCP's initial window (RFC 6928), and at 1 after an outage and when nothing was answered for a whole time-out (as at
TCP's retransmission time-out); it doubles a round (slow start), as long as rounds do not lower it.

Latency is judged against the time-out rather than against the lowest latency seen, as TCP Vegas and Gradient2 do:
language model servers batch, so that their latency grows with concurrency long before their throughput stops growing,
and a limiter that reads growth as queueing holds them far below what they can do. What a call takes while it is alone
is the server's own and no sign of load, however close to the time-out it is; the first calls of all count as alone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from math import inf, sqrt

#: Calls that a server is given at once before anything is known of it. Where a router joins others, at 2 s a call, no
#: partition waits for longer than 2.9 s until one of its queries is put to a model; beginning at 1, 8.1 s
#: (``research/scaling.py``).
FIRST = 10

#: Of the way from what a single call takes to the time-out: an answered call that took longer is marked. Twice as many
#: callers as a server can answer in time get .93 to .95 of its capacity at .3, .53 to .94 at .5 and .39 to .92 at .7;
#: the low ends are of a server that goes on serving calls whose client is gone (``steady`` in
#: ``research/overload.py``).
SLOW_SHARE = 0.3

#: Calls that a round has before it may lower the limit: with fewer, one slow call of an almost idle server would. Also
#: the number of single calls that the mean of their latencies looks back on.
LEAST_ROUND = 10


class ConcurrencyLimit:
    """The limit of one server, from 1 to ``highest``; ``timeout_s`` is of one call."""

    def __init__(self, highest: int, timeout_s: float) -> None:
        self._highest = highest
        self._timeout_s = timeout_s
        self._limit = float(min(FIRST, highest))
        self._is_starting = self._is_first_start = True
        self._lone_s = 0.0
        self._firsts = FIRST
        self._counts_from_s = self._prompt_s = float("-inf")
        self._round = self._last_round = _Round()

    @property
    def current(self) -> int:
        """Calls that may be in flight now, from 1 to ``highest``."""
        return int(self._limit)

    @property
    def is_lowered(self) -> bool:
        """Whether overload or an outage, and not the first start, keeps the limit below its highest."""
        return self.current < self._highest and not (self._is_starting and self._is_first_start)

    @property
    def is_congested(self) -> bool:
        """Whether the calls of this round and the last one ended as in an overloaded server."""
        both = self._round.and_then(self._last_round)
        return both.ended >= LEAST_ROUND and both.next_limit < both.peak

    def is_own(self, now_s: float) -> bool:
        """Whether a call that times out now does so of itself: others are answered promptly.

        The longest that calls which hang of themselves may take up every place is a time-out; that is no silence of the
        server's, so two of them are looked back on. Such a call is not to be passed to :meth:`ended`.
        """
        return now_s - self._prompt_s <= 2.0 * self._timeout_s and not self.is_congested

    def restart(self, now_s: float) -> None:
        """Begin at 1 again: the server answered nobody, and what it can do now is unknown.

        It also lets a query that brings the server down meet it alone, so that others are not suspected with it.
        """
        self._limit = 1.0
        self._is_starting, self._is_first_start = True, False
        self._counts_from_s, self._prompt_s = now_s, float("-inf")
        self._round = self._last_round = _Round()

    def ended(self, *, began_s: float, now_s: float, overloaded: bool, in_flight: int) -> None:
        """Take the end of a call that says something about load: answered, sent away, or timed out.

        It was sent at ``began_s`` and ended at ``now_s``, in monotonic seconds. ``overloaded``: sent away (429, 503) or
        timed out. ``in_flight``: calls when it ended, itself included.
        """
        if began_s < self._counts_from_s:
            return  # sent before the limit was lowered: it says nothing of the present one
        latency_s = now_s - began_s
        if not overloaded and (in_flight == 1 or self._firsts):
            self._lone_s += (latency_s - self._lone_s) / (LEAST_ROUND if self._lone_s else 1)
            self._firsts = max(0, self._firsts - 1)
        marked = overloaded or latency_s > self._lone_s + SLOW_SHARE * (self._timeout_s - self._lone_s)
        if not marked:
            self._prompt_s = now_s
        self._round.add(in_flight, marked=marked)
        if self._is_starting and not marked and in_flight >= self.current:
            self._limit = min(float(self._highest), self._limit + 1.0)
        if self._round.is_complete:
            self._end_round(now_s)

    def _end_round(self, now_s: float) -> None:
        """Move the limit by the calls that were in flight, which may have been fewer than it allows."""
        after, peak = self._round.next_limit, self._round.peak
        if after < peak:
            self._is_starting = False
            self._limit = max(1.0, min(self._limit, after))
            self._counts_from_s = now_s
        elif peak >= self.current and not self._is_starting:
            self._limit = min(float(self._highest), max(self._limit, after))
        self._last_round, self._round = self._round, _Round()


@dataclass(slots=True)
class _Round:
    """Calls that ended, how many of them were marked, and the most that were in flight."""

    ended: int = 0
    marked: int = 0
    peak: int = 1

    def add(self, in_flight: int, *, marked: bool) -> None:
        self.ended += 1
        self.marked += marked
        self.peak = max(self.peak, in_flight)

    def and_then(self, other: _Round) -> _Round:
        return _Round(self.ended + other.ended, self.marked + other.marked, max(self.peak, other.peak))

    @property
    def is_complete(self) -> bool:
        return self.ended >= (max(self.peak, LEAST_ROUND) if self.marked else self.peak)

    @property
    def next_limit(self) -> float:
        share = self.marked / max(1, self.ended)
        return self.peak * (1.0 - share / 2.0) + sqrt(self.peak) * (1.0 - share)


class CallSlots:
    """A first-come-first-served bound on concurrent calls; the bound may move while they are in flight.

    ``taken``: places that somebody has; more than there are, for a while, after their number fell.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.taken = 0
        self._queue: OrderedDict[asyncio.Future[bool], None] = OrderedDict()

    @property
    def queued(self) -> int:
        """Callers that wait for a place."""
        return len(self._queue)

    async def acquire(self, timeout_s: float | None = None) -> bool:
        """Take a place, in turn; False, and no place, when the queue was turned away.

        ``timeout_s``: longest wait; without it a caller waits until it gets a place or is turned away. Raises
        TimeoutError when the wait took too long.
        """
        if self.taken < self._count:
            self.taken += 1
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue[turn] = None
        try:
            async with asyncio.timeout(timeout_s):
                return await turn
        except (TimeoutError, asyncio.CancelledError):
            self._queue.pop(turn, None)
            if turn.done() and not turn.cancelled() and turn.result():
                self.release()  # the place was handed over in the very moment of giving up
            raise

    def release(self) -> None:
        """Give a place back, or hand it to the next in the queue."""
        self.taken -= 1
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
        while self._queue and self.taken < self._count:
            turn, _ = self._queue.popitem(last=False)
            if not turn.done():
                self.taken += 1
                turn.set_result(True)


#: Retries add at most this share to the load of a server that answers.
RETRIES_A_SUCCESS = 0.2

#: Retries that a server may get while it answers nothing: enough for passing errors on an almost idle stream.
MOST_SAVED = 10.0


class RetryBudget:
    """Tokens, one a retry; answers earn them."""

    def __init__(self) -> None:
        self._tokens = MOST_SAVED

    def earn(self) -> None:
        """Take note of a call that was answered."""
        self._tokens = min(MOST_SAVED, self._tokens + RETRIES_A_SUCCESS)

    def take(self) -> bool:
        """Take a token; False when there is none."""
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens -= 1.0
        return True


class QueryTime:
    """What is left of a query's time. ``reserved_s``: of it, what is kept for calls to come."""

    __slots__ = ("_left_s", "_reserved_s")

    def __init__(self, most_s: float = inf, reserved_s: float = 0.0) -> None:
        self._left_s = most_s
        self._reserved_s = reserved_s

    @property
    def left_s(self) -> float:
        """What the present call may spend; 0 where nothing is left."""
        return max(0.0, self._left_s - self._reserved_s)

    def release(self) -> None:
        """Let the present call spend what was kept for it."""
        self._reserved_s = 0.0

    def spend(self, seconds: float) -> None:
        """Take what a call has spent."""
        self._left_s -= seconds
