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


def test_completions_request_two_greedy_alternatives() -> None:
    path, body = sent(workload())
    assert path == "/completions"
    assert body == {
        "model": "small",
        "prompt": 'Answer like {"iso": "100"} or {}. Query: iso 100',
        "max_tokens": 256,
        "temperature": 0,
        "logprobs": 2,
        "return_tokens_as_token_ids": True,
    }


def test_chat_sends_one_user_message() -> None:
    path, body = sent(workload(api="chat"))
    assert path == "/chat/completions"
    assert body["messages"] == [{"role": "user", "content": 'Answer like {"iso": "100"} or {}. Query: iso 100'}]
    assert (body["logprobs"], body["top_logprobs"], body["temperature"]) == (True, 2, 0)
    assert "prompt" not in body


@pytest.mark.parametrize(("uncertainty", "alternatives"), [("token_margin", 2), ("entropy", 5), ("max_probability", 1)])
def test_each_signal_asks_for_the_alternatives_it_needs(uncertainty: str, alternatives: int) -> None:
    assert sent(workload(uncertainty=uncertainty))[1]["logprobs"] == alternatives
    assert sent(workload(uncertainty=uncertainty, api="chat"))[1]["top_logprobs"] == alternatives
    guided = sent(workload(uncertainty=uncertainty, api="chat", decoding="json_schema"))[1]
    assert guided["top_logprobs"] == alternatives + 1, "the chosen token takes up one"
    assert sent(workload(uncertainty=uncertainty, decoding="json_schema"))[1]["logprobs"] == alternatives


@pytest.mark.parametrize("text", ["{text}", "{0} {iso} %s $x \\1", 'quote " and \\ and \n', "ß😀\x00", "{{text}}"])
def test_the_text_is_put_in_literally(text: str) -> None:
    _, body = sent(workload(), text)
    assert body["prompt"] == PROMPT.removesuffix("{text}") + text


def test_every_place_of_the_text_is_filled() -> None:
    assert sent(workload(prompt="{text} / {text}"), "a")[1]["prompt"] == "a / a"


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_guided_decoding_sends_the_schema_of_the_fields(api: str) -> None:
    schema = sent(workload(api=api, decoding="json_schema"))[1]["response_format"]["json_schema"]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    accepts = jsonschema.Draft202012Validator(schema).is_valid
    assert accepts({"camera": ["a", "b"], "iso": None})
    assert not accepts({"camera": "a"})
    assert not accepts({"camera": "a", "iso": True})
    assert not accepts({"camera": "a", "iso": "1", "mood": "sad"})
    assert schema == entities_schema(("camera", "iso"))


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_probe_is_a_completion_of_one_token_by_the_same_path(api: str) -> None:
    settings = workload(api=api)
    probe = build_probe(settings, model_clients.endpoint(settings))
    body = json.loads(probe.body)
    assert probe.path == sent(settings)[0]
    assert (body["max_tokens"], body["model"]) == (1, "small")
