"""The HTTP server over real sockets: senders who are slow, and bodies that nobody asked for."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from recalibrator.api import http_requests as bodies
from recalibrator.api import http_server as server
from recalibrator.api.http_server import HttpServer
from tests.support.api import Api, make_api

PATIENCE_S = 30.0
HEAD = (
    b"POST /v1/feedback HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
)


@pytest.fixture
def api() -> Api:
    return make_api(max_body_bytes=100_000)


@pytest.fixture
def port(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(server, "STRAY_TIMEOUT_S", 0.2)
    running = HttpServer(api.client.app, "127.0.0.1", 0)  # type: ignore[arg-type]
    running.start()
    yield running.port
    running.close()


def _answer_and_end(port: int, sent: bytes) -> bytes:
    """Send, then read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_body_that_does_not_come_is_408_and_the_connection_ends(port: int) -> None:
    answer = _answer_and_end(port, HEAD + b'{"query_id":')

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert json.loads(body)["error"]["code"] == "slow_body"


@pytest.mark.parametrize("sent", [b"", b"POST /v1/feedback HTT", HEAD[:-2]])
def test_a_head_that_does_not_come_ends_the_connection(port: int, sent: bytes) -> None:
    assert _answer_and_end(port, sent) == b""


def test_a_declared_body_above_the_limit_is_answered_without_waiting_for_it(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.sendall(HEAD.replace(b"1000", b"100000000"))

        assert connection.recv(13) == b"HTTP/1.1 413 "


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/feedback:batch"])
def test_a_body_of_no_declared_length_is_refused_at_the_limit_and_the_sender_hears_of_it(port: int, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    pieces = (b"x" * 50_000 for _ in range(40))
    media_type = "application/jsonl" if path.endswith("batch") else "application/json"

    connection.request("POST", path, pieces, {"Content-Type": media_type}, encode_chunked=True)

    assert connection.getresponse().status == 413
    connection.close()


def test_a_kept_connection_serves_one_request_after_another(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    for number in range(3):
        body = json.dumps({"query_id": f"q-{number}", "entities": None})
        connection.request("POST", "/v1/feedback", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()[:11]) == (202, b'{"query_id"')
    connection.close()
