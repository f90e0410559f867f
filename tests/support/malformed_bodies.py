"""Requests that go wrong: what a broken, careless or hostile sender may put into a body, seeded."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.fuzz.mutations import encoded, mutated
from tests.support.hostile_values import HOSTILE_VALUES

WORKLOAD = "photo-search"
PATHS = (
    "/v1/feedback",
    "/v1/feedback:batch",
    "/v1/hooks/label-studio",
    *(f"/v1/calibrations/{WORKLOAD}:{action}" for action in ("pause", "resume", "unpin", "refit")),
    *(f"/v1/calibrations/{WORKLOAD}/1:{action}" for action in ("activate", "pin")),
    "/confirm",
)
#: What the applications under test take at most, so that bodies beyond it stay small enough to draw by thousands.
MAX_BODY_BYTES = 200_000

_JSON = "application/json"
_TYPES = {"/v1/feedback:batch": "application/jsonl", "/confirm": "application/x-www-form-urlencoded"}
_WRONG_TYPES = ("application/xml", "multipart/form-data", "", "json", "text/html; charset=utf-7", "\x7f", "a/b/c")
_EVENT: dict[str, object] = {
    "query_id": "q-1",
    "entities": {"camera": "canon 5d", "lens": ["50mm", "85mm"], "iso": None},
    "labeler": "ann",
    "labelled_at": "2025-12-31T12:00:00Z",
    "source": "back-office",
    "feedback_id": "f-1",
    "revision": 2,
    "retracted": False,
}
LABEL_STUDIO_HOOK: dict[str, object] = {
    "action": "ANNOTATION_UPDATED",
    "task": {"data": {"query_id": "q-1"}},
    "annotation": {
        "id": 7,
        "updated_at": "2025-12-31T12:00:00.123456Z",
        "completed_by": {"email": "ann@example.org"},
        "result": [
            {"type": "labels", "from_name": "label", "value": {"text": "canon 5d", "labels": ["camera"]}},
            {"type": "textarea", "from_name": "lens", "value": {"text": ["50mm"]}},
        ],
    },
}


@dataclass(frozen=True)
class MalformedRequest:
    """One request; ``body`` in pieces is sent without a length."""

    path: str
    headers: dict[str, str]
    body: bytes | tuple[bytes, ...]
    kind: str


def malformed_requests(seed: int, count: int) -> Iterator[MalformedRequest]:
    """Yield so many requests; equal seeds give equal requests.

    A few are harmless by chance, such as an unknown field: they may be answered with 202.
    """
    draw = random.Random(seed)
    for _ in range(count):
        path = draw.choice(PATHS)
        (kind,) = draw.choices(tuple(_KINDS), _WEIGHTS)
        body = _KINDS[kind](draw, path)
        headers = {"Content-Type": _TYPES.get(path, _JSON)}
        if kind == "wrong media type":
            headers["Content-Type"] = draw.choice(_WRONG_TYPES)
        elif kind == "said to be compressed":
            headers["Content-Encoding"] = draw.choice(("gzip", "br", "deflate", "gzip, gzip", "x" * 500))
        if draw.random() < 0.05:
            headers["Idempotency-Key"] = draw.choice(("", " ", "k", "k" * 513, "\xff", "k" * 5_000))
        pieces = _in_pieces(draw, body) if draw.random() < 0.2 else body
        yield MalformedRequest(path, headers, pieces, kind)


def _in_pieces(draw: random.Random, body: bytes) -> tuple[bytes, ...]:
    size = draw.choice((1, 7, 1_000, 65_536)) if len(body) < 5_000 else draw.choice((1_000, 65_536))
    return tuple(body[start : start + size] for start in range(0, len(body), size))


def _good(path: str) -> bytes:
    if path == "/confirm":
        return f"workload={WORKLOAD}&action=pause&reason=agreed&version=".encode()
    if path == "/v1/hooks/label-studio":
        return json.dumps(LABEL_STUDIO_HOOK).encode()
    return json.dumps(_EVENT if path.startswith("/v1/feedback") else {"reason": "as agreed"}).encode()


def _mutated(draw: random.Random, path: str) -> bytes:
    """Some mutations that the fuzzer knows; of a form, one value that does not belong there."""
    if path == "/confirm" and draw.random() < 0.5:
        name = draw.choice(("workload", "action", "reason", "version", "key"))
        return _good(path) + encoded(f"&{name}={draw.choice(HOSTILE_VALUES)}")
    return mutated(draw, _good(path), [_good(other) for other in PATHS], giant_share=0.0)


def _lines(draw: random.Random, path: str) -> bytes:
    made = [_mutated(draw, "/v1/feedback") for _ in range(40)]
    endings = draw.choice((b"\n", b"\r\n", b"\n\n", b"\r", b"\x0b", "\u2028".encode()))
    return draw.choice((endings.join(made), b"x\n" * 70_000, b"\n" * 150_000, endings.join(made) + b'{"query_id"'))


def _compressed(draw: random.Random, path: str) -> bytes:
    data = _good(path)
    packed = gzip.compress(data, mtime=0)
    return draw.choice((data, packed, packed[:-5], gzip.compress(b" " * 10**6, mtime=0)))


_KINDS: dict[str, Callable[[random.Random, str], bytes]] = {
    "mutated": _mutated,
    "lines": _lines,
    "wrong media type": lambda _draw, path: _good(path),
    "said to be compressed": _compressed,
}
_WEIGHTS = (6, 1, 1, 1)


def good_body(path: str) -> tuple[bytes, bytes]:
    """Return the head, a line for each header, and the body of a request that is served."""
    head = f"host: 127.0.0.1:8080\ncontent-type: {_TYPES.get(path, _JSON)}"
    return head.encode(), _good(path)
