"""Places for calls in flight: never more than there are, none lost, the queue in order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.concurrency_limit import CallSlots, NoPlaceError


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_are_granted_in_order() -> None:
    """Slots are granted at once while any are free, and then in order of arrival."""
    slots = CallSlots(2)
    assert await slots.acquire()
    assert await slots.acquire()
    order: list[int] = []

    async def wait(number: int) -> None:
        assert await slots.acquire()
        order.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await settle()
    assert (order, slots.free) == ([], 0)
    for _ in waiting:
        slots.release()
        await settle()
    assert order == [0, 1, 2]
    assert slots.free == 0


async def test_turned_away_callers_leak_no_slot() -> None:
    slots = CallSlots(1)
    assert await slots.acquire()
    waiting = [asyncio.create_task(slots.acquire()) for _ in range(3)]
    await settle()
    slots.turn_away()
    assert await asyncio.gather(*waiting) == [False, False, False]
    slots.release()
    assert slots.free == 1


async def test_cancelled_handover_passes_to_the_next() -> None:
    """A slot handed to a caller at the moment of its cancellation goes to the next."""
    slots = CallSlots(1)
    assert await slots.acquire()
    first, second = asyncio.create_task(slots.acquire()), asyncio.create_task(slots.acquire())
    await settle()
    slots.release()  # hands the place to the first, which is cancelled before it runs
    first.cancel()
    assert await second is True
    slots.release()
    assert slots.free == 1


@given(st.lists(st.tuples(st.sampled_from(["acquire", "release", "cancel", "turn_away", "resize"]), st.integers(0, 9))))
def test_no_place_is_lost_or_doubled_whatever_happens(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        slots, places = CallSlots(3), 3
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
                places = pick + 1
                slots.resize(places)
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
        assert slots.free == max(0, places - held)

    asyncio.run(play())


async def test_who_waits_too_long_leaves_the_queue_without_a_place() -> None:
    slots = CallSlots(1)
    assert await slots.acquire()
    with pytest.raises(NoPlaceError):
        await slots.acquire(0.001)
    assert (slots.queued, slots.taken) == (0, 1)
    slots.release()
    assert slots.free == 1


async def test_resize_grows_at_once_and_shrinks_on_release() -> None:
    """More slots are granted at once; fewer take effect as slots are released."""
    slots = CallSlots(1)
    waiting = [asyncio.create_task(slots.acquire()) for _ in range(5)]
    await settle()
    slots.resize(3)
    await settle()
    assert (slots.taken, slots.queued) == (3, 2)
    slots.resize(1)
    slots.release()
    slots.release()
    await settle()
    assert (slots.taken, slots.queued, slots.free) == (1, 2, 0)
    slots.release()
    slots.release()
    slots.release()
    await asyncio.gather(*waiting)
    assert (slots.taken, slots.free) == (0, 1)
