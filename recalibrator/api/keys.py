"""API keys: who may do what, as which labeler, and how often.

Keys are held as hashes and compared in constant time. Without keys the service listens on loopback only, and a
request that a page of another site makes in the operator's own browser is refused; names that other sites have pointed
at this address are refused before (:class:`~ucci_runtime.browser_safety.RequestHosts`).
"""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Mapping
from hashlib import sha256
from typing import Literal
from urllib.parse import urlsplit

from recalibrator.errors import RequestRefused
from schemas.settings import ApiKey

Scope = Literal["read", "feedback", "relay", "admin"]

LOCAL_CALLER = "local"
_GRANTED_BY: Mapping[Scope, frozenset[Scope]] = {
    "read": frozenset({"read"}),
    "feedback": frozenset({"feedback", "relay"}),
    "relay": frozenset({"relay"}),
    "admin": frozenset({"admin"}),
}
"""Which scopes of a key give the right to what a route asks for."""

_SHOWN_CHARS = 60
_SHOWN_LABELERS = 5
_FORBIDDEN, _UNPROCESSABLE = 403, 422
_SECONDS_PER_MINUTE = 60.0


class Keys:
    """The configured keys.

    Parameters
    ----------
    keys : mapping of caller name to ApiKey
        Empty: everyone who reaches the loopback address may do everything.
    """

    def __init__(self, keys: Mapping[str, ApiKey]) -> None:
        self._keys = dict(keys)
        self._hashes = {name: _hash(key) for name, key in keys.items()}
        self._spent: dict[str, tuple[float, float]] = {}

    def authorise(self, headers: Mapping[str, str], scope: Scope, *, only_reads: bool = False) -> str:
        """Return the caller's name.

        Parameters
        ----------
        headers : mapping
            Names in lower case.
        scope : str
        only_reads : bool
            Whether the request changes nothing, as a GET does.

        Raises
        ------
        RequestRefused
            401 without a valid key, 403 with one that lacks the scope, or from another site.
        """
        if not self._keys:
            require_same_site(headers)
            return LOCAL_CALLER
        presented = _presented(headers)
        if presented is None:
            raise RequestRefused(401, "key_missing", "send a key: Authorization: Bearer KEY, or X-Api-Key: KEY")
        given = sha256(presented).hexdigest()
        # Every hash is compared, so that the time taken does not reveal which name was nearest.
        matches = [name for name, known in self._hashes.items() if hmac.compare_digest(known, given)]
        if not matches:
            raise RequestRefused(401, "key_unknown", "this key is not known here")
        if self._keys[matches[0]].scopes.isdisjoint(_GRANTED_BY[scope]):
            raise RequestRefused(
                403, "scope_missing", f"this key lacks the scope {scope}: add it to recalibrator.api_keys"
            )
        if not only_reads and _is_added_by_browsers(headers):
            require_same_site(headers)
        return matches[0]

    def grants(self, caller: str, scope: Scope) -> bool:
        """Return whether a caller, as :meth:`authorise` returned it, has a right."""
        key = self._keys.get(caller)
        return key is None or not key.scopes.isdisjoint(_GRANTED_BY[scope])

    def speaks_for(self, caller: str) -> tuple[str, ...]:
        """Return the labelers among whom a caller chooses; empty where it may name any."""
        key = self._keys.get(caller)
        return () if key is None or "relay" in key.scopes else key.labelers or (caller,)

    def labeler(self, caller: str, named: str | None) -> str | None:
        """Return whose feedback it is that a caller gives.

        Parameters
        ----------
        caller : str
            As :meth:`authorise` returned it.
        named : str or None
            The labeler that the feedback names, if any.

        Returns
        -------
        str or None
            None only without keys, where feedback without a labeler stays without one.

        Raises
        ------
        RequestRefused
            403 for a labeler that the key is not bound to, 422 where none is named and several are possible.
        """
        key = self._keys.get(caller)
        if key is None:
            return named
        bound = key.labelers or (caller,)
        place = f"recalibrator.api_keys.{caller}"
        if named is None:
            if len(bound) > 1:
                message = f"labeler: is required with this key: name one of {_listed(bound)}"
                raise RequestRefused(_UNPROCESSABLE, "labeler_missing", message, "labeler")
            return bound[0]
        if named not in bound and "relay" not in key.scopes:
            message = (
                f"labeler: {named[:_SHOWN_CHARS]!r} is not bound to this key, which speaks as {_listed(bound)}: name "
                f"one of these, or add the labeler to {place}.labelers, or the scope relay to {place}.scopes"
            )
            raise RequestRefused(_FORBIDDEN, "labeler_not_bound", message, "labeler")
        return named

    def spend(self, caller: str, amount: int, now_s: float) -> None:
        """Take from a caller's quota: a token bucket.

        The bucket holds a full minute's quota, so that many events may come at once, and fills up evenly.

        Parameters
        ----------
        amount : int
            Events.
        now_s : float
            On a clock that never goes back.

        Raises
        ------
        RequestRefused
            429, with the time to wait.
        """
        key = self._keys.get(caller)
        if key is None:
            return
        rate_per_s = key.quota_per_minute / _SECONDS_PER_MINUTE
        capacity = float(key.quota_per_minute)
        left, since_s = self._spent.get(caller, (capacity, now_s))
        left = min(capacity, left + (now_s - since_s) * rate_per_s)
        # Whole batches may go into debt: refusing line by line would never let a large one through.
        if left <= 0.0 or (left < 1.0 and amount == 1):
            wait_s = math.ceil(max((1.0 - left) / rate_per_s, 1.0))
            message = f"over the quota of {key.quota_per_minute} events a minute; try again in {wait_s} s"
            raise RequestRefused(429, "over_quota", message, retry_after_s=wait_s)
        self._spent[caller] = (left - amount, now_s)

    def owe(self, caller: str, amount: int, now_s: float) -> None:
        """Take from a caller's quota what was served already; never refuses, the next request may be."""
        if caller in self._keys:
            left, since_s = self._spent.get(caller, (0.0, now_s))
            self._spent[caller] = (left - amount, since_s)


def _listed(labelers: tuple[str, ...]) -> str:
    shown = ", ".join(repr(name[:_SHOWN_CHARS]) for name in labelers[:_SHOWN_LABELERS])
    more = len(labelers) - _SHOWN_LABELERS
    return f"{shown} and {more} more" if more > 0 else shown


def _hash(key: ApiKey) -> str:
    if key.key_sha256 is not None:
        return key.key_sha256
    assert key.key is not None
    return sha256(key.key.get_secret_value().encode()).hexdigest()


def _presented(headers: Mapping[str, str]) -> bytes | None:
    """Find the key: bearer, header of its own, or the password by which a browser asks for it.

    Header values are bytes that were read as Latin-1.
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


def _is_added_by_browsers(headers: Mapping[str, str]) -> bool:
    """Return whether the key came as a password, which a browser adds also to what a foreign page submits."""
    return "x-api-key" not in headers and headers.get("authorization", "").partition(" ")[0].lower() == "basic"


def require_same_site(headers: Mapping[str, str]) -> None:
    """Refuse what a page of another site made the browser send.

    Raises
    ------
    RequestRefused
        403.
    """
    origin, host = headers.get("origin"), headers.get("host", "")
    crossed = origin is not None and _authority(origin) != host
    if crossed or headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise RequestRefused(403, "cross_site", "requests from pages of other sites are refused")


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
