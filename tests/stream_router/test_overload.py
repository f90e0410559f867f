"""Overload is not absence, and a fault of a query is not one of the server: what users see of each, over real HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from stream_router.errors import ModelsFailed
from tests.support.cascades import COLD, ESCALATES, KEEPS, Bench, bench
from tests.support.model_clients import draw_no_pauses, until
from tests.support.scripted_model_server import Fault, FaultKind

STATUSES = (500, 502, 503, 504)


def never_down(b: Bench) -> bool:
    return "down" not in b.counts.health


@pytest.mark.parametrize("status", STATUSES)
async def test_queries_that_both_models_answer_with_errors_are_given_up_though_nothing_else_is_asked(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_no_pauses(monkeypatch)
    async with bench(COLD) as b:
        for server in (b.small, b.large):
            server.play(Fault("status", status=status, containing="poison"))
        ends = await asyncio.gather(*(b.answer(f"poison {n}") for n in range(8)), return_exceptions=True)
        assert Counter(map(type, ends)) == {ModelsFailed: 8}
        assert never_down(b)


@pytest.mark.parametrize("kind", ["hang", "reset", "truncated"])
async def test_queries_that_both_models_answer_with_silence_or_half_an_answer_are_given_up_too(kind: FaultKind) -> None:
    async with bench(COLD, small_timeout_s=0.3, large_timeout_s=0.3) as b:
        for server in (b.small, b.large):
            server.play(Fault(kind, containing="poison"))
        ends = await asyncio.gather(*(b.answer(f"poison {n}") for n in range(3)), return_exceptions=True)
        assert Counter(map(type, ends)) == {ModelsFailed: 3}
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


async def test_a_small_server_that_becomes_slow_under_load_is_waited_for_though_calls_time_out() -> None:
    async with bench(KEEPS, small_timeout_s=0.5) as b:
        b.small.saturate(places=4, latency_s=0.01)
        await asyncio.gather(*(b.answer(f"before {n}") for n in range(100)))
        b.small.saturate(places=4, latency_s=0.15)
        events = await asyncio.gather(*(b.answer(f"q{n}") for n in range(60)))
        assert b.counts.outcomes["failed"] > 0
        assert {event.answered_by for event in events} == {"small"}
        assert b.large.seen.calls == 0
        assert never_down(b)


async def test_what_an_overloaded_large_server_has_no_time_for_is_served_small_without_a_storm_of_retries() -> None:
    """Asked for ten times what it can answer within the time that a query queues for it."""
    async with bench(ESCALATES, large_timeout_s=0.5) as b:
        b.large.saturate(places=2, latency_s=0.05)
        events = await asyncio.gather(*(b.answer(f"q{n}") for n in range(200)))
        reasons = Counter(event.decision.reason for event in events)
        assert set(reasons) == {"threshold", "degraded"}
        assert reasons["threshold"] > 5, "it goes on answering"
        assert all(event.small.valid and event.decision.escalated for event in events)
        assert b.large.seen.calls <= len(events)
        assert never_down(b)


async def test_where_the_settings_say_so_queries_wait_for_an_overloaded_large_server() -> None:
    async with bench(ESCALATES, large_outage="wait", large_timeout_s=0.5) as b:
        b.large.saturate(places=2, latency_s=0.02)
        events = await asyncio.gather(*(b.answer(f"q{n}") for n in range(100)))
        assert {event.decision.reason for event in events} == {"threshold"}
        assert never_down(b)


async def test_a_large_server_that_sends_half_of_its_calls_away_is_up_and_given_fewer_calls() -> None:
    async with bench(ESCALATES, large_outage="wait", large_timeout_s=2.0) as b:
        b.large.saturate(places=4, latency_s=0.01)
        await asyncio.gather(*(b.answer(f"before {n}") for n in range(100)))
        before = b.answerer.health()["photo"]["large"].concurrency_limit
        b.large.play(Fault("status", status=503), count=60)
        events = await asyncio.gather(*(b.answer(f"q{n}") for n in range(60)))
        assert {event.answered_by for event in events} == {"large"}
        assert before is not None
        assert never_down(b)


async def test_the_status_tells_an_overloaded_server_from_one_that_is_down_and_the_router_stays_ready() -> None:
    async with bench(KEEPS, small_timeout_s=0.5) as b:
        b.small.saturate(places=2, latency_s=0.1)
        calls = [asyncio.create_task(b.answer(f"q{n}")) for n in range(60)]
        await until(lambda: b.answerer.health()["photo"]["small"].overloaded)
        health = b.answerer.health()["photo"]["small"]
        assert (health.state, b.answerer.can_answer, b.answerer.outages) == ("up", True, {})
        assert health.concurrency_limit is not None
        assert 1 <= health.concurrency_limit < 256
        assert health.queued > 0
        assert health.in_flight + health.queued <= len(calls)
        await asyncio.gather(*calls)
        assert not b.answerer.health()["photo"]["small"].overloaded
        assert b.answerer.health()["photo"]["small"].queued == 0


async def test_a_server_that_hangs_is_down_until_a_probe_is_answered_and_begins_with_one_call() -> None:
    async with bench(KEEPS, small_timeout_s=0.2) as b:
        b.small.play(Fault("hang"))
        calls = [asyncio.create_task(b.answer(f"q{n}")) for n in range(20)]
        events = await asyncio.gather(*calls)
        assert {event.answered_by for event in events} == {"large"}
        assert set(b.answerer.outages) == {"photo/small"}
        b.small.recover()
        await until(lambda: not b.answerer.outages)
        assert b.answerer.health()["photo"]["small"].concurrency_limit == 1
        assert (await b.answer("after")).answered_by == "small"
