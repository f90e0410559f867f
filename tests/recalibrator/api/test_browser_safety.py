"""What a browser is told and refused, so that no other site's page can use it against the API."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.settings import RecalibratorSettings
from tests.support.api import KEY, WORKLOAD, Api, make_api
from ucci_runtime.refusals import RequestHosts

KEYS = {"ada": {"key": KEY, "scopes": ["read", "feedback", "admin"]}}
BEARER = {"Authorization": f"Bearer {KEY}"}


def answers(api: Api) -> list[Any]:
    """Return an answer of each kind: pages, files, JSON, errors, and what no route knows."""
    known = ("/", f"/confirm?workload={WORKLOAD}&action=pause", "/page.css", "/v1/status", "/metrics")
    faulty = [api.client.delete("/v1/status"), api.client.post("/v1/feedback", content=b"{")]
    return [*map(api.client.get, (*known, "/v1/status/nothing", "/nowhere")), *faulty]


def test_every_answer_carries_the_headers_browsers_go_by() -> None:
    wanted = {"x-content-type-options": "nosniff", "referrer-policy": "same-origin", "x-frame-options": "DENY"}
    wanted |= {"cross-origin-resource-policy": "same-origin"}
    for answer in answers(make_api()):
        policy = answer.headers["Content-Security-Policy"]
        assert wanted.items() <= dict(answer.headers).items(), answer.url
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'none'" in policy
        assert "script-src 'unsafe" not in policy


def test_a_fault_of_the_service_shows_nothing_of_its_insides(monkeypatch: pytest.MonkeyPatch) -> None:
    api = make_api()

    def fail(*_: object) -> bytes:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr("recalibrator.api.read_model.status_documents.StatusDocuments.all_json", fail)
    answer = api.client.get("/v1/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert not re.search("secret|Traceback", answer.text)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("keys", [{}, KEYS])
def test_dns_rebinding_is_refused_on_loopback(keys: dict[str, Any]) -> None:
    """With keys too: a browser may hold the operator's as the password of 127.0.0.1."""
    api = make_api(api_keys=keys)
    for path in ("/", "/metrics", "/healthz", "/v1/status", "/page.css", "/nowhere"):
        answer = api.client.get(path, headers={"Host": "rebound.example:8080", **BEARER})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["field"]) == (403, "foreign_host", "Host"), path
        assert "recalibrator.allowed_hosts" in error["message"]


def test_names_of_loopback_and_configured_ones_are_served() -> None:
    api = make_api(api_keys=KEYS, allowed_hosts=["Desk.example"])
    for host in ("127.0.0.1:8080", "localhost", "LocalHost.:1", "[::1]:8080", "desk.example:443"):
        assert api.client.get("/v1/status", headers={"Host": host, **BEARER}).status_code == 200, host


@pytest.mark.parametrize(
    ("http_host", "allowed", "served"),
    [
        ("127.0.0.1", [], False),
        ("::1", ["other.example"], False),
        ("localhost", ["api.example"], True),
        ("127.0.0.1", ["*"], True),
        ("0.0.0.0", [], True),
        ("10.0.0.1", ["other.example"], False),
        ("10.0.0.1", ["api.example"], True),
    ],
)
def test_an_open_address_is_served_under_any_name(http_host: str, allowed: list[str], served: bool) -> None:
    """Unless names are given: nobody here knows by which one a proxy or a load balancer asks."""
    assert RequestHosts.of(http_host, allowed).allows("api.example:8080") is served


def test_a_host_header_that_is_no_host_is_refused() -> None:
    for header in ("[", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "localhost evil", "a:b:c"):
        assert not RequestHosts.of("127.0.0.1", []).allows(header), header


@pytest.mark.parametrize(
    ("allowed", "message"),
    [(["*"], "name the hosts, or add a key"), (["http://a"], "allowed_hosts"), ([""], "allowed")],
)
def test_settings_refuse_names_that_open_the_api(allowed: list[str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RecalibratorSettings(allowed_hosts=tuple(allowed))
