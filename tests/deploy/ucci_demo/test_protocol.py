"""Bodies as vLLM 0.32 was seen to take and send them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ucci_demo.model_server.generation import GeneratedToken
from ucci_demo.model_server.protocol import Api, Generated, ProtocolError, TokenTexts, read_request, reply

NAMES = {2: "", 5: "a", 6: "b", 7: "b"}
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


def test_completions_by_text_lose_an_equal_runner_up() -> None:
    """The trap of the protocol is kept: a client that forgets to ask for ids must meet it here; chat loses none."""
    logprobs = answered("completions", logprobs=2)["choices"][0]["logprobs"]
    assert logprobs["top_logprobs"][1] == {"b": -1.0}
    (choice,) = answered("chat", logprobs=True, top_logprobs=2)["choices"]
    second = choice["logprobs"]["content"][1]
    assert [(entry["token"], entry["logprob"]) for entry in second["top_logprobs"]] == [("b", -0.5), ("b", -1.0)]


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_log_probabilities_are_sent_only_where_asked_for(api: Api) -> None:
    assert answered(api)["choices"][0]["logprobs"] is None


def test_a_chat_is_bounded_only_where_asked_and_text_is_free() -> None:
    asked = read_request("chat", CHAT, "tiny")
    assert asked.max_tokens > 10_000
    assert read_request("chat", CHAT | {"max_completion_tokens": 9}, "tiny").max_tokens == 9
    assert read_request("chat", CHAT | {"response_format": {"type": "text"}}, "tiny") == asked


BEGUN = [{"role": "assistant", "content": "{"}]


@pytest.mark.parametrize(
    ("api", "changes", "named"),
    [
        ("completions", {"prompt": 7}, "prompt"),
        ("completions", {"max_tokens": "many"}, "max_tokens"),
        ("completions", {"logprobs": "x"}, "logprobs"),
        ("completions", {"temperature": 0.7}, "temperature"),
        ("completions", {"response_format": 7}, "response_format"),
        ("completions", {"response_format": {"type": "json_schema"}}, "vLLM holds answers to a schema"),
        ("completions", {"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        *(("chat", {"messages": messages}, "messages|prompt") for messages in (None, [], ["hi"], [{"role": "user"}])),
        ("chat", {"messages": BEGUN, "continue_final_message": True}, "continue_final_message"),
        ("chat", {"continue_final_message": True, "add_generation_prompt": False}, "continue_final_message"),
    ],
)
def test_what_no_model_could_do_is_refused(api: Api, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ProtocolError, match=named) as caught:
        read_request(api, (CHAT if api == "chat" else COMPLETION) | changes, "tiny")
    assert caught.value.status == 400
