"""Reproducible draws: one uniform number for each query's id and salt.

Exploration is drawn inside the label draw (the same number is compared with both probabilities), so that every
explored query is labelled as long as exploration is not more probable than a label.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Draw = TypeVar("Draw", float, NDArray[np.float64])

_TO_UNIT = 2.0**-53
_MAX_KEY_BYTES = 64


def uniform(query_id: str, salt: str) -> float:
    """Hash a query's id to a number that is uniform on [0, 1) with 53 bits.

    ``salt``: keeps the draws of different workloads independent; its first 64 UTF-8 bytes count.
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


def drawn_as(query_id: str, key: bytes | None) -> str:
    """Return what stands for a query's id in its draws, so that nobody without the key can choose ids by their draws.

    ``key``: ``router.draw_key``, the same on every router; None leaves the id as it is, and the draws public.

    Examples
    --------
    >>> drawn_as("q-1", None)
    'q-1'
    >>> drawn_as("q-1", b"one") == drawn_as("q-1", b"another")
    False
    """
    if key is None:
        return query_id
    drawn = _secret(key).copy()
    drawn.update(query_id.encode())
    return drawn.hexdigest()


def mark_of(key: bytes | None) -> str | None:
    """Return eight characters that tell the keys of draws apart, or None where there is none."""
    return None if key is None else blake2b(b"mark", digest_size=4, key=sha256(key).digest()).hexdigest()


@lru_cache(maxsize=8)
def _secret(key: bytes) -> blake2b:
    return blake2b(digest_size=16, key=sha256(key).digest())


@lru_cache(maxsize=256)
def _keyed(salt: str) -> blake2b:
    """Return the hash that a salt begins; never to be updated itself, only its copies."""
    return blake2b(digest_size=8, key=salt.encode()[:_MAX_KEY_BYTES])
