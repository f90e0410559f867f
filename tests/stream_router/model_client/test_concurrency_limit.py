"""The limit on a server's calls: its bounds whatever happens, and what it does to servers of known behaviour."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.concurrency_limit import (
    LEAST_ROUND,
    MOST_SAVED,
    RETRIES_A_SUCCESS,
    CallSlots,
    ConcurrencyLimit,
    RetryBudget,
)

TIMEOUT_S = 10.0
#: Seconds that a call takes, by the calls in flight when it begins; beyond the time-out it fails there.
Latency = Callable[[int], float]


class Callers:
    """So many callers ask a server without a pause, as far as the limit lets them."""

    def __init__(self, highest: int = 256, demand: int = 1_000) -> None:
        self.limit = ConcurrencyLimit(highest, TIMEOUT_S)
        self.now_s = 0.0
        self.answered = self.timed_out = 0
        self._demand = demand
        self._ends: list[tuple[float, float]] = []

    def overload(self, sent_s: float, in_flight: int) -> None:
        """Have a call time out."""
        now_s = sent_s + TIMEOUT_S
        self.limit.ended(began_s=sent_s, now_s=now_s, overloaded=True, in_flight=in_flight)

    def ask(self, latency: Latency, calls: int) -> list[int]:
        """Let so many calls end; return the limits that were in force."""
        limits = []
        for _ in range(calls):
            while len(self._ends) < min(self._demand, self.limit.current):
                took_s = min(TIMEOUT_S, latency(len(self._ends) + 1))
                heapq.heappush(self._ends, (self.now_s + took_s, self.now_s))
            in_flight = len(self._ends)
            self.now_s, began_s = heapq.heappop(self._ends)
            late = self.now_s - began_s >= TIMEOUT_S
            self.timed_out += late
            self.answered += not late
            self.limit.ended(began_s=began_s, now_s=self.now_s, overloaded=late, in_flight=in_flight)
            limits.append(self.limit.current)
        return limits


def queueing(places: int, service_s: float) -> Latency:
    """A server whose latency grows in proportion to the calls beyond its places."""
    return lambda in_flight: service_s * max(1.0, in_flight / places)


def heavy_tailed(seed: int, share: float) -> Latency:
    """A server that keeps up with any number of calls, and whose slowest answers take up to the whole time-out."""
    random = Random(seed)
    return lambda _: random.uniform(4.0, TIMEOUT_S) if random.random() < share else random.uniform(0.1, 1.0)


ends = st.tuples(st.floats(0.0, 2 * TIMEOUT_S), st.booleans(), st.integers(1, 300))


@given(st.integers(1, 200), st.lists(st.one_of(ends, st.none()), max_size=300))
def test_it_stays_between_1_and_the_highest_whatever_happens(
    highest: int, events: list[tuple[float, bool, int] | None]
) -> None:
    limit, now_s = ConcurrencyLimit(highest, TIMEOUT_S), 0.0
    for event in events:
        if event is None:
            limit.restart(now_s)
        else:
            latency_s, overloaded, in_flight = event
            now_s += 0.1
            limit.ended(began_s=now_s - latency_s, now_s=now_s, overloaded=overloaded, in_flight=in_flight)
        assert 1 <= limit.current <= highest
        assert not limit.is_lowered or limit.current < highest


def test_calls_sent_before_it_was_lowered_do_not_lower_it_again() -> None:
    callers = Callers(64)
    callers.ask(lambda _: 0.1, 300)
    sent_s = callers.now_s
    while callers.limit.current == 64:  # one wave, sent at once
        callers.overload(sent_s, 64)
    lowered = callers.limit.current
    assert 32 <= lowered < 64
    for _ in range(1_000):
        callers.overload(sent_s, 64)
    assert callers.limit.current == lowered


@pytest.mark.parametrize("places", [1, 4, 16, 64])
def test_a_saturated_server_is_given_what_it_answers_in_time(places: int) -> None:
    callers = Callers(1_000)
    callers.ask(queueing(places, 0.5), 5_000)
    callers.answered = callers.timed_out = 0
    limits = callers.ask(queueing(places, 0.5), 20_000)
    assert min(limits) >= places, "its places are kept busy"
    assert callers.timed_out == 0
    assert callers.limit.is_lowered


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_a_healthy_server_with_a_heavy_tail_keeps_its_calls(share: float) -> None:
    for seed in range(5):
        callers = Callers(256)
        server = heavy_tailed(seed, share)
        callers.ask(server, 5_000)
        assert min(callers.ask(server, 20_000)) >= 200, seed


@pytest.mark.parametrize("demand", [1, 3])
def test_slow_answers_when_idle_keep_the_limit(demand: int) -> None:
    callers = Callers(64)
    callers.ask(lambda _: 0.1, 300)
    idle = Callers(64, demand)
    idle.limit, idle.now_s = callers.limit, callers.now_s
    for _ in range(50):
        idle.ask(lambda _: 9.0, 1)
        idle.ask(lambda _: 0.5, 9)
    assert idle.limit.current == 64


def test_it_recovers_from_a_brown_out() -> None:
    callers = Callers(128)
    callers.ask(lambda _: 0.5, 1_000)
    lowest = min(callers.ask(queueing(2, 2.0), 1_000))
    assert lowest <= 10
    assert callers.limit.is_congested or callers.limit.is_lowered
    callers.ask(lambda _: 0.5, 3_000)
    assert callers.limit.current == 128
    assert not callers.limit.is_congested


def test_a_router_that_starts_gave_a_slow_server_one_call() -> None:
    """The partitions that a router takes over do not wait for one slow call after the other."""
    callers = Callers(64)
    assert callers.limit.current == 10
    callers.ask(lambda _: 8.0, 10)
    assert callers.limit.current >= 20, "calls that take the server's own time are no sign of load"
    assert not callers.limit.is_lowered


def test_a_time_out_is_a_calls_own_only_beside_prompt_answers() -> None:
    """Neither in a silence of two time-outs, nor after an outage, nor while answers are slow."""
    limit = ConcurrencyLimit(8, TIMEOUT_S)
    assert not limit.is_own(0.0)
    limit.ended(began_s=0.0, now_s=1.0, overloaded=False, in_flight=1)
    assert limit.is_own(1.0 + 2 * TIMEOUT_S)
    assert not limit.is_own(1.1 + 2 * TIMEOUT_S)
    limit.restart(2.0)
    assert not limit.is_own(2.0)
    callers = Callers(demand=64)
    callers.ask(queueing(places=4, service_s=1.0), calls=200)
    callers.ask(queueing(places=1, service_s=9.0), calls=LEAST_ROUND)
    assert callers.limit.is_congested
    assert not callers.limit.is_own(callers.now_s)


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_are_granted_in_order() -> None:
    slots, order = CallSlots(2), list[int]()
    assert [await slots.acquire() for _ in range(2)] == [True, True]

    async def wait(number: int) -> None:
        assert await slots.acquire()
        order.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await settle()
    assert (order, slots.taken) == ([], 2)
    for _ in waiting:
        slots.release()
        await settle()
    assert (order, slots.taken) == ([0, 1, 2], 2)


async def test_cancelled_handover_passes_to_the_next() -> None:
    slots = CallSlots(1)
    assert await slots.acquire()
    first, second = asyncio.create_task(slots.acquire()), asyncio.create_task(slots.acquire())
    await settle()
    slots.release()  # hands the place to the first, which is cancelled before it runs
    first.cancel()
    assert await second is True
    assert (slots.taken, slots.queued) == (1, 0)


@given(st.lists(st.tuples(st.sampled_from(["acquire", "release", "cancel", "turn_away", "resize"]), st.integers(0, 9))))
def test_no_place_is_lost_or_doubled_whatever_happens(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        slots = CallSlots(3)
        waiting: list[asyncio.Task[bool]] = []
        held = 0
        for action, pick in steps:
            if action == "acquire":
                waiting.append(asyncio.create_task(slots.acquire()))
            elif action == "release" and held:
                slots.release()
                held -= 1
            elif action == "cancel" and waiting:
                waiting[pick % len(waiting)].cancel()
            elif action == "turn_away":
                slots.turn_away()
            elif action == "resize":
                slots.resize(pick + 1)
            if pick % 2:
                await settle()
            done = [task for task in waiting if task.done()]
            waiting = [task for task in waiting if not task.done()]
            held += sum(not task.cancelled() and task.result() for task in done)
        for task in waiting:
            task.cancel()
        await settle()
        held += sum(task.done() and not task.cancelled() and task.result() for task in waiting)
        assert held == slots.taken

    asyncio.run(play())


@given(st.lists(st.booleans(), max_size=500))
def test_retries_stay_within_the_budget(events: list[bool]) -> None:
    budget, successes, retries = RetryBudget(), 0, 0
    for is_success in events:
        if is_success:
            budget.earn()
            successes += 1
        else:
            retries += budget.take()
        assert retries <= MOST_SAVED + RETRIES_A_SUCCESS * successes + 1e-6


def test_five_answers_earn_one_retry() -> None:
    budget = RetryBudget()
    while budget.take():
        pass
    for _ in range(5):
        assert not budget.take()
        budget.earn()
    assert budget.take()
