"""Targets over HTTP: what a model server may reply, and what a client may send to the recalibrator's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote_from_bytes

from schemas.routed import ModelRun
from stream_router.errors import MalformedReplyError
from stream_router.model_client.answer import judge_answer
from stream_router.model_client.reply import read_reply
from stream_router.model_client.uncertainty import SIGNALS, UncertaintySignal
from tests.fuzz.targets import PART, Target, Violation, parts_of, require_line
from tests.support.api import KEY, WORKLOAD, make_api
from tests.support.malformed_bodies import MAX_BODY_BYTES, PATHS, good_body

_FIELDS = ("camera", "lens", "iso")
_PAGES = (
    *("/", f"/workloads/{WORKLOAD}", f"/confirm?workload={WORKLOAD}&action=pause", "/healthz", "/readyz", "/metrics"),
    *("/v1/status", f"/v1/status/{WORKLOAD}", f"/v1/calibrations/{WORKLOAD}", f"/v1/calibrations/{WORKLOAD}/1"),
    *(f"/v1/label-requests/{WORKLOAD}?limit=5&reason=audit&cursor=x", f"/v1/label-requests/{WORKLOAD}?cursor=1:q-1"),
    *(f"/v1/status/{WORKLOAD}/history?since=2026-01-31T12:00:00Z", "/v1/stream", "/openapi.json", "/page.css"),
    f"/v1/workloads/{WORKLOAD}/what-moved?since=2025-12-31T12:00:00Z&until=2026-01-31T12:00:00%2B01:00",
    *(f"/workloads/{WORKLOAD}?asked=pause&version=1", f"/confirm?workload={WORKLOAD}&action=pin&version=1"),
)
_PATIENCE_S = 20.0
#: Of a request's first line: the server refuses a head beyond 64 kB.
_TARGET_BYTES = 60_000


def http_targets() -> Iterator[Target]:
    for signal in SIGNALS.values():
        yield Target(f"model reply, {signal.kind}", _REPLIES, partial(_reply, signal))
    yield Target("API, bodies", _posts(), _Api().answer, 0.15)
    yield Target("API, queries and paths", _gets(), _Api().answer, 0.1)


def _completion(**changed: object) -> bytes:
    choice = {
        "text": '{"camera": "canon 5d", "lens": ["50mm", "85mm"], "iso": 100}',
        "finish_reason": "stop",
        "logprobs": {"top_logprobs": [{"{": -0.1, "[": -2.5}, {"}": 0.0, "x": -9999.0}]},
    }
    return json.dumps({"choices": [choice | changed], "usage": {"completion_tokens": 2}}).encode()


_LIKELY = {"token": "{", "logprob": -0.1}
_CHAT = {
    "message": {"role": "assistant", "content": '{"camera": null, "lens": "", "iso": "1e3"}'},
    "logprobs": {"content": [_LIKELY | {"top_logprobs": [_LIKELY, {"token": "a", "logprob": -3}]}]},
}
_THOUGHT = "<think>a camera?</think>"
_THINKING = {
    "text": _THOUGHT + '{"Camera": "canon", "ISO": 1}',
    "logprobs": {
        "tokens": [_THOUGHT, '{"Camera": "canon"', ', "ISO": 1}'],
        "top_logprobs": [{"a": -0.7}, {"b": -0.1, "c": None}, {"d": 0.001}],
        "text_offset": [0, 24, 42],
    },
}
_CHAT_THINKING = {
    "message": {"content": [{"type": "text", "text": "{}"}], "reasoning_content": "hm"},
    "logprobs": {"content": [_LIKELY | {"bytes": [123, 125], "top_logprobs": [_LIKELY]}]},
}
_REPLIES = (
    *(_completion(), _completion(**_CHAT), _completion(logprobs=None, finish_reason="length"), b'{"choices":[]}'),
    *(_completion(**_THINKING), _completion(**_CHAT_THINKING)),
    b'{"error": {"message": "too long", "type": "invalid_request_error", "code": "400"}}',
    b'{"object": "error", "message": "gone", "code": 500}',
    b'{"detail": [{"loc": ["body"], "msg": "extra"}]}',
)


def _reply(signal: UncertaintySignal, data: bytes) -> str:
    """Read a reply and the answer in it, as a router does; what is served of it must fit into a result."""
    try:
        reply = read_reply(data, signal)
    except MalformedReplyError as error:
        require_line(str(error))
        return str(error)[:40]
    run = judge_answer("small", reply, _FIELDS, 0.1).run
    if run.error is not None:
        require_line(run.error)
    if ModelRun.model_validate_json(run.model_dump_json()) != run:
        raise Violation("what is written of a run is read as another one")
    return "valid" if run.valid else f"invalid: {(run.error or '')[:30]}"


def _posts() -> tuple[bytes, ...]:
    return tuple(PART.join((f"POST {path}".encode(), *good_body(path))) for path in PATHS)


def _gets() -> tuple[bytes, ...]:
    head = b'host: 127.0.0.1:8080\naccept: */*\nif-none-match: W/"abc", "d"'
    methods = ("GET", "HEAD", "OPTIONS", "DELETE", "PUT")
    return tuple(
        PART.join((f"{methods[n % len(methods)] if n % 3 == 0 else 'GET'} {page}".encode(), head, b""))
        for n, page in enumerate(_PAGES)
    )


class _Api:
    """The application in this process, asked as a server would ask it."""

    def __init__(self) -> None:
        keys = {"ada": {"key": KEY, "scopes": ["read", "feedback", "relay", "admin"], "quota_per_minute": 10**9}}
        self._open = make_api(max_body_bytes=MAX_BODY_BYTES)
        self._keyed = make_api(max_body_bytes=MAX_BODY_BYTES, api_keys=keys)
        self._loop = asyncio.new_event_loop()

    def answer(self, data: bytes) -> str:
        """Send one request and check its answer: no fault of the service, no secrets of its insides."""
        target, head, body = parts_of(data, 3)
        api = self._keyed if len(data) % 2 else self._open
        status, headers, answer = self._loop.run_until_complete(_exchange(api.client.app, target, head, body))
        api.producer.records.clear()
        if status >= 500:
            raise Violation(f"answered with {status}: {answer[:200]!r}")
        if b"Traceback" in answer or b'File "' in answer:
            raise Violation("the answer shows a traceback")
        kind = headers.get(b"content-type", b"").partition(b";")[0]
        if kind == b"text/html" and b"<script>fuzz" in answer:
            raise Violation("the page runs what it was sent")
        code = ""
        if kind == b"application/json" and status >= 400 and answer:
            error = json.loads(answer)["error"]
            require_line(error["message"])
            code = error["code"]
        return f"{target[:24].partition(b'?')[0].decode('ascii', 'replace')} {status} {code}"


async def _exchange(app: Any, target: bytes, head: bytes, body: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """Ask an ASGI application once; the head is cut to what a server lets through."""
    method, _, address = target.partition(b" ")
    address = quote_from_bytes(address[:_TARGET_BYTES], safe="/:?&=%+,;@!$'()*[]~#").encode()
    path, _, query = address.partition(b"?")
    lines = (line.partition(b":") for line in head.replace(b"\x00", b"").replace(b"\r", b"").split(b"\n")[:50])
    headers = [
        (name.strip().lower(), value.strip()) for name, _, value in lines if name.strip().isalnum() or b"-" in name
    ]
    sent = [{"type": "http.request", "body": body, "more_body": False}]
    answers: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return sent.pop() if sent else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        answers.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "".join(one for one in method.decode("ascii", "ignore") if one.isupper()) or "GET",
        "scheme": "http",
        "path": path.decode("ascii"),
        "raw_path": path if path.startswith(b"/") else b"/" + path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8_080),
    }
    await asyncio.wait_for(app(scope, receive, send), _PATIENCE_S)
    start = next(message for message in answers if message["type"] == "http.response.start")
    content = b"".join(message.get("body", b"") for message in answers if message["type"] == "http.response.body")
    return int(start["status"]), dict(start.get("headers", ())), content
