"""The gateway's benchmark: what counts as an answer of a turn."""

from __future__ import annotations

import asyncio

import aiohttp

from research.gateway.callers import turn


async def test_a_turn_counts_before_every_caller_is_warm() -> None:
    """Answers from before each caller had two are left out, as many as one of them may have had meanwhile."""
    asked = 0
    last = asyncio.Event()

    async def ask(_session: aiohttp.ClientSession) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:  # the second caller's first request waits until the first caller has had a hundred
            await last.wait()
        elif asked > 100:
            last.set()
        await asyncio.sleep(0)

    found = await asyncio.wait_for(turn(ask, callers=2, seconds=0.0), 30.0)
    assert asked > 100
    assert len(found) < 50
