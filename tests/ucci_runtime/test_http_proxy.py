"""Which servers are asked through the proxy that the environment names, and which never are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ucci_runtime.http_proxy import ProxyUse, proxy_use

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def _no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *map(str.upper, NAMES), "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("HTTPS_PROXY", "https://api.example/v1"),
        ("https_proxy", "https://api.example/v1"),
        ("HTTP_PROXY", "http://models:8000/v1"),
        ("ALL_PROXY", "https://api.example/v1"),
        ("HTTP_PROXY", "http://10.0.0.1:8000/v1"),
    ],
)
def test_a_server_is_asked_through_its_proxy(variable: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_use(url) == ProxyUse()
    monkeypatch.setenv(variable, PROXY)
    assert proxy_use(url).proxy == PROXY
    other = url.replace("https:", "http:") if url.startswith("https:") else url.replace("http:", "https:")
    assert (proxy_use(other).proxy is None) is (variable != "ALL_PROXY")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.0.1", "localhost", "LOCALHOST", "a.localhost", "[::1]", "0.0.0.0"]
)
def test_loopback_is_never_asked_through_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", PROXY)
    assert proxy_use(f"http://{host}:8000/v1").options == {}


@pytest.mark.parametrize(
    ("no_proxy", "excluded"),
    [
        ("*", True),
        ("models.svc", True),
        (".svc", True),
        ("other, svc", True),
        ("models.svc:8000", True),
        ("models.svc:8001", False),
        ("odels.svc", False),
        ("10.0.0.0/8", False),
        ("", False),
    ],
)
def test_no_proxy_names_hosts_as_elsewhere(no_proxy: str, excluded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (proxy_use("http://models.svc:8000/v1").proxy is None) is excluded


@pytest.mark.parametrize("no_proxy", ["10.0.0.0/8", "x,10.1.2.3", "10.1.2.3/32", "nonsense/99, 10.1.0.0/16"])
def test_no_proxy_names_networks(no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert proxy_use("http://10.1.2.3:8000/v1").proxy is None
    assert proxy_use("http://11.1.2.3:8000/v1").proxy == PROXY


def test_a_password_goes_to_the_proxy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://ada:p%40ss@proxy.example:3128")
    header = {"Proxy-Authorization": "Basic YWRhOnBAc3M="}
    assert proxy_use("http://a/v1") == ProxyUse(PROXY, headers=header)
    # A server of https would read what goes through the tunnel.
    assert proxy_use("https://a/v1") == ProxyUse(PROXY, tunnel_headers=header)


@pytest.mark.parametrize("named", ["socks5://proxy:1080", "http://", "://"])
def test_a_proxy_of_another_kind_is_not_used(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", named)
    assert proxy_use("https://a/v1") == ProxyUse()


def test_a_proxy_needs_no_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    assert proxy_use("https://a/v1").proxy == PROXY


@given(named=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), no=st.text("abc.:*/,1 "))
def test_an_odd_variable_ends_nothing(named: str, no: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ALL_PROXY", named)
        patched.setenv("NO_PROXY", no)
        assert proxy_use("http://127.0.0.1:1/v1") == ProxyUse()
        proxy_use("https://abc:1/v1")
