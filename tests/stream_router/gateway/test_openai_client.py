"""Requests as OpenAI's Python client 3.54.0 sends them, byte by byte, and what it needs of a refusal."""

from __future__ import annotations

from hashlib import sha256

import pytest

from tests.support.gateways import cluster, gateway, gateway_settings

KEY = "a-key-of-some-length"
KEYS = {"shop": {"key_sha256": sha256(KEY.encode()).hexdigest(), "quota_per_minute": 100}}
HEADERS = {
    "Accept_Encoding": "gzip, deflate",
    "authorization": f"Bearer {KEY}",
    "accept": "application/json",
    "user_agent": "OpenAI/Python 3.54.0",
    "x_stainless_lang": "python",
    "x_stainless_package_version": "3.54.0",
    "x_stainless_os": "Linux",
    "x_stainless_arch": "x64",
    "x_stainless_runtime": "CPython",
    "x_stainless_runtime_version": "3.11.7",
    "x_stainless_async": "false",
    "x_stainless_retry_count": "0",
    "x_stainless_read_timeout": "600",
}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
QUERY = b'{"model":"photo","messages":[{"role":"user","content":"canon 5d"}]'
STREAMED = b'{"model":"photo","stream":true,"messages":[{"role":"user","content":"canon 5d"}]}'
PARSED = (
    b'{"model":"photo","stream":false,"messages":[{"role":"user","content":"canon 5d"}],"response_format":'
    b'{"type":"json_schema","json_schema":{"schema":{"properties":{"camera":{"anyOf":[{"type":"string"},'
    b'{"type":"null"}],"title":"Camera"}},"title":"P","type":"object","additionalProperties":false,'
    b'"required":["camera"]},"name":"P","strict":true}}}'
)
TOOLS = b',"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]}'


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        (CHAT, STREAMED, 400, "unsupported_parameter", "stream"),
        (TEXT, b'{"model":"photo","prompt":"canon 5d","logprobs":2}', 400, "unsupported_parameter", "logprobs"),
        (CHAT, PARSED, 400, "unsupported_parameter", "response_format.type"),
        (CHAT, QUERY + TOOLS, 400, "unsupported_parameter", "tools"),
        (CHAT, QUERY.replace(b"photo", b"gpt-4o") + b"}", 404, "model_not_found", "model"),
    ],
)
async def test_the_client_raises_what_was_refused(
    path: str, body: bytes, status: int, code: str, param: str | None
) -> None:
    """It makes its exception of the status, and takes message, code and param from the body; none asks it to repeat."""
    topics = cluster()
    async with gateway(gateway_settings(gateway={"api_keys": KEYS}), topics) as running:
        found = await running.post(path, body, **HEADERS)
        counted = running.metric("ucci_router_gateway_requests_total", workload="", status=str(status))
    error = found.json["error"]
    assert (found.status, found.code, error["param"]) == (status, code, param)
    assert (error["type"], counted) == ("invalid_request_error", path.startswith("/v1"))
    assert "\n" not in error["message"]
    assert not topics.records("ucci.results")
    assert not topics.records("ucci.dead-letters"), "its caller is there to be answered"
    assert not {"Retry-After", "X-Should-Retry"} & set(found.headers)
