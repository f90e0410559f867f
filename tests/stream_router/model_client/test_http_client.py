"""A client of one server: retries, places, health and recovery, against a scripted server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stream_router.errors import FailedError, RefusedError, ServerDownError
from stream_router.model_client import http_client as model_server
from stream_router.model_client.http_call import ModelConnection
from stream_router.model_client.http_client import MAX_ROUNDS, ModelClient
from stream_router.model_client.request import SAMPLE_TEXT, ModelRequest
from stream_router.ports import Reply
from tests.support.model_clients import CallCounts, client, draw_no_pauses, request, until, workload
from tests.support.scripted_model_server import Fault, ScriptedModelServer

SETTINGS = workload()


def answer_another_in_each_pause(server: ModelClient, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Let the server answer another query whenever a retry waits."""

    async def answer_another(_pause_s: float) -> None:
        await server.call(request(SETTINGS, "good"))

    pauses = draw_no_pauses(monkeypatch)
    monkeypatch.setattr(model_server, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": answer_another}))
    return pauses


@pytest.mark.parametrize(
    ("fault", "bounds"),
    [
        *((Fault(kind), [(0.0, 0.2), (0.0, 0.4)]) for kind in ("status", "truncated", "not_json", "abort", "huge")),
        # One that meets only overload has more attempts before it is blamed.
        (Fault("status", status=503), [(0.0, 2.0)] * (3 * MAX_ROUNDS - 1)),
    ],
    ids=lambda given: f"{given.kind} {given.status}" if isinstance(given, Fault) else "",
)
async def test_failing_query_takes_the_blame(
    fault: Fault, bounds: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that fails while others are answered is blamed, not the server."""
    async with ScriptedModelServer() as fake, client(workload(fake.base_url)) as server:
        fake.play(replace(fault, containing="poison"))
        pauses = answer_another_in_each_pause(server, monkeypatch)
        with pytest.raises(FailedError):
            await server.call(request(SETTINGS, "poison"))
        assert server.is_up
        assert pauses == bounds


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_server_failing_everyone_is_down_and_recovers(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_no_pauses(monkeypatch)
    counts = CallCounts()
    async with ScriptedModelServer() as fake, client(workload(fake.base_url, small_timeout_s=0.5), counts) as server:
        fake.play(Fault("status", status=status))
        with pytest.raises(ServerDownError, match=f"photo/small is down: HTTP {status}") as caught:
            await server.call(request(SETTINGS))
        assert caught.value.after_attempts
        assert not server.is_up
        made = fake.seen.calls
        with pytest.raises(ServerDownError) as known:
            await server.call(request(SETTINGS))
        assert not known.value.after_attempts
        assert fake.seen.calls == made, "a server known to be down is not asked"
        await until(lambda: fake.seen.probes >= 2)
        fake.recover()
        await server.wait_up()
        assert (await server.call(request(SETTINGS))).reply.finish_reason == "stop"
    assert counts.health[0] == "down"
    assert counts.health[-1] == "up"


def asked(fake: ScriptedModelServer, text: str) -> int:
    """How often a server was asked about this text."""
    return sum(text in body["prompt"] for body in fake.seen.bodies)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_query_that_alone_is_refused_takes_the_blame(status: int) -> None:
    """Also the first one of all: the server answers a probe of the same shape, and is never taken for down."""
    counts = CallCounts()
    async with ScriptedModelServer() as fake, client(workload(fake.base_url), counts) as server:
        fake.play(Fault("status", status=status, containing="poison"))
        for _ in range(3):
            with pytest.raises(RefusedError, match="as scripted"):
                await server.call(request(SETTINGS, "poison"))
        assert server.is_up
        assert (asked(fake, "poison"), asked(fake, SAMPLE_TEXT)) == (3, 3)
        like, sample = (body for body in fake.seen.bodies[:2])
        assert {**like, "prompt": ""} == {**sample, "prompt": ""}
    assert "down" not in counts.health


async def test_while_others_are_answered_a_refusal_needs_no_probe() -> None:
    async with ScriptedModelServer(latency_s=0.05) as fake, client(workload(fake.base_url)) as server:
        fake.play(Fault("status", status=400, containing="poison"))

        async def blame() -> None:
            with pytest.raises(RefusedError):
                await server.call(request(SETTINGS, "poison"))

        good = [server.call(request(SETTINGS, f"good {n}")) for n in range(3)]
        await asyncio.gather(*good, *(blame() for _ in range(3)))
        assert asked(fake, SAMPLE_TEXT) == 0


@pytest.mark.parametrize("as_200", [False, True])
async def test_a_server_refusing_everybody_is_waited_for(*, as_200: bool) -> None:
    """Its own words are in its health, it is asked about no further query, and goes on by itself."""
    counts = CallCounts()
    words = "Unrecognized request argument supplied: logprobs"
    body = json.dumps({"error": {"message": words, "type": "invalid_request_error"}})
    fault = Fault("body", said=body) if as_200 else Fault("status", status=400, said=words)
    async with ScriptedModelServer() as fake, client(workload(fake.base_url), counts) as server:
        fake.play(fault)
        ends = await asyncio.gather(
            *(server.call(request(SETTINGS, f"q{n}")) for n in range(20)), return_exceptions=True
        )
        assert {type(end) for end in ends} == {ServerDownError}
        assert all(words in str(end) for end in ends)
        assert not any(isinstance(end, ServerDownError) and end.after_attempts for end in ends)
        health = server.health()
        assert (health.state == "up", health.misconfigured, words in str(health.reason)) == (False, True, True)
        sent = sum(asked(fake, f"q{n}") for n in range(20))
        with pytest.raises(ServerDownError):
            await server.call(request(SETTINGS, "one more"))
        samples = asked(fake, SAMPLE_TEXT)
        await until(lambda: asked(fake, SAMPLE_TEXT) >= samples + 2)
        assert (asked(fake, "one more"), sum(asked(fake, f"q{n}") for n in range(20))) == (0, sent)
        fake.recover()
        await server.wait_up()
        assert (await server.call(request(SETTINGS, "one more"))).reply.finish_reason == "stop"
        assert (server.health().reason, server.health().misconfigured) == (None, False)
    assert counts.outcomes["misconfigured"] >= 3
    assert counts.health == ["down", "up"]


async def test_a_sample_refused_for_its_text_blames_no_server() -> None:
    """A query that was answered before is asked again: a server that still answers it is configured rightly."""
    async with ScriptedModelServer() as fake, client(workload(fake.base_url)) as server:
        await server.call(request(SETTINGS, "good"))
        for text in ("poison", SAMPLE_TEXT):
            fake.play(Fault("status", status=400, containing=text))
        with pytest.raises(RefusedError):
            await server.call(request(SETTINGS, "poison"))
        assert server.is_up
        assert asked(fake, "good") == 2


async def test_a_server_that_refuses_short_answers_is_there() -> None:
    """Where a probe of one token is refused, one of the workload's own shape asks."""
    async with ScriptedModelServer() as fake, client(workload(fake.base_url)) as server:
        fake.play(Fault("status", status=401), count=1)
        fake.play(Fault("status", status=400, containing="ping"))
        with pytest.raises(ServerDownError):
            await server.call(request(SETTINGS))
        await server.wait_up()
        assert asked(fake, SAMPLE_TEXT) == 1


async def test_wrong_model_name_is_an_outage_with_a_remedy() -> None:
    """At once: nobody can be answered, so that no further query is sent."""
    async with ScriptedModelServer("other") as fake, client(workload(fake.base_url)) as server:
        with pytest.raises(ServerDownError, match=r"does not exist.*check base_url, model and api_key") as caught:
            await server.call(request(SETTINGS))
        assert (caught.value.after_attempts, server.is_up) == (False, False)


async def test_outage_ends_the_queue_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_no_pauses(monkeypatch)
    changes: dict[str, Any] = {"small_max_concurrency": 1, "small_timeout_s": 0.2}
    async with ScriptedModelServer() as fake, client(workload(fake.base_url, **changes)) as server:
        fake.play(Fault("hang"))
        calls = [server.call(request(SETTINGS, f"q{n}")) for n in range(20)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(end) for end in ends} == {ServerDownError}
        assert 1 <= sum(isinstance(end, ServerDownError) and end.after_attempts for end in ends) < 20
        assert server._slots.taken == 0


async def test_cancelled_calls_free_connection_and_slot() -> None:
    async with ScriptedModelServer() as fake, client(workload(fake.base_url, small_max_concurrency=8)) as server:
        await asyncio.gather(*(server.call(request(SETTINGS, f"first {n}")) for n in range(20)))
        fake.play(Fault("hang"))
        calls = [asyncio.create_task(server.call(request(SETTINGS, f"q{n}"))) for n in range(20)]
        await until(lambda: fake.seen.concurrent == 8)
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        await until(lambda: fake.open_connections == 0)
        assert server._slots.taken == 0
        assert server.is_up, "a cancellation says nothing of the server"


async def test_a_probe_that_breaks_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, breaks = ModelConnection.attempt, [ZeroDivisionError] * 2

    async def break_twice(self: ModelConnection, asked: ModelRequest, headers: object = None) -> Reply:
        if breaks:
            raise breaks.pop()
        return await attempt(self, asked)

    async with ScriptedModelServer() as fake, client(workload(fake.base_url)) as server:
        fake.play(Fault("status", status=401), count=1)
        with pytest.raises(ServerDownError):
            await server.call(request(SETTINGS))
        monkeypatch.setattr(ModelConnection, "attempt", break_twice)
        await server.wait_up()
    assert not breaks
