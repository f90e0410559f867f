"""Who may do what: keys, scopes, quotas, and requests that a page of another site makes."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest

from tests.support.api import Api, make_api

READER, WRITER = "reader-key-012345", "writer-key-012345"
READ, MACHINE = {"Authorization": f"Bearer {READER}"}, {"X-Api-Key": WRITER}
EVENT = json.dumps({"query_id": "q", "entities": {}}).encode()


@pytest.fixture
def api() -> Api:
    writer = {"key_sha256": sha256(WRITER.encode()).hexdigest(), "scopes": ["feedback"], "quota_per_minute": 60}
    return make_api(api_keys={"reader": {"key": READER, "scopes": ["read"]}, "writer": writer})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": b"Basic \xe9"}, 401),
        ({"X-Api-Key": b"\xff\x80"}, 401),
        ({"Authorization": f"Bearer {WRITER}"}, 403),
        (READ, 200),
        ({"X-Api-Key": READER}, 200),
        ({"Authorization": "Basic " + base64.b64encode(f"anybody:{READER}".encode()).decode()}, 200),
    ],
)
def test_reading_needs_the_scope_read(api: Api, headers: dict[str, Any], status: int) -> None:
    """Probes are open to all."""
    for path in ("/", "/v1/status", "/v1/label-requests/photo-search"):
        assert api.client.get(path, headers=headers).status_code == status
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert api.client.get(path, headers=headers).status_code == 200, path


def _write(api: Api, headers: dict[str, str] = MACHINE) -> Any:
    return api.client.post("/v1/feedback", content=EVENT, headers={"content-type": "application/json", **headers})


def test_a_spent_quota_is_429_with_the_time_to_wait() -> None:
    """A quota of six lets six through at once, and fills up evenly."""
    api = make_api(api_keys={"writer": {"key": WRITER, "scopes": ["feedback"], "quota_per_minute": 6}})

    assert [_write(api).status_code for _ in range(7)] == [202] * 6 + [429]
    api.clock.advance(int(_write(api).headers["retry-after"]))
    assert [_write(api).status_code for _ in range(2)] == [202, 429]


FOREIGN = [{"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
#: Of other sites' sandboxed pages, where ours sends its own, by its policy "same-origin"; and of none.
FOREIGN += [{"Origin": "null"}, {"Origin": "http://["}]
BASIC = {"Authorization": "Basic " + base64.b64encode(f"operator:{WRITER}".encode()).decode()}


@pytest.mark.parametrize("keys", [{}, {"operator": {"key": WRITER, "scopes": ["read", "feedback", "admin"]}}])
@pytest.mark.parametrize("site", FOREIGN)
def test_cross_site_post_with_stored_basic_credentials(site: dict[str, str], keys: dict[str, Any]) -> None:
    """A browser adds the operator's stored password to a form that a page of another site submits."""
    api = make_api(api_keys=keys)
    for path in ("/v1/feedback", "/v1/feedback:batch", "/v1/calibrations/photo-search:pause"):
        answer = api.client.post(path, content=EVENT, headers={"content-type": "text/plain", **BASIC, **site})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site"), path
    assert api.producer.records == []


@pytest.mark.parametrize(
    "headers",
    [
        BASIC,
        BASIC | {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"},
        MACHINE | FOREIGN[0],
        {"Authorization": f"Bearer {WRITER}"} | FOREIGN[1],
    ],
)
def test_credentials_that_no_browser_adds_by_itself_are_taken(api: Api, headers: dict[str, str]) -> None:
    """curl sends no Origin, the page's own requests come from its own, and a script must know a bearer key."""
    assert _write(api, headers).status_code == 202
