"""What keeps a browser from being turned against a service: the names it may be asked under, and answers' headers.

A site whose name is pointed at a loopback address (DNS rebinding) would be the same site to a browser as the service
that listens there; the Host header gives it away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from schemas.settings import LOOPBACK_HOSTS

ANY = "*"
_SHOWN_CHARS = 60

#: Of every answer that does not set them itself.
SECURITY_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        # Of an answer that is no page: nothing in it is run, loaded or shown within another site's page.
        "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        # With "no-referrer" a browser would send the forms with the origin "null", which is refused as another site's.
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
)


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
        """Return one line for people that names the header's value and the remedy.

        ``setting``: which one allows further names.
        """
        return (
            f"Host: {(header or '')[:_SHOWN_CHARS]!r} is not served here: use 127.0.0.1, or add the name to {setting}"
        )


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Return whether a page of another site made the browser send a request.

    ``headers``: names in lower case, or looked up without regard to case.

    Examples
    --------
    >>> is_cross_site({"host": "127.0.0.1:80", "origin": "https://evil.example"}), is_cross_site({"host": "a"})
    (True, False)
    """
    origin, host = headers.get("origin"), headers.get("host", "")
    crossed = origin is not None and _authority(origin) != host
    return crossed or headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
