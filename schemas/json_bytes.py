"""Parses and validates JSON of foreign bytes in time that grows with their number, whatever stands in them.

Two costs do not show on a record of the usual kilobyte and rule a hostile megabyte. Pydantic hands out every finding
with the object that it was found in, rebuilt from the parser's for each: twelve fields that are missing beside 80,000
unknown ones took more than a second. And Python's collector of cycles starts again and again among hundreds of
thousands of new objects: it took ten times as long as the parser. So long JSON becomes Python's objects once, without
the collector, and what is found refers to them.

Serializers that are given a schema registry write Confluent's wire format: a byte 0 and a schema's id, four bytes, most
significant first, before the JSON. JSON never begins with a byte 0, so that a record says by itself whether it has such
a frame; the id is passed over, since a record is validated by what it holds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pydantic_core import from_json

from schemas.errors import DecodeError

#: Above it, JSON is long. Below, pydantic validates while it parses, which is the faster the fewer fields it keeps.
LONG_BYTES = 32_768


class Validator(Protocol):
    """What pydantic validates a model, or a type adapter, by."""

    def validate_json(self, raw: bytes, /) -> Any:
        """Parse and validate."""

    def validate_python(self, content: Any, /) -> Any:
        """Validate what is parsed."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let no search for cycles begin: what JSON is parsed to has none.

    For the whole process; of several threads that pause it, the first to end lets it go on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def parsed(raw: bytes) -> Any:
    """Return JSON as Python's own values."""
    if len(raw) <= LONG_BYTES:
        return from_json(raw)
    with collector_paused():
        return from_json(raw)


def text_member(value: bytes | None, name: str) -> str | None:
    """Return a text that a record's JSON object holds under this name; None where there is none to be read."""
    try:
        content = from_json(unframed(value or b""))
    except (ValueError, DecodeError):
        return None
    found = content.get(name) if isinstance(content, dict) else None
    return found if isinstance(found, str) else None


def validated(validator: Validator, raw: bytes) -> Any:
    """Return what a validator makes of JSON.

    Raises pydantic.ValidationError where the JSON is long, in the words for Python's values, and of a key given twice
    the last value alone counts.
    """
    if len(raw) <= LONG_BYTES:
        return validator.validate_json(raw)
    with collector_paused():
        return _in_two_steps(validator, raw)


def _in_two_steps(validator: Validator, raw: bytes) -> Any:
    """Parse, then validate; what nobody keeps is gone at the end, before the collector could search it."""
    try:
        content = from_json(raw)
    except ValueError:
        # For the finding of every other record that is no JSON.
        return validator.validate_json(raw)
    return validator.validate_python(content)


_MAGIC = b"\0"
_FRAME_BYTES = 5
MAX_SCHEMA_ID = 2**31 - 1


def framed(schema_id: int, value: bytes) -> bytes:
    r"""Return a record's JSON with its frame; the registry numbers schemas from 0 to ``MAX_SCHEMA_ID``.

    Examples
    --------
    >>> framed(258, b"{}")
    b'\x00\x00\x00\x01\x02{}'
    """
    return _MAGIC + schema_id.to_bytes(_FRAME_BYTES - 1, "big") + value


def unframed(value: bytes) -> bytes:
    """Return a record's JSON, whether or not it has a frame.

    Raises DecodeError: reason ``not_json`` where a frame is cut off, or no JSON object follows it at once.
    """
    if value[:1] != _MAGIC:
        return value
    if value[_FRAME_BYTES : _FRAME_BYTES + 1] != b"{":
        number = int.from_bytes(value[1:_FRAME_BYTES], "big")
        message = (
            f"in Confluent's wire format (schema id {number}) without a JSON object: send JSON, not Avro or Protobuf"
            if len(value) >= _FRAME_BYTES
            else "begins with a byte 0, as in Confluent's wire format, and ends before its schema id does"
        )
        raise DecodeError("not_json", message)
    return value[_FRAME_BYTES:]
