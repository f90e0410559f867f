"""API keys: whose key a request carries, and how often its caller may ask. Pure.

Keys are held as hashes and compared in constant time.
"""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Mapping
from hashlib import sha256

from schemas.settings import CallerKey

_SECONDS_PER_MINUTE = 60.0


class KeyRing:
    """The configured keys, as hashes."""

    def __init__(self, keys: Mapping[str, CallerKey]) -> None:
        self._hashes = {name: _hash(key) for name, key in keys.items()}

    def owner_of(self, presented: bytes) -> str | None:
        """Return the caller whose key this is; None where it is nobody's."""
        given = sha256(presented).hexdigest()
        # Every hash is compared, so that the time taken does not reveal which name was nearest.
        matches = [name for name, known in self._hashes.items() if hmac.compare_digest(known, given)]
        return matches[0] if matches else None


class Quotas:
    """Token buckets, one a caller.

    A bucket holds a full minute's quota, so that many may come at once, and fills up evenly.

    Examples
    --------
    >>> quotas = Quotas({"ada": 60})
    >>> quotas.spend("ada", 60, now_s=0.0), quotas.spend("ada", 1, now_s=0.5), quotas.spend("ada", 1, now_s=1.5)
    (0, 1, 0)
    """

    def __init__(self, per_minute: Mapping[str, int]) -> None:
        self._per_minute = dict(per_minute)
        self._left: dict[str, tuple[float, float]] = {}

    def spend(self, caller: str, amount: int, now_s: float) -> int:
        """Take from a caller's quota.

        ``amount``: more than one may go into debt: refused part by part, a large batch would never get through. Returns
        0, or how many seconds to wait: nothing was taken then.
        """
        quota = self._per_minute.get(caller)
        if quota is None:
            return 0
        rate_per_s, capacity = quota / _SECONDS_PER_MINUTE, float(quota)
        left, since_s = self._left.get(caller, (capacity, now_s))
        left = min(capacity, left + (now_s - since_s) * rate_per_s)
        if left <= 0.0 or (left < 1.0 and amount == 1):
            return math.ceil(max((1.0 - left) / rate_per_s, 1.0))
        self._left[caller] = (left - amount, now_s)
        return 0

    def owe(self, caller: str, amount: int, now_s: float) -> None:
        """Take from a caller's quota what was served already; never refuses, the next request may be."""
        if caller in self._per_minute:
            left, since_s = self._left.get(caller, (0.0, now_s))
            self._left[caller] = (left - amount, since_s)


def presented_key(headers: Mapping[str, str]) -> bytes | None:
    """Find a request's key: bearer, header of its own, or the password by which a browser asks for it.

    ``headers``: names in lower case, or looked up without regard to case; values are bytes that were read as Latin-1.
    """
    if (own := headers.get("x-api-key")) is not None:
        return own.encode("latin-1", "replace")
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and rest:
        return rest.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        try:
            _, _, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        except ValueError:
            return None
        return password
    return None


def is_added_by_browsers(headers: Mapping[str, str]) -> bool:
    """Return whether the key came as a password, which a browser adds also to what a foreign page submits."""
    return "x-api-key" not in headers and headers.get("authorization", "").partition(" ")[0].lower() == "basic"


def _hash(key: CallerKey) -> str:
    if key.key_sha256 is not None:
        return key.key_sha256
    assert key.key is not None
    return sha256(key.key.get_secret_value().encode()).hexdigest()
