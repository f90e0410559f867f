"""The running application against its own OpenAPI document: every answer is one that the document describes."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import CHECKS, load_all_checks

from tests.support.api import KEY, START, WORKLOAD, Api, make_api, plain_router, plain_status
from tests.support.versions import sealed_version

AUTHORISED = {"Authorization": f"Bearer {KEY}"}
EXAMPLES = 40

load_all_checks()


@schemathesis.serializer("application/jsonl", "application/x-ndjson", "application/x-jsonlines")
def _as_text(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


_CONFORMS = [f"{what}_conformance" for what in ("status_code", "content_type", "response_headers", "response_schema")]
CHECKED: list[Any] = CHECKS.get_by_names([*_CONFORMS, "not_a_server_error", "unsupported_method", "ignored_auth"])


def _api(**options: Any) -> Api:
    """Return an application that has a version, a status and a router to show, and asks for a key."""
    key = {"key": KEY, "scopes": ["read", "relay", "admin"], "quota_per_minute": 10**9}
    # The name under which the generated requests come.
    api = make_api(api_keys={"tester": key}, allowed_hosts=["testserver"], **options)
    version = sealed_version(workload=WORKLOAD, version=1, created_at=START)
    api.tell(plain_status(calibration_version=1), version, plain_router(version=1))
    return api


def _document(api: Api) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", api.client.app)


# A stream of events ends with the service alone.
ANSWERING = _document(_api()).exclude(path="/v1/stream")


@ANSWERING.parametrize()  # type: ignore[untyped-decorator]  # schemathesis leaves it untyped
@settings(max_examples=EXAMPLES)
def test_every_answer_is_documented(case: schemathesis.Case[Any]) -> None:
    case.call_and_validate(headers=AUTHORISED, checks=CHECKED)


@pytest.mark.parametrize("has_keys", [False, True])
def test_the_document_asks_for_keys_only_where_the_service_does(has_keys: bool) -> None:
    document = (_api() if has_keys else make_api()).client.get("/openapi.json").json()

    assert ("securitySchemes" in document["components"]) is has_keys
    assert ("security" in document["paths"]["/v1/status"]["get"]) is has_keys
    assert "security" not in document["paths"]["/healthz"]["get"]
