"""Seeded mutations of bytes: what a broken sender, a torn disk or somebody hostile makes of a valid input.

Some know JSON, so that they reach behind the parser: a value replaced at any depth, a key given twice, thousands of
members. The others know bytes alone: cuts within a character, flipped bits, pieces of other inputs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.hostile_values import HOSTILE_VALUES, places

#: Of the largest inputs: as long as a record may be.
GIANT_BYTES = 1_000_000

GIANT_SHARE = 1 / 500
_MOST_MUTATIONS = 4
_HERE = "\x01here\x01"

HOSTILE_NUMBERS: tuple[str, ...] = (
    *("9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "18446744073709551616"),
    *("9" * 400, "9" * 5_000, "1e400", "-1e400", "1e-400", "5e-324", "-0", "-0.0", "0.1e1", "1e9", "NaN", "-Infinity"),
    *("0.0000000001", "1.0000000000000002", "true", '"1"', "2147483648", "-1", "1e308", "4294967296"),
)
HOSTILE_PIECES: tuple[bytes, ...] = (
    *(b"\x00", b"\r", b"\n", b"\r\n", b"\x1b[2J", b"\x7f"),
    *(b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc0\x80", b"\xe2\x80"),
    *("\u2028".encode(), "\u0085".encode(), "\u202e".encode(), b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *("\U0001f4f7".encode(), b"\\ud800", b"\\u0000", b"\\udc00\\ud800", b"\\u2028", b"\\n", b"\\u001b[2J"),
    *(b'"', b"{", b"}", b"[", b"]", b",", b":"),
    *(b'"><script>fuzz</script>', b"%00", b"%2F..%2F", b"%ff", b"&", b"=", b"../", b"${x}", b"{{7*7}}", b"{text}"),
)
HOSTILE_KEYS: tuple[str, ...] = (
    *("", "\x00", "\n", "a\nb\rc", "\u2028", "\ud800", "k" * 300, "k" * 5_000, "__proto__"),
    *("digest", "signature", "version"),
    *("query_id", "workload", "kind", "entities", "metadata", "1", "é", "\x1b[31m", "a.b", "\u0085"),
)

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def mutated(draw: random.Random, data: bytes, others: Sequence[bytes], *, giant_share: float = GIANT_SHARE) -> bytes:
    """Return an input after some mutations; equal draws give equal bytes.

    ``others``: inputs of the same kind, of which pieces are taken. ``giant_share``: how many inputs are to be of 1 MB.
    """
    if draw.random() < giant_share:
        kind, size = draw.choice([*GIANTS, "repeated"]), max(GIANT_BYTES - len(data), 1_000)
        return repeated(draw, data, size) if kind == "repeated" else giant(draw, data, kind, size)
    for _ in range(draw.randint(1, _MOST_MUTATIONS)):
        data = draw.choice(_MUTATIONS)(draw, data, others)
    return data[:GIANT_BYTES]


def encoded(text: str) -> bytes:
    """Return text as bytes, lone surrogates as the bytes that encode them and that no reader should take."""
    return text.encode("utf-8", "surrogatepass")


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _with_value(draw: random.Random, data: bytes, value: str) -> bytes:
    document = _document(data)
    found = list(places(document))
    if not found:
        return _insert(draw, data, encoded(value))
    holder, key = draw.choice(found)
    holder[key] = _HERE
    return _text(document).replace(encoded(json.dumps(_HERE)), encoded(value))


def _text(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _insert(draw: random.Random, data: bytes, piece: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + piece + data[at:]


def _value(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return _with_value(draw, data, draw.choice(HOSTILE_VALUES))


def _number(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Replace one number as it is written, wherever it stands."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", data[:100_000]))
    if not found:
        return _insert(draw, data, draw.choice(HOSTILE_NUMBERS).encode())
    match = draw.choice(found)
    return data[: match.start()] + draw.choice(HOSTILE_NUMBERS).encode() + data[match.end() :]


def _key(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Give an object a further member: an unknown one, or one that it has already, with any value."""
    document = _document(data)
    objects = [one for one in (document, *(one[key] for one, key in places(document))) if isinstance(one, dict)]
    if not objects:
        return _insert(draw, data, encoded(json.dumps(draw.choice(HOSTILE_KEYS))))
    chosen = draw.choice(objects)
    key = draw.choice([*chosen, *HOSTILE_KEYS])
    marked, value = dict(chosen), draw.choice(HOSTILE_VALUES)
    chosen.clear()
    chosen[_HERE] = 0
    body = json.dumps(marked, separators=(",", ":"))[1:-1]
    member = f"{json.dumps(key)}:{value}"
    members = ",".join(part for part in ((member, body) if draw.random() < 0.5 else (body, member)) if part)
    return _text(document).replace(encoded(f"{json.dumps(_HERE)}:0"), encoded(members))


