"""Answers have the shape that OpenAI's clients read, and say by which decision they came."""

from __future__ import annotations

import json

import pytest

from schemas.query import QueryEvent
from schemas.routed import ModelRun, RoutedEvent
from stream_router.gateway import openai_protocol
from stream_router.gateway.openai_protocol import Endpoint
from tests.support.answerers import ROUTED_AT, routed


def escalated() -> RoutedEvent:
    one = routed(QueryEvent(query_id="q-1", text="canon"), "photo")
    small = ModelRun(model="small", valid=False, error="cut", prompt_tokens=10, completion_tokens=4)
    large = ModelRun(model="large", entities={"camera": "Canon"}, valid=True, prompt_tokens=11, completion_tokens=6)
    decision = one.decision.model_copy(update={"escalated": True, "reason": "small_failed", "calibration_version": 7})
    found = one.model_copy(update={"small": small, "large": large, "answered_by": "large", "decision": decision})
    return found.model_copy(update={"entities": {"camera": "Canon", "lens": None}})


@pytest.mark.parametrize(("endpoint", "kind"), [("completions", "text_completion"), ("chat", "chat.completion")])
def test_a_completion_holds_the_entities_as_its_text(endpoint: Endpoint, kind: str) -> None:
    found = json.loads(openai_protocol.completion(endpoint, escalated(), ["temperature"]))
    (choice,) = found["choices"]
    text = choice["message"]["content"] if endpoint == "chat" else choice["text"]
    assert json.loads(text) == found["ucci"]["entities"] == {"camera": "Canon", "lens": None}
    assert (found["id"], found["object"], found["model"]) == ("q-1", kind, "photo")
    assert found["created"] == int(ROUTED_AT.timestamp())
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    assert found["ucci"]["ignored"] == ["temperature"]


def test_usage_counts_what_both_models_read_and_wrote() -> None:
    found = json.loads(openai_protocol.completion("chat", escalated(), ()))
    assert found["usage"] == {"prompt_tokens": 21, "completion_tokens": 10, "total_tokens": 31}


def test_the_decision_stands_beside_the_answer() -> None:
    found = json.loads(openai_protocol.completion("chat", escalated(), ()))
    decision = found["ucci"]
    assert (decision["answered_by"], decision["escalated"], decision["reason"]) == ("large", True, "small_failed")
    assert decision["calibration_version"] == 7
    assert found["system_fingerprint"] == "ucci-photo-v7"


def test_a_cold_start_has_a_fingerprint_of_its_own() -> None:
    one = routed(QueryEvent(query_id="q-1", text="canon"), "photo")
    assert json.loads(openai_protocol.completion("chat", one, ()))["system_fingerprint"] == "ucci-photo-cold-start"


def test_workloads_are_listed_as_models() -> None:
    found = json.loads(openai_protocol.models(["reviews", "photo"], ROUTED_AT))
    assert found["object"] == "list"
    assert [one["id"] for one in found["data"]] == ["photo", "reviews"]
    assert found["data"][0] == json.loads(openai_protocol.model("photo", ROUTED_AT))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (429, "rate_limit_error"), (503, "server_error")],
)
def test_errors_name_their_kind(status: int, kind: str) -> None:
    assert json.loads(openai_protocol.error("code", "line", status, "field"))["error"] == {
        "message": "line",
        "type": kind,
        "param": "field",
        "code": "code",
    }
