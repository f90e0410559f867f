"""The proxy that the environment names for a server: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY``.

As other HTTP clients do, and in one respect more strictly: what is on this machine is never asked through a proxy. A
proxy is looked up when a client is made, not for each call.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # not in typeshed

import structlog

_log = structlog.get_logger()

_PORTS = {"http": 80, "https": 443}
_HEADER = "Proxy-Authorization"


@dataclass(frozen=True, slots=True)
class ProxyUse:
    """How a server is asked: through which proxy, with which headers for the proxy."""

    #: Without user and password; None: directly.
    proxy: str | None = None
    #: Of each request, which the proxy reads as well.
    headers: dict[str, str] = field(default_factory=dict)
    #: Of the request that opens a tunnel to a server of https.
    tunnel_headers: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """Return what a request of aiohttp is given beside its own headers."""
        if self.proxy is None:
            return {}
        return {"proxy": self.proxy, "proxy_headers": self.tunnel_headers or None}


def proxy_use(url: str) -> ProxyUse:
    """Return how a server is asked, as the environment is now."""
    parts = urlsplit(url)
    host, proxies = parts.hostname or "", getproxies_environment()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or _is_here(host) or _is_excluded(host, parts.port or _PORTS.get(parts.scheme, 0), proxies):
        return ProxyUse()
    if (found := _address(named)) is None:
        # What it holds may be a password.
        _log.warning("proxy not used: only addresses like http://proxy:3128 are", server=host)
        return ProxyUse()
    proxy = f"{found.scheme}://{found.netloc.rpartition('@')[2]}"
    if found.username is None:
        return ProxyUse(proxy)
    pair = f"{unquote(found.username)}:{unquote(found.password or '')}".encode()
    header = {_HEADER: f"Basic {b64encode(pair).decode()}"}
    return ProxyUse(proxy, tunnel_headers=header) if parts.scheme == "https" else ProxyUse(proxy, headers=header)


def _address(named: str) -> SplitResult | None:
    """Return a proxy's address; without a scheme it is one of http, and other schemes are none that could be asked."""
    try:
        found = urlsplit(named if "://" in named else f"http://{named}")
        is_known = found.scheme in _PORTS and bool(found.hostname) and found.port != 0
    except ValueError:
        return None
    return found if is_known else None


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _is_excluded(host: str, port: int, proxies: dict[str, str]) -> bool:
    """Whether ``NO_PROXY`` names a host: by its name or the end of it, with a port or without, or by a network."""
    if proxy_bypass_environment(f"{host}:{port}", proxies):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(_holds(network.strip(), address) for network in proxies.get("no", "").split(","))


def _holds(network: str, address: object) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False
