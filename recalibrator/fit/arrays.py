"""The types of arrays, and their form as text, exact to the byte, in which a JSON snapshot holds columns of numbers."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, TypeVar
from zlib import compress, decompress

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

Scalar = TypeVar("Scalar", bound=np.generic)


def pack(columns: NDArray[Any]) -> str:
    """Return an array as compressed base64 text of its little-endian bytes.

    Examples
    --------
    >>> unpack(pack(np.array([1.5, -0.0])), np.zeros(2)).tolist()
    [1.5, -0.0]
    """
    ordered = np.ascontiguousarray(columns).astype(columns.dtype.newbyteorder("<"), copy=False)
    return b64encode(compress(ordered.tobytes(), 1)).decode("ascii")


def unpack(text: str, like: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array that :func:`pack` wrote, with the shape and type of ``like``.

    Raises
    ------
    ValueError
        If the text holds another number of values.
    """
    flat = np.frombuffer(decompress(b64decode(text)), dtype=like.dtype.newbyteorder("<"))
    return flat.astype(like.dtype).reshape(like.shape)
