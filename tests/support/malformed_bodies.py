"""Requests that go wrong: what a broken, careless or hostile sender may put into a body, seeded."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.support.hostile_values import HOSTILE_VALUES, places

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
        kind = draw.choice(tuple(_KINDS))
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


def _good(draw: random.Random, path: str) -> dict[str, object]:
    if path == "/v1/hooks/label-studio":
        return LABEL_STUDIO_HOOK
    if path.startswith("/v1/feedback"):
        return _EVENT
    return {"reason": "as agreed"}


def _text(draw: random.Random, path: str) -> str:
    if path == "/confirm":
        return f"workload={WORKLOAD}&action=pause&reason=agreed&version="
    return json.dumps(_good(draw, path))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _with_value(draw: random.Random, path: str) -> bytes:
    """One value, at any depth, replaced by one that does not belong there."""
    value = draw.choice(HOSTILE_VALUES)
    if path == "/confirm":
        name = draw.choice(("workload", "action", "reason", "version", "key"))
        return _encode(f"{_text(draw, path)}&{name}={value}")
    document = json.loads(json.dumps(_good(draw, path)))
    holder, key = draw.choice(list(places(document)))
    holder[key] = "\x01here\x01"
    return _encode(json.dumps(document).replace(json.dumps("\x01here\x01"), value))


def _with_key(draw: random.Random, path: str) -> bytes:
    """A key given twice, unknown, missing or wrongly written."""
    text = _text(draw, path)
    key = draw.choice(
        ('"query_id"', '"entities"', '"action"', '"reason"', '"unknown"', '""', '"\\u0000"', '"\\ud800"', "1")
    )
    return draw.choice(
        (
            _encode(text[:-1] + f",{key}:{draw.choice(HOSTILE_VALUES)}}}"),
            _encode(f"{{{key}:{draw.choice(HOSTILE_VALUES)},{text[1:]}"),
            _encode(text.replace('"query_id"', key, 1).replace('"reason"', key, 1)),
        )
    )


def _truncated(draw: random.Random, path: str) -> bytes:
    data = _encode(_text(draw, path))
    return data[: draw.randrange(len(data))]


def _flipped(draw: random.Random, path: str) -> bytes:
    data = bytearray(_encode(_text(draw, path)))
    for _ in range(draw.randint(1, 4)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def _bytes(draw: random.Random, path: str) -> bytes:
    return draw.choice(
        (b"", b"\x00" * draw.randint(1, 50), b"\xff\xfe", draw.randbytes(draw.randint(1, 300)), b"\r\n" * 50)
    )


def _prefixed(draw: random.Random, path: str) -> bytes:
    text = _text(draw, path)
    return draw.choice(
        (
            b"\xef\xbb\xbf" + _encode(text),
            text.encode("utf-16"),
            text.encode("utf-32"),
            text.encode("latin-1", "replace") + b"\xe9",
            b")]}',\n" + _encode(text),
            _encode(text + text),
            _encode(f"[{text}]"),
            _encode(json.dumps(text)),
        )
    )


def _deep(draw: random.Random, path: str) -> bytes:
    depth = draw.choice((100, 150, 300, 5_000, 90_000))
    opening, closing = draw.choice((("[", "]"), ('{"a":', "}")))
    nested = opening * depth + draw.choice(("", "1" + closing * depth))
    field = draw.choice(("entities", "unknown", "annotation", "reason"))
    return _encode(draw.choice((nested, f'{{"query_id":"q","action":"x","{field}":{nested}}}')))


def _long(draw: random.Random, path: str) -> bytes:
    kind = draw.randrange(6)
    if kind == 0:
        return b'{"query_id":"q","entities":{"camera":[' + b",".join([b"1"] * 50_000) + b"]}}"
    if kind == 1:
        return b'{"query_id":"q","entities":{' + b",".join(b'"f%d":null' % n for n in range(10_000)) + b"}}"
    if kind == 2:
        return b'{"query_id":"q","entities":{"' + b"k" * 150_000 + b'":5}}'
    if kind == 3:
        return b'{"query_id":"' + b"q" * 150_000 + b'","entities":{}}'
    if kind == 4:
        return b" " * draw.choice((MAX_BODY_BYTES - 1, MAX_BODY_BYTES + 1, 10 * MAX_BODY_BYTES + 1))
    return b'{"action":"ANNOTATION_CREATED","reason":"' + b"r" * 5_000 + b'"}'


def _lines(draw: random.Random, path: str) -> bytes:
    made = [_KINDS[draw.choice(("value", "key", "truncated", "flipped"))](draw, "/v1/feedback") for _ in range(40)]
    endings = draw.choice((b"\n", b"\r\n", b"\n\n", b"\r", b"\x0b", "\u2028".encode()))
    return draw.choice((endings.join(made), b"x\n" * 70_000, b"\n" * 150_000, endings.join(made) + b'{"query_id"'))


def _compressed(draw: random.Random, path: str) -> bytes:
    data = _encode(_text(draw, path))
    return draw.choice(
        (data, gzip.compress(data, mtime=0), gzip.compress(data, mtime=0)[:-5], gzip.compress(b" " * 10**6, mtime=0))
    )


_KINDS: dict[str, Callable[[random.Random, str], bytes]] = {
    "value": _with_value,
    "key": _with_key,
    "truncated": _truncated,
    "flipped": _flipped,
    "bytes": _bytes,
    "prefixed": _prefixed,
    "deep": _deep,
    "long": _long,
    "lines": _lines,
    "wrong media type": lambda draw, path: _encode(_text(draw, path)),
    "said to be compressed": _compressed,
}


def good_body(path: str) -> tuple[bytes, bytes]:
    """Return the head, a line for each header, and the body of a request that is served."""
    head = f"host: 127.0.0.1:8080\ncontent-type: {_TYPES.get(path, _JSON)}"
    return head.encode(), _encode(_text(random.Random(0), path))
