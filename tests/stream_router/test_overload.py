"""Overload is not absence, and a fault of a query is not one of the server: what users see of each, over real HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from stream_router.errors import ModelsFailed
from tests.support.cascades import COLD, KEEPS, Bench, bench
from tests.support.scripted_model_server import Fault

STATUSES = (500, 502, 503, 504)


def never_down(b: Bench) -> bool:
    return "down" not in b.counts.health


@pytest.mark.parametrize("status", STATUSES)
async def test_queries_that_both_models_answer_with_errors_are_given_up_though_nothing_else_is_asked(
    status: int,
) -> None:
    async with bench(COLD) as b:
        for server in (b.small, b.large):
            server.play(Fault("status", status=status, containing="poison"))
        ends = await asyncio.gather(*(b.answer(f"poison {n}") for n in range(8)), return_exceptions=True)
        assert Counter(map(type, ends)) == {ModelsFailed: 8}
        assert never_down(b)


async def test_good_queries_beside_those_that_both_models_fail_keep_both_answers() -> None:
    async with bench(COLD) as b:
        for server in (b.small, b.large):
            server.play(Fault("status", status=500, containing="poison"))
        poison = [asyncio.create_task(b.answer(f"poison {n}")) for n in range(20)]
        good = []
        while not all(task.done() for task in poison):
            good += await asyncio.gather(*(b.answer(f"good {len(good)} {n}") for n in range(5)))
        ends = await asyncio.gather(*poison, return_exceptions=True)
        assert Counter(map(type, ends)) == {ModelsFailed: 20}
        assert len(good) >= 5
        assert all(event.small.valid and event.large is not None and event.large.valid for event in good)
        assert never_down(b)


async def test_a_saturated_small_server_is_never_down_and_loses_no_answer_to_the_large_one() -> None:
    """Its queue alone takes twice the time-out; what it answers, it answers in time."""
    async with bench(KEEPS, small_timeout_s=0.5) as b:
        b.small.saturate(places=4, latency_s=0.02)
        events = await asyncio.gather(*(b.answer(f"q{n}") for n in range(200)))
        assert {event.answered_by for event in events} == {"small"}
        assert b.large.seen.calls == 0
        assert never_down(b)