def _without(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    document = _document(data)
    found = list(places(document))
    if not found:
        return _cut(draw, data, others)
    holder, key = draw.choice(found)
    del holder[key]
    return _text(document)


def _nested(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    depth = draw.choice((5, 63, 64, 65, 150, 250, 1_000, 5_000))
    opening, closing = draw.choice((("[", "]"), ('{"a":', "}")))
    return _with_value(draw, data, opening * depth + "1" + closing * depth * draw.choice((1, 1, 0)))


def _borrowed(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Take a value from another input of the same kind."""
    found = list(places(_document(draw.choice(others)))) if others else []
    if not found:
        return _spliced(draw, data, others)
    holder, key = draw.choice(found)
    return _with_value(draw, data, json.dumps(holder[key]))


def _cut(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _flipped(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4) if changed else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _bytes(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return _insert(draw, data, draw.randbytes(draw.choice((1, 2, 8, 64))))


def _piece(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return _insert(draw, data, draw.choice(HOSTILE_PIECES))


def _removed(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[:start] + data[start + draw.choice((1, 2, 10, 100)) :]


def _repeated(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = draw.randrange(len(data) + 1)
    piece = data[start : start + draw.choice((1, 5, 40, 400))]
    return data[:start] + piece * draw.choice((2, 3, 20)) + data[start + len(piece) :]


def _spliced(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = draw.choice(others) if others else b""
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


_MUTATIONS: tuple[Mutation, ...] = (
    *(_value, _value, _number, _number, _key, _key, _without, _nested, _borrowed, _borrowed),
    *(_cut, _flipped, _bytes, _piece, _piece, _removed, _repeated, _spliced),
)


def _many_keys(draw: random.Random, size: int) -> str:
    value = draw.choice(("1", "null", '""', "[]", "{}"))
    return "{" + ",".join(f'"k{n}":{value}' for n in range(size // 16)) + "}"


def _many_values(draw: random.Random, size: int) -> str:
    value = draw.choice(("1", "0.5", "null", '""', "[]", "{}", '{"a":1}'))
    return "[" + ",".join([value] * (size // (len(value) + 1))) + "]"


def _long_text(draw: random.Random, size: int) -> str:
    piece = draw.choice(("x", "é", "\\u0000", "\\n", " ", "ﬃ", "İ", "{", "0"))
    return '"' + piece * (size // len(piece.encode())) + '"'


def _long_key(draw: random.Random, size: int) -> str:
    return '{"' + "k" * (size - 10) + '":1}'


def _long_number(draw: random.Random, size: int) -> str:
    return draw.choice(("9", "0.", "1e", "-")) + "9" * size


def _deep_value(draw: random.Random, size: int) -> str:
    opening, closing = draw.choice((("[", "]"), ('{"a":', "}")))
    depth = size // len(opening + closing)
    return opening * depth + closing * depth


#: Values of about a given size, as JSON, by name.
GIANTS: Mapping[str, Callable[[random.Random, int], str]] = {
    make.__name__.strip("_").replace("_", " "): make
    for make in (_many_keys, _many_values, _long_text, _long_key, _long_number, _deep_value)
}


def giant(draw: random.Random, data: bytes, kind: str, size: int) -> bytes:
    return _with_value(draw, data, GIANTS[kind](draw, size))


def repeated(draw: random.Random, data: bytes, size: int) -> bytes:
    piece = draw.choice([*HOSTILE_PIECES, b" ", b"\t", b"[", b'{"a":', b'"a":1,', b"0", data[:200] or b"x"])
    return _insert(draw, data, piece * (size // len(piece)))
