"""Bodies as vLLM 0.32 was seen to take and send them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic_core import to_json

from stream_router.model_client.reply import read_reply
from stream_router.model_client.uncertainty import TOKEN_MARGIN
from ucci_demo.model_server.generation import GeneratedToken
from ucci_demo.model_server.protocol import Api, Generated, ProtocolError, TokenTexts, error_body, read_request, reply

NAMES = {2: "", 5: "a", 6: "b", 7: "b", 9: "é"}
COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "hi", "temperature": 0}
CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def token(*alternatives: tuple[int, float]) -> GeneratedToken:
    ids, logprobs = zip(*alternatives, strict=True)
    return GeneratedToken(ids[0], logprobs[0], np.array(ids, dtype=np.intp), np.array(logprobs, dtype=np.float32))


TOKENS = [
    token((5, -0.25), (6, -2.0), (7, -3.0)),
    token((6, -0.5), (7, -1.0), (5, -4.0)),
    token((2, 0.0), (5, -9999.0)),
]


def answered(api: Api, **changes: Any) -> dict[str, Any]:
    asked = read_request(api, (CHAT if api == "chat" else COMPLETION) | changes, "tiny")
    generated = Generated("tiny", request_id="1", created=7, prompt_tokens=4, tokens=TOKENS, finish_reason="stop")
    texts = TokenTexts(eos_id=2, decode=lambda ids: "".join(NAMES[i] for i in ids), name_token=lambda i: NAMES[i])
    return reply(asked, generated, texts)


def test_end_of_sequence_is_counted_but_has_no_text() -> None:
    document = answered("completions", logprobs=2, return_tokens_as_token_ids=True)
    assert document["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    (choice,) = document["choices"]
    assert (choice["text"], choice["finish_reason"], choice["index"]) == ("ab", "stop", 0)
    assert choice["logprobs"]["tokens"] == ["token_id:5", "token_id:6", "token_id:2"]
    assert choice["logprobs"]["top_logprobs"][0] == {"token_id:5": -0.25, "token_id:6": -2.0}
    assert set(choice["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert (document["object"], document["id"], document["model"]) == ("text_completion", "cmpl-1", "tiny")


def test_completions_by_text_lose_an_equal_runner_up() -> None:
    """The trap of the protocol is kept: a client that forgets to ask for ids must meet it here."""
    choice = answered("completions", logprobs=2)["choices"][0]
    assert choice["logprobs"]["top_logprobs"][1] == {"b": -1.0}
    assert choice["logprobs"]["token_logprobs"] == [-0.25, -0.5, 0.0]


def test_chat_lists_its_alternatives_so_that_none_is_lost() -> None:
    document = answered("chat", logprobs=True, top_logprobs=2)
    (choice,) = document["choices"]
    assert choice["message"] == {"role": "assistant", "content": "ab"}
    second = choice["logprobs"]["content"][1]
    assert [(entry["token"], entry["logprob"]) for entry in second["top_logprobs"]] == [("b", -0.5), ("b", -1.0)]
    assert (document["object"], document["id"]) == ("chat.completion", "chatcmpl-1")


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_router_reads_the_same_uncertainty_from_either_shape(api: Api) -> None:
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if api == "chat" else {"logprobs": 2}
    seen = read_reply(to_json(answered(api, return_tokens_as_token_ids=True, **asked)), TOKEN_MARGIN)
    margins = [np.exp(-0.25) - np.exp(-2.0), np.exp(-0.5) - np.exp(-1.0), 1.0]
    assert seen.uncertainty == pytest.approx(1.0 - np.mean(margins), abs=1e-9)
    assert (seen.text, seen.completion_tokens, seen.finish_reason) == ("ab", 3, "stop")


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_log_probabilities_are_sent_only_where_asked_for(api: Api) -> None:
    assert answered(api)["choices"][0]["logprobs"] is None


def test_default_max_tokens_differ_for_completions_and_chat() -> None:
    assert read_request("completions", COMPLETION, "tiny").max_tokens == 16
    assert read_request("chat", CHAT, "tiny").max_tokens > 10_000
    assert read_request("chat", CHAT | {"max_completion_tokens": 9}, "tiny").max_tokens == 9


def test_text_as_the_format_means_what_none_means() -> None:
    as_text = CHAT | {"response_format": {"type": "text"}}
    assert read_request("chat", as_text, "tiny") == read_request("chat", CHAT, "tiny")


@pytest.mark.parametrize(
    ("changes", "status", "named"),
    [
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"model": None}, 404, "does not exist"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": None}, 400, "prompt"),
        ({"prompt": 7}, 400, "prompt"),
        ({"max_tokens": -1}, 400, "max_tokens must be at least 1"),
        ({"max_tokens": "many"}, 400, "max_tokens"),
        ({"logprobs": 21}, 400, "max allowed: 20"),
        ({"logprobs": "x"}, 400, "logprobs"),
        ({"temperature": 0.7}, 400, "temperature"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"response_format": {"type": "json_schema"}}, 400, "vLLM holds answers to a schema"),
        ({"response_format": 7}, 400, "response_format"),
        ({"structured_outputs": {"regex": "a"}}, 400, "structured_outputs"),
    ],
)
def test_bad_requests_get_vllms_status_and_error_object(changes: dict[str, Any], status: int, named: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_request("completions", COMPLETION | changes, "tiny")
    assert caught.value.status == status
    body = error_body(caught.value)["error"]
    assert named in body["message"]
    assert (body["code"], set(body)) == (status, {"message", "type", "param", "code"})


BEGUN = [{"role": "assistant", "content": "{"}]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        *(({"messages": messages}, "messages|prompt") for messages in (None, [], "hi", ["hi"], [{"role": "user"}])),
        ({"messages": BEGUN, "continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": False}, "continue_final_message"),
    ],
)
def test_a_chat_that_cannot_be_gone_on_with_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ProtocolError, match=named) as caught:
        read_request("chat", CHAT | changes, "tiny")
    assert caught.value.status == 400


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(ProtocolError, match="JSON object"):
        read_request("completions", [COMPLETION], "tiny")
