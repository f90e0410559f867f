"""Confluent's wire format: a byte 0 and a schema's id, four bytes, most significant first, before the JSON of a record.

Serializers that are given a schema registry write it. JSON never begins with a byte 0, so that a record says by itself
whether it has such a frame; the id is passed over, since a record is validated by what it holds.
"""

from __future__ import annotations

from schemas.errors import DecodeError

_MAGIC = b"\0"
_FRAME_BYTES = 5
MAX_SCHEMA_ID = 2**31 - 1


def framed(schema_id: int, value: bytes) -> bytes:
    r"""Return a record's JSON with its frame.

    Parameters
    ----------
    schema_id : int
        As the registry numbers the schema, from 0 to ``MAX_SCHEMA_ID``.

    Examples
    --------
    >>> framed(258, b"{}")
    b'\x00\x00\x00\x01\x02{}'
    """
    return _MAGIC + schema_id.to_bytes(_FRAME_BYTES - 1, "big") + value


def unframed(value: bytes) -> bytes:
    """Return a record's JSON, whether or not it has a frame.

    Raises DecodeError: reason ``not_json`` where a frame is cut off, or no JSON object follows it at once.

    Examples
    --------
    >>> unframed(framed(7, b"{}")), unframed(b"{}")
    (b'{}', b'{}')
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
