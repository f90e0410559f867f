"""The HTTP server over real sockets: senders who are slow, and bodies that nobody asked for."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event
from typing import Any

import pytest
from fastapi import FastAPI

from recalibrator.api import http_requests as bodies
from recalibrator.api import http_server as server
from recalibrator.api.http_server import HttpServer
from tests.support.api import make_api

PATIENCE_S = 30.0
HEAD = (
    b"POST /v1/feedback HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
)


@pytest.fixture
def port() -> Iterator[int]:
    running = HttpServer(make_api(max_body_bytes=100_000).client.app, "127.0.0.1", 0)
    running.start()
    yield running.port
    running.close()


def test_making_the_description_kept_all_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first GET /openapi.json takes a long time, which nobody else spends; callers who come meanwhile share it."""
    made, begun, release, make = list[bool](), Event(), Event(), FastAPI.openapi

    def make_slowly(app: FastAPI) -> dict[str, Any]:
        begun.set()
        made.append(release.wait(PATIENCE_S))
        return make(app)

    monkeypatch.setattr(FastAPI, "openapi", make_slowly)
    running = HttpServer(make_api().client.app, "127.0.0.1", 0)
    running.start()
    with closing(running), ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(_get, running.port, "/openapi.json") for _ in range(2)]
        try:
            assert begun.wait(PATIENCE_S)
            assert _get(running.port, "/healthz") == 200
            assert not any(one.done() for one in asked)
        finally:
            release.set()
        codes = {one.result(PATIENCE_S) for one in asked}
    assert (codes, made) == ({200}, [True])


def _connection(port: int) -> closing[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S))


def _get(port: int, path: str) -> int:
    with _connection(port) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def _answer_and_end(port: int, sent: bytes) -> bytes:
    """Send, then read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_body_that_does_not_arrive_is_408(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not come is 408 and the connection ends."""
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.2)
    answer = _answer_and_end(port, HEAD + b'{"query_id":')

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert json.loads(body)["error"]["code"] == "slow_body"


@pytest.mark.parametrize("sent", [b"", b"POST /v1/feedback HTT", HEAD[:-2]])
def test_a_head_that_does_not_come_ends_the_connection(port: int, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STRAY_TIMEOUT_S", 0.2)
    assert _answer_and_end(port, sent) == b""


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/feedback:batch"])
def test_a_chunked_body_is_413_at_the_limit(port: int, path: str) -> None:
    """A body of no declared length is refused at the limit and the sender sees it."""
    pieces = (b"x" * 50_000 for _ in range(40))
    media_type = "application/jsonl" if path.endswith("batch") else "application/json"

    with _connection(port) as connection:
        connection.request("POST", path, pieces, {"Content-Type": media_type}, encode_chunked=True)

        assert connection.getresponse().status == 413


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/feedback:batch"])
def test_413_is_lost_when_the_client_sends_connection_close(port: int, path: str) -> None:
    """A connection closed over unread data is reset, and the answer with it."""
    body = b'{"query_id": "q"}' * 400_000
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
    media = head.replace("json", "jsonl") if path.endswith("batch") else head
    answer = _answer_and_end(port, f"{media}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_large"


def test_a_sender_that_never_ends_is_cut_off_after_its_refusal(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "DRAIN_TIMEOUT_S", 0.2)
    answer = _answer_and_end(port, HEAD.replace(b"Host:", b"Connection: close\r\nHost:").replace(b"1000", b"900000"))

    assert answer.startswith(b"HTTP/1.1 413 ")


def test_an_answer_that_nobody_reads_keeps_its_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that asks again and again, and reads nothing, is cut off."""
    monkeypatch.setattr(server, "UNREAD_TIMEOUT_S", 0.2)
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(PATIENCE_S)
        connection.connect(("127.0.0.1", port))
        # The server stops taking requests, and at last the connection: only its reset ends this.
        with pytest.raises(ConnectionError):
            _send_for_ever(connection, ask * 100)


def _send_for_ever(connection: socket.socket, data: bytes) -> None:
    while True:
        connection.sendall(data)


@pytest.mark.parametrize(
    "path", ["/metrics", "/healthz", "/readyz", "/openapi.json", "/", "/v1/status", "/v1/status/nowhere", "/nowhere"]
)
def test_head_is_answered_as_get_without_a_body(port: int, path: str) -> None:
    answers = []
    for method in ("GET", "HEAD"):
        with _connection(port) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            answers.append((answer.status, answer.headers["Content-Type"]))
            assert (answer.read() == b"") is (method == "HEAD")
            # The connection is left at the next request.
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
    assert answers[0] == answers[1]


def test_head_of_what_only_takes_posts_is_405(port: int) -> None:
    with _connection(port) as connection:
        connection.request("HEAD", "/v1/feedback")
        assert connection.getresponse().status == 405
