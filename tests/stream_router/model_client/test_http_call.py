"""One attempt over real HTTP: every way in which a server can fail to answer ends in the class that says so."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from yarl import URL

from stream_router.errors import (
    CallError,
    MisconfiguredError,
    OverloadedError,
    RefusedError,
    TimedOutError,
    TransientError,
    UnreachableError,
)
from stream_router.model_client.http_call import ModelConnection
from stream_router.ports import Reply
from tests.support.model_clients import endpoint, request, until, workload
from tests.support.scripted_model_server import Fault, FaultKind, ScriptedModelServer
from tests.support.scripted_proxy import ScriptedProxy
from ucci_stream.local.kafka_node import pick_port


@asynccontextmanager
async def connected(base_url: str, **changes: Any) -> AsyncIterator[ModelConnection]:
    settings = workload(base_url, **changes)
    connection = ModelConnection(endpoint(settings), 4, settings.max_tokens)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def served(*faults: Fault, **changes: Any) -> AsyncIterator[tuple[ScriptedModelServer, ModelConnection]]:
    """A server whose calls end in this fault, and the connections to it."""
    async with ScriptedModelServer() as server, connected(server.base_url, **changes) as connection:
        for fault in faults:
            server.play(fault)
        yield server, connection


async def attempt(connection: ModelConnection, headers: Mapping[str, str] | None = None) -> Reply:
    return await connection.attempt(request(workload()), headers)


STATUSES: Mapping[type[CallError], tuple[int, ...]] = {
    RefusedError: (400, 413, 422),
    MisconfiguredError: (401, 403, 404, 405),
    OverloadedError: (429, 503),
    TransientError: (500, 502),
    TimedOutError: (408, 504),
}


@pytest.mark.parametrize(("status", "error"), [(one, error) for error, all_ in STATUSES.items() for one in all_])
async def test_each_status_says_whose_fault_it_is(status: int, error: type[CallError]) -> None:
    async with served(Fault("status", status=status)) as (_, connection):
        with pytest.raises(error, match=f"HTTP {status}.*as scripted") as caught:
            await attempt(connection)
    assert type(caught.value) is error


def error_body(code: object, kind: str | None = None) -> str:
    return json.dumps({"object": "error", "message": "in its own words", "type": kind, "code": code})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        *((error_body(status), error) for error, all_ in STATUSES.items() for status in all_ if status >= 400),
        (error_body(None, "invalid_request_error"), RefusedError),
        (error_body("rate_limit_exceeded"), OverloadedError),
        (error_body("model_not_found"), MisconfiguredError),
        (error_body(None), TransientError),
        ('{"detail": "in its own words"}', TransientError),
        ('{"error": {"message": "in its own words", "code": "context_length_exceeded"}}', RefusedError),
    ],
)
async def test_an_error_under_200_is_read_as_what_it_says(body: str, error: type[CallError]) -> None:
    async with served(Fault("body", said=body)) as (_, connection):
        with pytest.raises(error, match=r"HTTP 200, but the server reports an error.*in its own words") as caught:
            await attempt(connection)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "the body is empty"),
        ("<html><h1>Sign in</h1></html>", "it begins: <html><h1>Sign in"),
        ('{"choices": []}', "holds no choices"),
        ('{"choices": null}', "holds no choices"),
    ],
)
async def test_a_body_without_an_answer_is_described(body: str, said: str) -> None:
    async with served(Fault("body", said=body)) as (_, connection):
        with pytest.raises(TransientError, match=f"HTTP 200, but .*{said}"):
            await attempt(connection)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("not_json", "not valid JSON"),
        ("wrong_shape", "not a completion"),
        ("truncated", "ClientPayloadError"),
        ("reset", "Server|Reset|Client"),
        ("huge", "longer than 1512000 bytes"),
        ("abort", "shutting down"),
    ],
)
async def test_broken_reply_is_transient_and_closes(kind: FaultKind, message: str) -> None:
    async with served() as (server, connection):
        server.play(Fault(kind), count=1)
        with pytest.raises(TransientError, match=message):
            await attempt(connection)
        assert (await attempt(connection)).finish_reason == "stop"
        if kind in ("truncated", "reset", "huge"):
            await until(lambda: server.open_connections == 1)


async def test_a_redirect_is_a_wrong_address_and_is_not_followed() -> None:
    async with served(Fault("redirect")) as (server, connection):
        with pytest.raises(MisconfiguredError, match=r"HTTP 307.*check base_url"):
            await attempt(connection)
        assert server.seen.calls == 1


async def test_hung_call_closes_at_its_deadline() -> None:
    async with served(Fault("hang"), small_timeout_s=0.05) as (server, connection):
        with pytest.raises(TimedOutError, match=r"no answer within 0\.05 s"):
            await attempt(connection)
        await until(lambda: server.open_connections == 0)


async def test_a_body_that_drips_for_ever_ends_at_the_deadline_too() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        try:
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.005)
        except ConnectionError:
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, connected(f"http://127.0.0.1:{port}/v1", small_timeout_s=0.1) as connection:
        with pytest.raises(TimedOutError, match=r"no answer within 0\.1 s"):
            await attempt(connection)


async def test_the_greeting_of_a_server_costs_it_no_completion() -> None:
    async with served() as (server, connection):
        await connection.models(greets=True)
        assert (server.seen.calls, server.seen.probes) == (0, 0)


async def test_the_key_or_password_and_the_trace_are_sent() -> None:
    async with served(small_api_key="k-1") as (server, connection):
        await attempt(connection, {"traceparent": "00-1"})
        async with connected(server.base_url.replace("//", "//ada:s3cr3t%2F%C3%A9@")) as by_password:
            await attempt(by_password)
    sent, named = server.seen.headers
    assert (sent["Authorization"], sent["traceparent"]) == ("Bearer k-1", "00-1")
    assert named["Authorization"] == f"Basic {b64encode('ada:s3cr3t/é'.encode()).decode()}"


async def test_cancellation_wins_over_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    async with served(Fault("hang"), small_timeout_s=60.0) as (server, connection):
        call = asyncio.create_task(attempt(connection))
        await until(lambda: server.seen.concurrent == 1)
        # Both are due when the loop goes on, the cancellation first.
        loop.call_soon(call.cancel)
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + 61.0)
        with pytest.raises(asyncio.CancelledError):
            await call


@pytest.mark.parametrize("user", ["", "ada:secret@"])
async def test_a_call_goes_through_the_proxy_named(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedModelServer() as server, ScriptedProxy(URL(server.base_url).port or 0) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{user}127.0.0.1:{proxy.port}")
        async with connected("http://models.example:8000/v1") as connection:
            for _ in range(2):
                assert (await attempt(connection)).text
    assert [line for line, _ in proxy.asked] == ["POST http://models.example:8000/v1/completions HTTP/1.1"] * 2
    assert {headers.get("proxy-authorization") for _, headers in proxy.asked} == {
        f"Basic {b64encode(user[:-1].encode()).decode()}" if user else None
    }


async def test_a_tunnel_that_is_refused_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedProxy(0) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://ada:hunter2@127.0.0.1:{proxy.port}")
        async with connected("https://models.example/v1") as connection:
            with pytest.raises(TransientError, match="502") as refused:
                await attempt(connection)
    ((line, headers),) = proxy.asked
    assert line == "CONNECT models.example:443 HTTP/1.1"
    assert headers["proxy-authorization"] == f"Basic {b64encode(b'ada:hunter2').decode()}"
    assert "hunter2" not in str(refused.value)


async def test_a_proxy_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://ada:hunter2@127.0.0.1:{pick_port()}")
    async with connected("https://models.example/v1") as connection:
        with pytest.raises(UnreachableError, match="Proxy") as away:
            await attempt(connection)
    assert "hunter2" not in str(away.value)


async def test_a_model_on_this_machine_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{pick_port()}")
    async with served() as (_, connection):
        assert (await attempt(connection)).text
