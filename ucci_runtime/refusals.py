"""Which requests over HTTP are served: under which names, from whose pages, with whose keys; and why one is refused.

A site whose name is pointed at a loopback address (DNS rebinding) would be the same site to a browser as the service
that listens there; the Host header gives it away. Keys are held as hashes and compared in constant time. Pure.
"""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from schemas.errors import UcciError, one_line
from schemas.settings_section import LOOPBACK_HOSTS, CallerKey

_MAX_FIELD_CHARS = 100


class RequestRefused(UcciError):
    """One request over HTTP is not served: answer with its status.

    ``code``: a short machine-readable word. ``message``: one line for people, naming the remedy. ``field``: dotted path
    of the faulty field, or the name of the faulty header. ``retry_after_s``: when trying again may help.
    """

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.field = None if field is None else one_line(field, _MAX_FIELD_CHARS)
        self.retry_after_s = retry_after_s
        super().__init__(one_line(message))


ANY = "*"
_SHOWN_CHARS = 60

#: Of every answer that does not set them itself.
SECURITY_HEADERS: Mapping[str, str] = {
    # Of an answer that is no page: nothing in it is run, loaded or shown within another site's page.
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With "no-referrer" a browser would send the forms with the origin "null", which is refused as another site's.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class RequestHosts:
    """The names under which a service may be asked for."""

    #: In lower case; None allows any.
    names: frozenset[str] | None

    @classmethod
    def of(cls, http_host: str, allowed: Collection[str]) -> RequestHosts:
        """Return what a listening address and the configured names amount to.

        On loopback the names of loopback are allowed, and those that are configured. Elsewhere any name is, for nobody
        knows by which others reach this machine, unless some are configured.

        Examples
        --------
        >>> RequestHosts.of("127.0.0.1", []).allows("localhost:8080"), RequestHosts.of("0.0.0.0", []).allows("x")
        (True, True)
        """
        if ANY in allowed or not (allowed or http_host in LOOPBACK_HOSTS):
            return cls(None)
        return cls(frozenset(name.lower() for name in allowed) | LOOPBACK_HOSTS)

    def allows(self, header: str | None) -> bool:
        """Return whether a request may come under this Host header; one without comes from no browser.

        Examples
        --------
        >>> hosts = RequestHosts(frozenset({"localhost", "::1"}))
        >>> [hosts.allows(header) for header in ("LOCALHOST.:80", "[::1]", "", "evil.example", "[", "a@localhost")]
        [True, True, True, False, False, False]
        """
        if self.names is None or not header:
            return True
        try:
            parts = urlsplit(f"//{header}")
            name = (parts.hostname or "").removesuffix(".")
        except ValueError:
            return False
        return parts.netloc == header and "@" not in header and name in self.names

    @staticmethod
    def refusal(header: str | None, setting: str) -> str:
        """Return one line for people that names the header's value and the setting that allows further names."""
        shown = (header or "")[:_SHOWN_CHARS]
        return f"Host: {shown!r} is not served here: use 127.0.0.1, or add the name to {setting}"


def require_same_site(headers: Mapping[str, str]) -> None:
    """Refuse what a page of another site made the browser send. Raises RequestRefused: 403.

    ``headers``: names in lower case, or looked up without regard to case.
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


def require_body_type(given: str, headers: Mapping[str, str], allowed: Sequence[str]) -> None:
    """Refuse a compressed body, and one of another media type, which a page may send without asking.

    ``given``: its type, in lower case. Raises RequestRefused: 415.
    """
    if given not in allowed:
        message = f"Content-Type: {given!r} is not taken here: send {allowed[0]}"
        raise RequestRefused(415, "media_type", message, "Content-Type")
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"", "identity"}:
        message = f"Content-Encoding: {coding[:_SHOWN_CHARS]!r} is not taken here: send the body as it is"
        raise RequestRefused(415, "content_encoding", message, "Content-Encoding")


_SECONDS_PER_MINUTE = 60.0


class KeyRing:
    """The configured keys, as hashes. ``hint``: what to say of an unknown key besides that it is one."""

    def __init__(self, keys: Mapping[str, CallerKey], hint: str = "") -> None:
        self._hashes = {name: _hash(key) for name, key in keys.items()}
        self._hint = hint

    def caller_of(self, headers: Mapping[str, str]) -> str:
        """Return whose key a request presents. Raises RequestRefused: 401 where it presents none, or nobody's."""
        presented = presented_key(headers)
        if presented is None:
            raise RequestRefused(401, "key_missing", "send a key: Authorization: Bearer KEY, or X-Api-Key: KEY")
        # `echo KEY | sha256sum`, by which hashes are often made, hashes a line break with the key.
        given = [sha256(presented + ending).hexdigest() for ending in (b"", b"\n")]
        # Every hash is compared, so that the time taken does not reveal which name was nearest.
        matches = [name for name, known in self._hashes.items() for one in given if hmac.compare_digest(known, one)]
        if not matches:
            raise RequestRefused(401, "key_unknown", f"this key is not known here{self._hint}")
        return matches[0]


class Quotas:
    """Token buckets, one a caller, for what is asked for: events or requests.

    A bucket holds a full minute's quota, so that many may come at once, and fills up evenly.

    Examples
    --------
    >>> quotas = Quotas({"ada": 60}, "events")
    >>> quotas.spend("ada", 60, now_s=0.0)
    >>> quotas.spend("ada", 1, now_s=0.5)
    Traceback (most recent call last):
    ucci_runtime.refusals.RequestRefused: over the quota of 60 events a minute; try again in 1 s
    >>> quotas.spend("ada", 1, now_s=1.5)
    """

    def __init__(self, per_minute: Mapping[str, int], what: str) -> None:
        self._per_minute = dict(per_minute)
        self._what = what
        self._left: dict[str, tuple[float, float]] = {}

    def spend(self, caller: str, amount: int, now_s: float) -> None:
        """Take from a caller's quota.

        ``amount``: more than one may go into debt: refused part by part, a large batch would never get through.
        ``now_s``: on a clock that never goes back. Raises RequestRefused, having taken nothing: 429, with the time to
        wait.
        """
        quota = self._per_minute.get(caller)
        if quota is None:
            return
        rate_per_s, capacity = quota / _SECONDS_PER_MINUTE, float(quota)
        left, since_s = self._left.get(caller, (capacity, now_s))
        left = min(capacity, left + (now_s - since_s) * rate_per_s)
        if left <= 0.0 or (left < 1.0 and amount == 1):
            wait_s = math.ceil(max((1.0 - left) / rate_per_s, 1.0))
            message = f"over the quota of {quota} {self._what} a minute; try again in {wait_s} s"
            raise RequestRefused(429, "over_quota", message, retry_after_s=wait_s)
        self._left[caller] = (left - amount, now_s)

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
