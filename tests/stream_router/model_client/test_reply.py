"""From a reply to text, finish and u: both shapes, whatever the order, and nothing half-read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.errors import MalformedReplyError
from stream_router.model_client.answer import parse_answer
from stream_router.model_client.reply import StreamedReply, read_reply
from stream_router.model_client.uncertainty import TOKEN_MARGIN, margin
from stream_router.ports import Reply, TokenMark

LOGPROBS = st.floats(min_value=-50.0, max_value=0.0) | st.just(-9999.0)
ALTERNATIVES = st.lists(LOGPROBS, min_size=1, max_size=4)


def completions(tokens: list[list[float]], text: str = "{}", finish: str | None = "stop") -> bytes:
    top = [{f"token_id:{i}": lp for i, lp in enumerate(alternatives)} for alternatives in tokens]
    logprobs = {"tokens": ["t"] * len(tokens), "token_logprobs": [t[0] for t in tokens], "top_logprobs": top}
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": logprobs}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": len(tokens)}}).encode()


def chat_logprobs(tokens: list[list[float]]) -> dict[str, Any]:
    entries = [[{"token": f"token_id:{i}", "logprob": lp} for i, lp in enumerate(token)] for token in tokens]
    return {"content": [{**entry[0], "top_logprobs": entry} for entry in entries]}


def chat(tokens: list[list[float]], text: str | None = "{}") -> bytes:
    choice = {"message": {"content": text}, "finish_reason": "stop", "logprobs": chat_logprobs(tokens)}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": len(tokens)}}).encode()


def with_logprobs(logprobs: Any) -> bytes:
    choice = {"text": "{}", "finish_reason": "stop", "logprobs": logprobs}
    return json.dumps({"choices": [choice]}).encode()


@given(st.lists(ALTERNATIVES, max_size=20))
def test_both_reply_shapes_give_the_papers_u(tokens: list[list[float]]) -> None:
    margins = []
    for alternatives in tokens:
        p = sorted((math.exp(lp) if lp > -9999.0 else 0.0 for lp in alternatives), reverse=True)
        margins.append(p[0] - (p[1] if len(p) > 1 else 0.0))
    expected = None if not tokens else pytest.approx(1.0 - sum(margins) / len(margins), abs=1e-9)
    llama_cpp = read_reply(with_logprobs(chat_logprobs(tokens)), TOKEN_MARGIN)
    for reply in (read_reply(completions(tokens), TOKEN_MARGIN), read_reply(chat(tokens), TOKEN_MARGIN), llama_cpp):
        assert reply.uncertainty == expected
        assert reply.uncertainty is None or 0.0 <= reply.uncertainty <= 1.0
        assert reply.completion_tokens == len(tokens)


def test_chosen_token_outside_the_list_counts() -> None:
    listed = [{"token": "token_id:2", "logprob": math.log(0.6)}]
    entry = {"token": "token_id:1", "logprob": math.log(0.2), "top_logprobs": listed}
    assert read_reply(with_logprobs({"content": [entry]}), TOKEN_MARGIN).uncertainty == pytest.approx(0.6)


@pytest.mark.parametrize("logprobs", [None, {"content": []}, {"content": None}, {"top_logprobs": []}])
def test_zero_tokens_give_none(logprobs: Any) -> None:
    assert read_reply(with_logprobs(logprobs), TOKEN_MARGIN).uncertainty is None


@pytest.mark.parametrize("first", [None, {}])
def test_a_token_without_alternatives_is_left_out(first: Any) -> None:
    top = [first, {"a": math.log(0.5), "b": math.log(0.5)}]
    assert read_reply(with_logprobs({"top_logprobs": top}), TOKEN_MARGIN).uncertainty == 1.0


def test_a_chat_reply_without_content_reads_as_no_text() -> None:
    assert read_reply(chat([[0.0]], text=None), TOKEN_MARGIN) == Reply("", "stop", 1, 0.0)


@pytest.mark.parametrize("counted", [2**53, 2**70, True, False, -1, 1.5, "12", [], {}, None])
def test_a_bad_usage_count_ends_in_no_internal_error(counted: Any) -> None:
    """Of a reply whose count is no number of tokens, the tokens themselves are counted."""
    document = json.loads(completions([[0.0, -1.0]] * 3)) | {"usage": {"completion_tokens": counted}}
    reply = read_reply(json.dumps(document).encode(), TOKEN_MARGIN)
    assert parse_answer("small", reply, ("iso",), 0.1).completion_tokens == 3


#: What is no mapping of tokens to log-probabilities.
WRONG: tuple[Any, ...] = ([1], {"a": "b"}, {"a": True}, {"a": math.nan})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        with_logprobs(3),
        with_logprobs({"content": [{"top_logprobs": [{}]}]}),
        *(with_logprobs({"top_logprobs": [alternatives]}) for alternatives in WRONG),
        b'{"choices": [{"text": "x"}], "usage": 3}',
        b'{"choices": [{"text": "half a pair: \\ud83d"}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_completion_is_named_as_such(body: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        read_reply(body, TOKEN_MARGIN)


def events_of(tokens: list[list[float]], parts: list[str], *, as_chat: bool, together: int = 1) -> list[bytes]:
    """Return a stream's lines: so many tokens an event, each with its part of the text, and the usage at the end."""
    lines = [b": a comment", b"event: message", b""]
    for place in range(0, len(tokens), together):
        some, text = tokens[place : place + together], "".join(parts[place : place + together])
        whole = json.loads(chat(some, text) if as_chat else completions(some, text))["choices"][0]
        whole["finish_reason"] = "stop" if place + together >= len(tokens) else None
        if as_chat:
            whole["delta"] = whole.pop("message")
        lines += [b"data: " + json.dumps({"choices": [whole]}).encode() + b"\r", b"\r"]
    usage = {"completion_tokens": len(tokens), "prompt_tokens": 7}
    return [*lines, b"data: " + json.dumps({"choices": [], "usage": usage}).encode(), b"data: [DONE]"]


