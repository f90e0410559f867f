"""Reproducible draws: a query's id and a salt flow in, one uniform number flows out.

Exploration is drawn inside the label draw (the same number is compared with both probabilities), so that every
explored query is labelled as long as exploration is not more probable than a label.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import ceil

_TO_UNIT = 2.0**-53
_MAX_KEY_BYTES = 64


def uniform(query_id: str, salt: str) -> float:
    """Hash a query's id to a number that is uniform on [0, 1) with 53 bits.

    Parameters
    ----------
    query_id : str
    salt : str
        Keeps the draws of different workloads independent; its first 64 UTF-8 bytes count.

    Examples
    --------
    >>> 0.0 <= uniform("q-1", "photo-search") < 1.0
    True
    >>> uniform("q-1", "photo-search") == uniform("q-1", "photo-search")
    True
    """
    drawn = keyed(salt).copy()
    drawn.update(query_id.encode())
    return (int.from_bytes(drawn.digest(), "big") >> 11) * _TO_UNIT


@lru_cache(maxsize=256)
def keyed(salt: str) -> blake2b:
    """Return the hash that a salt begins; never to be updated itself, only its copies."""
    return blake2b(digest_size=8, key=salt.encode()[:_MAX_KEY_BYTES])


def digest_bound(probability: float) -> bytes:
    """Return what the digests of exactly those queries lie below whose uniform number lies below a probability.

    Examples
    --------
    >>> drawn = keyed("photo-search").copy()
    >>> drawn.update(b"q-1")
    >>> number = uniform("q-1", "photo-search")
    >>> drawn.digest() < digest_bound(number), drawn.digest() < digest_bound(number + 2.0**-53)
    (False, True)
    """
    bound = ceil(probability / _TO_UNIT) << 11
    return bound.to_bytes(8, "big") if bound < 2**64 else b"\xff" * 9
