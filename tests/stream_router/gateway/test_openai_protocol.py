"""Requests in OpenAI's protocol: what is read, what is ignored and named, and what is refused with a remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.routed import ModelRun, QueryEvent, RoutedEvent
from stream_router.gateway import openai_protocol
from stream_router.gateway.openai_protocol import Call, Endpoint, Workloads, read_call
from tests.support.answerers import ROUTED_AT, routed
from ucci_runtime.refusals import RequestRefused

ONE = Workloads(frozenset({"photo"}), "photo")
TWO = Workloads(frozenset({"photo", "reviews"}), None)


def read(
    document: Any, endpoint: Endpoint = "completions", workloads: Workloads = ONE, given_id: str | None = None
) -> Call:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_call(endpoint, body, workloads, given_id, "made-1")


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "photo", "prompt": "canon"} | more


def chat(content: Any, **more: Any) -> dict[str, Any]:
    return {"model": "photo", "messages": [{"role": "user", "content": content}]} | more


CHAT: dict[str, Any] = {"endpoint": "chat"}


def refusal(document: Any, endpoint: Endpoint = "completions", **how: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as raised:
        read(document, endpoint, **how)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("model", ["photo", "ucci:photo", "ucci", "", None])
def test_the_model_is_the_workload(model: str | None) -> None:
    assert read(asked(model=model)).workload == "photo"


def test_a_workload_may_be_called_like_the_default() -> None:
    """Its name wins over the word for the default workload."""
    both = Workloads(frozenset({"ucci", "photo"}), "photo")
    assert read(asked(model="ucci"), workloads=both).workload == "ucci"


@pytest.mark.parametrize(
    ("model", "status", "code"), [("gpt-4o", 404, "model_not_found"), ("ucci", 400, "missing_workload"), (7, 400, None)]
)
def test_an_unknown_workload_names_the_known_ones(model: Any, status: int, code: str | None) -> None:
    found = refusal(asked(model=model), workloads=TWO)
    assert (found.status, found.field) == (status, "model")
    assert code in (None, found.code)
    assert "photo, reviews" in str(found)


def test_the_last_message_of_the_user_is_the_query() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "nikon"},
        {"role": "assistant", "content": "{}"},
        {"role": "user", "content": [{"type": "text", "text": "canon"}, {"type": "text", "text": "5d"}]},
    ]
    call = read({"model": "photo", "messages": messages}, "chat")
    assert call.query.text == "canon\n5d"
    assert call.ignored == ("messages",)
    assert read(chat("canon"), "chat").ignored == ()


def test_a_prompt_in_a_list_of_one_is_the_query() -> None:
    assert read(asked(prompt=["canon"])).query.text == "canon"


def test_what_the_workload_decides_is_ignored_and_named() -> None:
    call = read(asked(temperature=0.7, max_tokens=5, user="ann", seed=None, stream=False, n=1, logprobs=None))
    assert call.ignored == ("max_tokens", "temperature", "user")
    for kind in ("text", "json_object"):
        assert read(asked(response_format={"type": kind})).ignored == (), "the shape that answers have"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", True),
        ("n", True),
        ("best_of", 3),
        ("logprobs", True),
        ("tool_choice", "required"),
        ("echo", True),
        ("suffix", "."),
        ("modalities", ["text", "audio"]),
    ],
)
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_what_would_change_the_answer_is_refused(name: str, value: Any, endpoint: Endpoint) -> None:
    """The line names the field, the value and what to send instead."""
    document = asked(**{name: value}) if endpoint == "completions" else chat("canon", **{name: value})
    found = refusal(document, endpoint)
    assert (found.status, found.code, found.field) == (400, "unsupported_parameter", name)
    assert str(found).startswith(f"{name}: ")
    assert repr(value)[:20] in str(found)


@pytest.mark.parametrize(
    ("metadata", "header", "expected"),
    [
        (None, None, "made-1"),
        ({"session": "s"}, None, "made-1"),
        ({"query_id": "m"}, None, "m"),
        (None, "h", "h"),
        ({"query_id": "h"}, "h", "h"),
        ({"query_id": "ключ"}, None, "ключ"),
    ],
)
def test_the_caller_may_name_the_query(metadata: Any, header: str | None, expected: str) -> None:
    call = read(asked(metadata=metadata), given_id=header)
    assert call.query.query_id == expected
    assert call.query.metadata == metadata, "handed through as it came"


@pytest.mark.parametrize(
    ("document", "how", "param"),
    [
        (asked(metadata={"query_id": "m"}), {"given_id": "h"}, "metadata.query_id"),
        (asked(metadata={"query_id": 7}), {}, "metadata.query_id"),
        (asked(metadata={"query_id": "x" * 513}), {}, "metadata.query_id"),
        (asked(), {"given_id": "x" * 513}, "X-Query-Id"),
        (asked(), {"given_id": "\xe9"}, "X-Query-Id"),
        (asked(metadata="m"), {}, "metadata"),
        (asked(metadata={"deep": "x" * 70_000}), {}, "metadata"),
        ({"model": "photo"}, {}, "prompt"),
        (asked(prompt=["a", "b"]), {}, "prompt"),
        (asked(prompt=""), {}, "prompt"),
        ({"model": "photo", "messages": []}, CHAT, "messages"),
        ({"model": "photo", "messages": [{"role": "system", "content": "x"}]}, CHAT, "messages"),
        ({"model": "photo", "messages": ["canon"]}, CHAT, "messages[0]"),
        (chat(""), CHAT, "messages[0].content"),
        (chat([{"type": "image_url", "image_url": {}}]), CHAT, "messages[0].content[0].type"),
    ],
)
def test_a_bad_field_is_named_where_it_stands(document: Any, how: dict[str, Any], param: str) -> None:
    found = refusal(document, **how)
    assert (found.status, found.field) == (400, param)
    assert str(found).startswith(param)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"\xff",
        b'{"model": "photo", "prompt": "\\ud800"}',
        b'{"model": "photo", "prompt": "a", "prompt": "b"}',
        b'{"model": "photo", "prompt": "a", "metadata": {"x": NaN}}',
        b'{"prompt": "a", "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    assert refusal(body).status == 400


def escalated() -> RoutedEvent:
    one = routed(QueryEvent(query_id="q-1", text="canon"), "photo")
    entities = {"camera": "Canon", "lens": None}
    small = ModelRun(model="small", valid=False, error="cut", prompt_tokens=10, completion_tokens=4)
    large = ModelRun(model="large", entities=entities, valid=True, prompt_tokens=11, completion_tokens=6)
    decision = one.decision.model_copy(update={"escalated": True, "reason": "small_failed", "calibration_version": 7})
    changed = {"small": small, "large": large, "answered_by": "large", "decision": decision, "entities": entities}
    return one.model_copy(update=changed)


@pytest.mark.parametrize(("endpoint", "kind"), [("completions", "text_completion"), ("chat", "chat.completion")])
def test_a_completion_holds_the_entities_as_its_text(endpoint: Endpoint, kind: str) -> None:
    found = openai_protocol.completion(endpoint, escalated(), ["temperature"])
    (choice,) = found["choices"]
    assert set(found) == {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "ucci"}
    assert set(choice) == {"index", "finish_reason", "logprobs", "message" if endpoint == "chat" else "text"}
    text = choice["message"]["content"] if endpoint == "chat" else choice["text"]
    assert json.loads(text) == found["ucci"]["entities"] == {"camera": "Canon", "lens": None}
    assert (found["id"], found["object"], found["model"]) == ("q-1", kind, "photo")
    assert found["created"] == int(ROUTED_AT.timestamp())
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    assert found["usage"] == {"prompt_tokens": 21, "completion_tokens": 10, "total_tokens": 31}, "of both models"
    decision = found["ucci"]
    assert (decision["answered_by"], decision["escalated"], decision["reason"]) == ("large", True, "small_failed")
    assert (decision["calibration_version"], found["system_fingerprint"]) == (7, "ucci-photo-v7")
    assert decision["ignored"] == ["temperature"]
