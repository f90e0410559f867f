"""Free-form JSON inside an event: handed through as it came, but never what another reader could not read.

Plain values flow in and out unchanged; numbers that are not finite, integers beyond 64 bits and nesting without end
are refused.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated

from pydantic import AfterValidator, JsonValue

MAX_DEPTH = 64
_INTEGER_BITS = 64


def readable(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Check a JSON object that is carried along.

    Parameters
    ----------
    value : dict
        Plain JSON values.

    Returns
    -------
    dict
        The same object.

    Raises
    ------
    ValueError
        Naming the first value that a JSON reader somewhere would refuse or read as another.

    Examples
    --------
    >>> readable({"width": 6000, "tags": ["street"]})
    {'width': 6000, 'tags': ['street']}
    """
    level: list[JsonValue] = [value]
    depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested more than {MAX_DEPTH} levels deep: flatten it")
        depth += 1
        level = [inner for outer in level for inner in _inside(outer)]
    return value


def _inside(value: JsonValue) -> list[JsonValue]:
    """Return the values inside one value, itself checked."""
    if isinstance(value, dict):
        for key in value:
            _encodable(key)
        return list(value.values())
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        _encodable(value)
    elif isinstance(value, float) and not isfinite(value):
        raise ValueError(f"holds {value}, which JSON cannot tell: leave it out or send null")
    elif isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        raise ValueError(f"holds an integer of {value.bit_length()} bits, more than {_INTEGER_BITS}: send it as text")
    return []


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds a lone surrogate at character {error.start} of a text: send Unicode") from None


JsonObject = Annotated[dict[str, JsonValue], AfterValidator(readable)]
"""A JSON object whose members are the sender's own."""
