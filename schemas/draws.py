"""Reproducible draws: one uniform number for each query's id and salt.

Exploration is drawn inside the label draw (the same number is compared with both probabilities), so that every
explored query is labelled as long as exploration is not more probable than a label.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Draw = TypeVar("Draw", float, NDArray[np.float64])

_TO_UNIT = 2.0**-53
_MAX_KEY_BYTES = 64


def uniform(query_id: str, salt: str) -> float:
    """Hash a query's id to a number that is uniform on [0, 1) with 53 bits.

    Parameters
    ----------
    salt : str
        Keeps the draws of different workloads independent; its first 64 UTF-8 bytes count.

    Examples
    --------
    >>> 0.0 <= uniform("q-1", "photo-search") < 1.0
    True
    >>> uniform("q-1", "photo-search") == uniform("q-1", "photo-search")
    True
    """
    drawn = _keyed(salt).copy()
    drawn.update(query_id.encode())
    return (int.from_bytes(drawn.digest(), "big") >> 11) * _TO_UNIT


def second(draw: Draw) -> Draw:
    """Return another uniform number made of the low bits of a draw: whatever the first decides, it is as before.

    Examples
    --------
    >>> second(0.25 + 0.5 * 2.0**-24)
    0.5
    """
    return draw * 2.0**24 % 1.0


@lru_cache(maxsize=256)
def _keyed(salt: str) -> blake2b:
    """Return the hash that a salt begins; never to be updated itself, only its copies."""
    return blake2b(digest_size=8, key=salt.encode()[:_MAX_KEY_BYTES])
