"""The router's status server: callers need no key, and none of them may keep it from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from schemas.status import RouterStatus
from tests.stream_router.gateway.test_http_api import PATIENCE_S, connected, ends_unanswered, status_of
from ucci_runtime import http_listener
from ucci_runtime.http_listener import HttpListener, status_listener, status_routes
from ucci_runtime.refusals import RequestHosts

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
PATHS = ("/healthz", "/readyz", "/metrics", "/v1/status", "/nowhere")
ASK = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def status() -> RouterStatus:
    return RouterStatus(instance_id="router-0", started_at=NOW, updated_at=NOW, ready=True)


@asynccontextmanager
async def serving(*allowed: str) -> AsyncIterator[HttpListener]:
    hosts, registry = RequestHosts.of("127.0.0.1", allowed), CollectorRegistry()
    server = status_listener("127.0.0.1", 0, hosts, status_routes(status, lambda: (), registry))
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def asked(server: HttpListener, path: str, host: str = "127.0.0.1") -> AsyncIterator[aiohttp.ClientResponse]:
    """Ask; every answer carries the headers that browsers go by."""
    url = f"http://127.0.0.1:{server.port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers={"Host": host}) as answer:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["Server"] == "stream-router"
        yield answer


@pytest.mark.parametrize("path", PATHS)
async def test_dns_rebinding_is_refused_on_loopback(path: str) -> None:
    async with serving("router.example") as server:
        async with asked(server, path, "rebound.example") as answer:
            assert answer.status == 403
            assert "router.allowed_hosts" in (await answer.json())["error"]["message"]
        async with asked(server, path, "router.example:8081") as answer:
            assert answer.status == (404 if path == "/nowhere" else 200)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
async def test_a_request_that_never_ends_keeps_its_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "LIFETIME_S", 0.2)
    async with serving() as server, connected(server.port, sent) as ((reader, _),):
        assert await ends_unanswered(reader)


async def test_an_answer_that_nobody_reads_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "LIFETIME_S", 0.3)
    async with serving() as server, connected(server.port) as ((_, writer),):
        with pytest.raises(ConnectionError):
            await send_for_ever(writer)


async def send_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(ASK * 1_000)
        await asyncio.wait_for(writer.drain(), PATIENCE_S)


async def test_silent_connections_shut_out_the_next_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the oldest connection makes room."""
    monkeypatch.setattr(http_listener, "MAX_CONNECTIONS", 4)
    async with serving() as server, connected(server.port, count=4) as silent, connected(server.port, ASK) as new:
        assert await status_of(new[0][0]) == 200
        assert await ends_unanswered(silent[0][0])


@pytest.mark.parametrize("path", PATHS)
async def test_head_is_answered_as_get_without_a_body(path: str) -> None:
    async with (
        serving() as server,
        asked(server, path) as answer,
        aiohttp.ClientSession() as http,
        http.head(answer.url) as head,
    ):
        assert (head.status, head.content_type, await head.read()) == (answer.status, answer.content_type, b"")
