"""API keys: who may do what, as which labeler, and how often.

Without keys the service listens on loopback only, and a request that a page of another site makes in the operator's own
browser is refused; names that other sites have pointed at this address are refused before
(:class:`~ucci_runtime.refusals.RequestHosts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from schemas.settings_section import ApiKey
from ucci_runtime.refusals import KeyRing, Quotas, RequestRefused, is_added_by_browsers, require_same_site

Scope = Literal["read", "feedback", "relay", "admin"]

_SHOWN_CHARS = 60
_SHOWN_LABELERS = 5


class Keys:
    """The configured keys; without any, everyone who reaches the loopback address may do everything."""

    def __init__(self, keys: Mapping[str, ApiKey]) -> None:
        self._keys = dict(keys)
        self._ring = KeyRing(keys)
        self.quotas = Quotas({name: key.quota_per_minute for name, key in keys.items()}, "events")

    def authorise(self, headers: Mapping[str, str], scope: Scope, *, only_reads: bool = False) -> str:
        """Return the caller's name.

        ``headers``: names in lower case. ``only_reads``: whether the request changes nothing, as a GET does. Raises
        RequestRefused: 401 without a valid key, 403 with one that lacks the scope, or from another site.
        """
        if not self._keys:
            require_same_site(headers)
            return "local"
        owner = self._ring.caller_of(headers)
        if not self.grants(owner, scope):
            message = f"this key lacks the scope {scope}: add it to recalibrator.api_keys"
            raise RequestRefused(403, "scope_missing", message)
        if not only_reads and is_added_by_browsers(headers):
            require_same_site(headers)
        return owner

    def grants(self, caller: str, scope: Scope) -> bool:
        """Return whether a caller, as :meth:`authorise` returned it, has a right; who may relay may give feedback."""
        key = self._keys.get(caller)
        return key is None or scope in key.scopes or (scope == "feedback" and "relay" in key.scopes)

    def speaks_for(self, caller: str) -> tuple[str, ...]:
        """Return the labelers among whom a caller chooses; empty where it may name any."""
        key = self._keys.get(caller)
        return () if key is None or "relay" in key.scopes else key.labelers or (caller,)

    def labeler(self, caller: str, named: str | None) -> str | None:
        """Return whose feedback it is that a caller gives.

        ``named``: the labeler that the feedback names, if any. None only without keys, where feedback without a labeler
        stays without one. Raises RequestRefused: 403 for a labeler that the key is not bound to, 422 where none is
        named and several are possible.
        """
        key = self._keys.get(caller)
        if key is None:
            return named
        bound, place = key.labelers or (caller,), f"recalibrator.api_keys.{caller}"
        if named is None and len(bound) > 1:
            message = f"labeler: is required with this key: name one of {_listed(bound)}"
            raise RequestRefused(422, "labeler_missing", message, "labeler")
        if named is not None and named not in bound and "relay" not in key.scopes:
            message = (
                f"labeler: {named[:_SHOWN_CHARS]!r} is not bound to this key, which speaks as {_listed(bound)}: name "
                f"one of these, or add the labeler to {place}.labelers, or the scope relay to {place}.scopes"
            )
            raise RequestRefused(403, "labeler_not_bound", message, "labeler")
        return bound[0] if named is None else named


def _listed(labelers: tuple[str, ...]) -> str:
    shown = ", ".join(repr(name[:_SHOWN_CHARS]) for name in labelers[:_SHOWN_LABELERS])
    more = len(labelers) - _SHOWN_LABELERS
    return f"{shown} and {more} more" if more > 0 else shown
