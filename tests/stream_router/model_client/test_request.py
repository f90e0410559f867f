"""What is sent to a model server."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from schemas.settings import WorkloadSettings
from stream_router.model_client.request import build_probe, entities_schema
from tests.support import model_clients

PROMPT = 'Answer like {"iso": "100"} or {}. Query: {text}'


def workload(**changes: Any) -> WorkloadSettings:
    return model_clients.workload(**{"prompt": PROMPT, "fields": ["camera", "iso"]} | changes)


def sent(settings: WorkloadSettings, text: str = "iso 100") -> tuple[str, dict[str, Any]]:
    request = model_clients.request(settings, text)
    return request.path, json.loads(request.body)


def test_requests_are_greedy_with_two_alternatives() -> None:
    asked = 'Answer like {"iso": "100"} or {}. Query: iso 100'
    same = {"model": "small", "max_tokens": 256, "temperature": 0, "return_tokens_as_token_ids": True}
    assert sent(workload()) == ("/completions", same | {"prompt": asked, "logprobs": 2})
    chat = {"messages": [{"role": "user", "content": asked}], "logprobs": True, "top_logprobs": 2}
    assert sent(workload(api="chat")) == ("/chat/completions", same | chat)


@pytest.mark.parametrize(("uncertainty", "alternatives"), [("token_margin", 2), ("entropy", 5), ("max_probability", 1)])
def test_each_signal_asks_for_the_alternatives_it_needs(uncertainty: str, alternatives: int) -> None:
    for decoding in ("free", "json_schema"):
        signal = {"uncertainty": uncertainty, "decoding": decoding}
        assert sent(workload(**signal))[1]["logprobs"] == alternatives
        # In a chat the chosen token takes up one.
        assert sent(workload(api="chat", **signal))[1]["top_logprobs"] == alternatives + (decoding != "free")


@pytest.mark.parametrize("text", ["{text}", "{0} {iso} %s $x \\1", 'quote " and \\ and \n', "ß😀\x00", "{{text}}"])
def test_the_text_is_put_in_literally(text: str) -> None:
    _, body = sent(workload(), text)
    assert body["prompt"] == PROMPT.removesuffix("{text}") + text
    assert sent(workload(prompt="{text} / {text}"), text)[1]["prompt"] == f"{text} / {text}", "in every place"


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_guided_decoding_sends_the_schema_of_the_fields(api: str) -> None:
    schema = sent(workload(api=api, decoding="json_schema"))[1]["response_format"]["json_schema"]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    accepts = jsonschema.Draft202012Validator(schema).is_valid
    assert accepts({"camera": ["a", "b"], "iso": None})
    none = ({"camera": "a"}, {"camera": "a", "iso": True}, {"camera": "a", "iso": "1", "mood": "sad"})
    assert not any(map(accepts, none))
    assert schema == entities_schema(("camera", "iso"))


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_probe_is_a_completion_of_one_token_by_the_same_path(api: str) -> None:
    settings = workload(api=api)
    probe = build_probe(settings, model_clients.endpoint(settings))
    body = json.loads(probe.body)
    assert probe.path == sent(settings)[0]
    assert (body["max_tokens"], body["model"]) == (1, "small")