def streamed(lines: list[bytes]) -> Reply:
    reply = StreamedReply(TOKEN_MARGIN)
    for line in lines:
        reply.take(line)
    return reply.reply()


@given(
    st.lists(st.tuples(ALTERNATIVES, st.text(max_size=3)), min_size=1, max_size=12), st.booleans(), st.integers(1, 3)
)
def test_a_stream_says_what_the_whole_reply_does(
    tokens: list[tuple[list[float], str]], as_chat: bool, together: int
) -> None:
    """Text, u and counts are equal, and every token begins where the text of those before it ends."""
    logprobs, parts = [token for token, _ in tokens], [text for _, text in tokens]
    text = "".join(parts)
    whole = read_reply(chat(logprobs, text) if as_chat else completions(logprobs, text), TOKEN_MARGIN)
    reply = streamed(events_of(logprobs, parts, as_chat=as_chat, together=together))
    assert (reply.text, reply.finish_reason, reply.uncertainty) == (whole.text, whole.finish_reason, whole.uncertainty)
    assert (reply.completion_tokens, reply.prompt_tokens) == (len(tokens), 7)
    firsts = [place - place % together for place in range(len(tokens))]
    assert [mark.start for mark in reply.marks] == [len("".join(parts[:first])) for first in firsts]
    assert [mark.margin for mark in reply.marks] == [margin(token) for token in logprobs]


def test_streamed_text_without_its_tokens_is_unsure() -> None:
    """A server that leaves probabilities out of an event has nothing handed over from there on."""
    choice = {"index": 0, "text": "{}", "finish_reason": "stop", "logprobs": None}
    reply = streamed([b"data: " + json.dumps({"choices": [choice]}).encode()])
    assert reply.marks == (TokenMark(0, 0.0),)
    assert reply.uncertainty is None


@pytest.mark.parametrize(
    "line",
    [
        b"data: {nope",
        b'data: {"error": {"message": "out of memory"}}',
        b'data: {"choices": [{"text": "{}", "logprobs": {"top_logprobs": [{"a": "b"}]}}]}',
    ],
)
def test_a_malformed_stream_is_named_as_such(line: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        streamed([line])


def test_a_stream_that_ends_early_is_no_reply() -> None:
    lines = events_of([[-0.1, -3.0]] * 3, ["{", '"', "a"], as_chat=False)
    with pytest.raises(MalformedReplyError, match="ended before"):
        streamed(lines[:-5])
