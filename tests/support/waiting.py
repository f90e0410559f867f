"""Waiting for what has no event: it is asked for again until it holds, and a failure says what was found last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 90.0
_PAUSE_S = 0.02
_SHOWN_CHARS = 10_000
Found = TypeVar("Found")


def wait_until(
    ask: Callable[[], Found], what: str = "", holds: Callable[[Found], object] = bool, *, within_s: float = DEADLINE_S
) -> Found:
    """Ask until the answer is as wanted; return it."""
    deadline_s = time.monotonic() + within_s
    while not holds(found := ask()):
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}; last: {found!r}"[:_SHOWN_CHARS]
        time.sleep(_PAUSE_S)
    return found


async def eventually(
    ask: Callable[[], Found], holds: Callable[[Found], object] = bool, *, within_s: float = DEADLINE_S
) -> Found:
    """Ask in a thread until the answer is as wanted; return it."""
    return await asyncio.to_thread(wait_until, ask, "", holds, within_s=within_s)


async def until_served(task: asyncio.Task[None], holds: Callable[[], object], what: str) -> None:
    """Wait in the event loop until something holds; fails when the service that runs in the task ends first."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            if task.done():
                await task
                raise AssertionError(f"the service ended before: {what}")
            await asyncio.sleep(0.01)
