"""Canonical bytes of a JSON object and the digest over them (RFC 8785, SHA-256).

The evidence of a version holds hundreds of numbers. Nearly all of them pydantic writes as RFC 8785 wants them, in Rust;
the others are corrected from there. The rest is left to the library, which writes every character in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

import rfc8785
from pydantic_core import to_json

from schemas.event import MAX_INTEGER

DIGEST_FIELD = "digest"

_TEXT, _INTEGERS, _FLOATS = {str}, {int}, {float}
#: Powers of ten from where on, and up to where, JSON writes a number without one.
_LEAST_POWER, _POWERS = -6, 21


def digest(document: Mapping[str, Any]) -> str:
    """Hash a JSON object without its own ``digest``.

    ``document``: plain JSON values. Numbers must be finite and integers at most 2**53 in size. Returns lower-case hex
    SHA-256 of the RFC 8785 form. Raises ValueError if a value has no canonical form.
    """
    return sha256(canonical({key: value for key, value in document.items() if key != DIGEST_FIELD})).hexdigest()


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 form of a JSON value. Raises ValueError if it has none.

    Examples
    --------
    >>> canonical({"b": [1.0, 1e-7], "a": "é"}).decode()
    '{"a":"é","b":[1,1e-7]}'
    """
    try:
        return _text(value).encode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise ValueError(f"has no canonical JSON form: {error}") from None


def _text(value: Any) -> str:
    """Write what is common in C, and leave the rest to the library."""
    write = _WRITERS.get(type(value))
    return rfc8785.dumps(value).decode() if write is None else write(value)


def _object(members: dict[Any, Any]) -> str:
    if not members:
        return "{}"
    # The order is that of UTF-16 units, which is Python's own as long as keys are ASCII.
    if set(map(type, members)) <= _TEXT and "".join(members).isascii():
        return "{" + ",".join([f"{encode_basestring(key)}:{_text(members[key])}" for key in sorted(members)]) + "}"
    return rfc8785.dumps(members).decode()


def _array(values: list[Any] | tuple[Any, ...]) -> str:
    if not values:
        return "[]"
    kinds = set(map(type, values))
    if kinds == _INTEGERS and min(values) >= -MAX_INTEGER and max(values) <= MAX_INTEGER:
        return to_json(values).decode()
    if kinds != _FLOATS or not all(map(isfinite, values)):
        return f"[{','.join(map(_text, values))}]"
    # The same shortest digits as Python's own, written in a fraction of the time.
    numbers = to_json(values)[1:-1].decode()
    # All whole numbers at once: hundreds of shares and thresholds are 0 or 1.
    numbers = f"{numbers},".replace("-0.0,", "0,").replace(".0,", ",")[:-1]
    if "e" in numbers:
        numbers = ",".join([_number(text) if "e" in text else text for text in numbers.split(",")])
    return f"[{numbers}]"


def _whole(value: int) -> str:
    return str(value) if -MAX_INTEGER <= value <= MAX_INTEGER else rfc8785.dumps(value).decode()


def _number(text: str) -> str:
    """Write as JSON does what Python writes otherwise: whole numbers, small ones, huge ones, and what is no number."""
    if text.endswith(".0"):
        return "0" if text == "-0.0" else text[:-2]
    if "n" in text:
        return rfc8785.dumps(float(text)).decode()
    mantissa, _, power = text.partition("e")
    if not power:
        return text
    return f"{Decimal(text):f}" if _LEAST_POWER <= int(power) < _POWERS else f"{mantissa}e{int(power):+d}"


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    int: _whole,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    float: lambda value: _number(repr(value)),
    list: _array,
    tuple: _array,
    dict: _object,
}
