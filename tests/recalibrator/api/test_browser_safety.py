"""What a browser is told and refused, so that no other site's page can use it against the API."""

from __future__ import annotations

import re
from typing import Any

import pytest
from structlog.testing import capture_logs

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
    """Those are in the log alone."""
    api = make_api()

    def fail(*_: object) -> bytes:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr("recalibrator.api.read_model.status_documents.StatusDocuments.all_json", fail)
    with capture_logs() as logged:
        answer = api.client.get("/v1/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert logged
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


@pytest.mark.parametrize(
    ("http_host", "allowed", "asked", "served"),
    [
        ("::1", ["other.example"], "api.example:8080", False),
        ("localhost", ["Api.example"], "api.example:8080", True),
        ("127.0.0.1", ["*"], "api.example:8080", True),
        ("0.0.0.0", [], "api.example:8080", True),
        ("10.0.0.1", ["other.example"], "api.example:8080", False),
        *(("127.0.0.1", [], host, True) for host in ("127.0.0.1:8080", "localhost", "LocalHost.:1", "[::1]:8080")),
        *(
            ("127.0.0.1", [], host, False)
            for host in ("[", "127.0.0.1@evil.example", "evil.example/127.0.0.1", "a:b:c")
        ),
    ],
)
def test_an_open_address_is_served_under_any_name(http_host: str, allowed: list[str], asked: str, served: bool) -> None:
    """Unless names are given: nobody here knows by which one a proxy or a load balancer asks."""
    assert RequestHosts.of(http_host, allowed).allows(asked) is served
