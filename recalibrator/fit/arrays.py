"""The types of arrays, and their form as text, exact to the byte, in which a JSON snapshot holds columns of numbers."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Any
from zlib import compress, decompress

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

_CHUNK = 1 << 16


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
