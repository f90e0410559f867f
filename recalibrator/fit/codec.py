"""The one form of all state in a snapshot: what a class marks as :data:`Kept` is written, and read back by its type.

Arrays are text, exact to the byte.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import cache
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints
from zlib import compress, decompress

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator, TypeAdapter
from pydantic_core import to_jsonable_python

_CHUNK = 1 << 16
_YOUNGER = frozenset({"believed"})
"""State that snapshots of this format may lack; of anything else that is missing, damage is likelier."""


def pack(columns: NDArray[Any]) -> list[Any]:
    """Return type and shape of an array, and its bytes as compressed base64 text.

    Examples
    --------
    >>> unpack(pack(np.array([1.5, -0.0]))).tolist()
    [1.5, -0.0]
    """
    content = np.ascontiguousarray(columns).reshape(-1).view(np.uint8)
    end = len(content)
    # Room for what is to come is zeros at the end, which need not be written.
    while end and not content[max(0, end - _CHUNK) : end].any():
        end = max(0, end - _CHUNK)
    return [columns.dtype.str, list(columns.shape), b64encode(compress(content[:end].data, 1)).decode("ascii")]


def unpack(packed: list[Any]) -> NDArray[Any]:
    """Return the array that :func:`pack` wrote."""
    kind, shape, data = packed
    columns, content = np.zeros(shape, kind), np.frombuffer(decompress(b64decode(data)), np.uint8)
    columns.reshape(-1).view(np.uint8)[: len(content)] = content
    return columns


_UNPACKED = PlainValidator(unpack)
Floats = Annotated[NDArray[np.float64], _UNPACKED]
Ints = Annotated[NDArray[np.intp], _UNPACKED]
Counts = Annotated[NDArray[np.int64], _UNPACKED]
Numbers = Annotated[NDArray[np.int32], _UNPACKED]
Bytes = Annotated[NDArray[np.uint8], _UNPACKED]
Bools = NDArray[np.bool_]


T = TypeVar("T")
_KEPT, _EACH = "kept", "each"
Kept = Annotated[T, _KEPT]
"""Marks an attribute of a class as state: a snapshot holds it."""

KeptEach = Annotated[dict[str, T], _KEPT, _EACH]
"""Objects by name, each with state of its own; which they are, the settings say."""


@cache
def _kept(kind: Any) -> dict[str, Any]:
    """Return the attributes that are state, with their types."""
    hints = get_type_hints(kind, include_extras=True)
    return {n: hint for n, hint in hints.items() if get_origin(hint) is Annotated and _KEPT in hint.__metadata__}


@cache
def _adapter(kind: Any, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_kept(kind)[name])


def dump(part: Any) -> dict[str, Any]:
    """Return an object's state as JSON values, exact."""
    found = {}
    for name, hint in _kept(part.__class__).items():
        held = getattr(part, name)
        if _EACH in hint.__metadata__:
            found[name] = {key: dump(one) for key, one in held.items()}
        elif _kept(held.__class__):
            found[name] = dump(held)
        else:
            found[name] = to_jsonable_python(sorted(held) if isinstance(held, set) else held, fallback=_packed)
    return found


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return pack(value)
    raise TypeError(f"{type(value).__name__} is no state")


def load(part: Any, state: dict[str, Any]) -> None:
    """Take state back that :func:`dump` wrote; objects by name that it does not know stay as they were made.

    So does state that is younger than the snapshot. A class that computes more from its state does so in ``restored``.
    """
    for name, hint in _kept(part.__class__).items():
        if name in _YOUNGER and name not in state:
            continue
        held, found = getattr(part, name), state[name]
        if _EACH in hint.__metadata__:
            for key in held.keys() & found.keys():
                load(held[key], found[key])
        elif _kept(held.__class__):
            load(held, found)
        else:
            setattr(part, name, _adapter(part.__class__, name).validate_python(found))
    if hasattr(part, "restored"):
        part.restored()
