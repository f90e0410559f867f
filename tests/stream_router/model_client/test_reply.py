"""From a reply to text, finish and u: both shapes, whatever the order, and nothing half-read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.errors import ErrorReplyError, MalformedReplyError
from stream_router.model_client.answer import judge_answer
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


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"content": None}, ""),
        ({}, ""),
        ({"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, ""),
        ({"content": [{"type": "text", "text": '{"iso"'}, {"type": "text", "text": ": null}"}]}, '{"iso": null}'),
        ({"content": [{"type": "refusal", "refusal": "no"}]}, ""),
    ],
)
def test_a_message_without_text_says_so(content: dict[str, Any], text: str) -> None:
    document = json.loads(chat([[0.0]]))
    document["choices"][0]["message"] = {"role": "assistant", **content}
    reply = read_reply(json.dumps(document).encode(), TOKEN_MARGIN)
    assert (reply.text, reply.finish_reason, reply.completion_tokens, reply.uncertainty) == (text, "stop", 1, 0.0)
    expected = "calls a tool" if "tool_calls" in content else "holds no text"
    assert expected in (reply.defect or "") if not text else reply.defect is None


@pytest.mark.parametrize("as_chat", [False, True])
@pytest.mark.parametrize("number", [23.5, 0.011, "b", True, math.nan, [], {}])
def test_what_is_no_logprob_leaves_a_reply_without_u(number: Any, *, as_chat: bool) -> None:
    """It is a reply, since the next one would be alike: three calls for each query took the server for down."""
    tokens = [[-0.1, -3.0], [number, -3.0]]
    reply = read_reply(chat(tokens) if as_chat else completions(tokens), TOKEN_MARGIN)
    assert (reply.text, reply.uncertainty) == ("{}", None)
    assert "log-probability" in (reply.defect or "")


@pytest.mark.parametrize("as_chat", [False, True])
def test_a_null_alternative_is_impossible(*, as_chat: bool) -> None:
    """So is -Infinity, which is no JSON and sent all the same; a token of nulls alone says nothing."""
    shape = chat if as_chat else completions
    expected = read_reply(shape([[-0.5, -9999.0]]), TOKEN_MARGIN).uncertainty
    for impossible in (None, -math.inf):
        reply = read_reply(shape([[-0.5, impossible], [None, None]]), TOKEN_MARGIN)  # type: ignore[list-item]
        assert reply.uncertainty == expected
        assert (reply.measured_tokens, reply.completion_tokens) == (1, 2)


def test_a_chosen_token_of_null_leaves_its_alternatives() -> None:
    listed = [{"token": "a", "logprob": math.log(0.6)}, {"token": "b", "logprob": math.log(0.4)}]
    entry = {"token": "c", "logprob": None, "top_logprobs": listed}
    assert read_reply(with_logprobs({"content": [entry]}), TOKEN_MARGIN).uncertainty == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("seen", "written", "measured"),
    [(1, 20, False), (9, 20, False), (10, 20, True), (19, 20, True), (20, 20, True), (30, 20, True), (1, 3, True)],
)
def test_u_needs_half_of_the_tokens_that_were_written(seen: int, written: int, *, measured: bool) -> None:
    document = json.loads(completions([[-0.1, -3.0]] * seen)) | {"usage": {"completion_tokens": written}}
    reply = read_reply(json.dumps(document).encode(), TOKEN_MARGIN)
    assert (reply.uncertainty is not None, reply.defect is None) == (measured, measured)
    assert measured or f"{seen} of the {written} tokens" in (reply.defect or "")


THOUGHTS, OWN = ["<think>", "a camera,", " or </think>?", " no.", "</think>", "\n\n"], ['{"iso"', ": null", "}", ""]
UNSURE, SURE = [math.log(0.5), math.log(0.5)], [math.log(0.96), math.log(0.04)]
ANSWER = "".join(OWN)


def thinking(
    logprobs: dict[str, Any], said: dict[str, Any], more: dict[str, Any] | None = None, written: int = 10
) -> bytes:
    choice = {"finish_reason": "stop", "logprobs": logprobs, **said}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": written, **(more or {})}}).encode()


def thought_logprobs(*, as_chat: bool, names: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return the log-probabilities of all tokens, thinking included, named by their text or by these names."""
    spelt = [*THOUGHTS, *OWN]
    names = names or spelt
    numbers = [UNSURE] * len(THOUGHTS) + [SURE] * len(OWN)
    if not as_chat:
        top = [dict(zip((name, f"not {name}"), pair, strict=True)) for name, pair in zip(names, numbers, strict=True)]
        return {"tokens": names, "top_logprobs": top, **more}
    return {
        "content": [
            {
                "token": name,
                "bytes": list(text.encode()) if name != text else None,
                "logprob": pair[0],
                "top_logprobs": [{"token": name, "logprob": pair[0]}, {"token": "other", "logprob": pair[1]}],
            }
            for name, text, pair in zip(names, spelt, numbers, strict=True)
        ]
    }


IDS = [f"token_id:{number}" for number in range(len(THOUGHTS) + len(OWN))]
OFFSETS = [len("".join([*THOUGHTS, *OWN][:number])) for number in range(len(IDS))]
WHOLE = "".join(THOUGHTS) + ANSWER
APART = {"message": {"content": ANSWER, "reasoning_content": "".join(THOUGHTS[1:4])}}


@pytest.mark.parametrize(
    "body",
    [
        thinking(thought_logprobs(as_chat=False), {"text": WHOLE}),
        # The prompt may have opened the thinking.
        thinking(thought_logprobs(as_chat=False), {"text": WHOLE.removeprefix("<think>")}),
        thinking(thought_logprobs(as_chat=False, names=IDS, text_offset=OFFSETS), {"text": WHOLE}),
        thinking(thought_logprobs(as_chat=True), {"message": {"content": WHOLE}}),
        thinking(thought_logprobs(as_chat=True), APART),
        # vLLM, asked for ids: the bytes are the token's text.
        thinking(thought_logprobs(as_chat=True, names=IDS), APART),
        thinking(thought_logprobs(as_chat=True, names=IDS), {"message": {"content": ANSWER, "reasoning": "a camera"}}),
        # A server that measures the answer alone, and one that says how long it thought.
        thinking({"content": thought_logprobs(as_chat=True)["content"][len(THOUGHTS) :]}, APART),
        thinking(
            thought_logprobs(as_chat=False, names=IDS),
            {"text": WHOLE},
            {"completion_tokens_details": {"reasoning_tokens": len(THOUGHTS)}},
        ),
        thinking(
            {"content": thought_logprobs(as_chat=True)["content"][len(THOUGHTS) :]},
            {"message": {"content": ANSWER}},
            {"completion_tokens_details": {"reasoning_tokens": 500}},
            504,
        ),
    ],
)
def test_thinking_is_no_part_of_text_or_u(body: bytes) -> None:
    """The answer's own tokens are sure, those of the thinking are not: u was .6 instead of .08."""
    reply = read_reply(body, TOKEN_MARGIN)
    assert reply.defect is None
    assert reply.text.strip() == ANSWER
    assert reply.uncertainty == pytest.approx(0.08)
    assert (reply.measured_tokens, reply.thought) == (len(OWN), True)


@pytest.mark.parametrize("offsets", [[0] * 10, [12 * number for number in range(10)], [], None, [math.inf] * 10, {}])
def test_tokens_that_cannot_be_told_apart_give_no_u(offsets: Any) -> None:
    """The remedy is named; offsets that count the names of tokens are none of the text."""
    logprobs = thought_logprobs(as_chat=False, names=IDS, text_offset=offsets)
    reply = read_reply(thinking(logprobs, {"text": WHOLE}), TOKEN_MARGIN)
    assert (reply.text.strip(), reply.uncertainty, reply.completion_tokens) == (ANSWER, None, 10)
    assert 'api = "chat"' in (reply.defect or "")


def test_bytes_that_are_none_leave_a_token_its_name() -> None:
    logprobs = thought_logprobs(as_chat=True)
    for token in logprobs["content"]:
        token["bytes"] = [999, -1]
    assert read_reply(thinking(logprobs, APART), TOKEN_MARGIN).uncertainty == pytest.approx(0.08)


def test_an_answer_may_hold_the_mark_of_thinking() -> None:
    text = '{"iso": "</think>"}'
    reply = read_reply(completions([SURE] * 4, text), TOKEN_MARGIN)
    assert (reply.text, reply.thought) == (text, False)
    assert reply.uncertainty == pytest.approx(0.08)


def test_thinking_without_an_answer_says_so() -> None:
    body = thinking(thought_logprobs(as_chat=True), {"message": {"content": None, "reasoning_content": "hm"}})
    assert "thinking and no answer" in (read_reply(body, TOKEN_MARGIN).defect or "")


@pytest.mark.parametrize("apart", [False, True])
def test_a_stream_leaves_thinking_out_too(*, apart: bool) -> None:
    lines = []
    for number, (part, pair) in enumerate(
        zip([*THOUGHTS, *OWN], [UNSURE] * len(THOUGHTS) + [SURE] * len(OWN), strict=True)
    ):
        name = "reasoning_content" if apart and number < len(THOUGHTS) else "content"
        choice = {"delta": {name: part}, "logprobs": chat_logprobs([pair]), "finish_reason": None}
        lines.append(b"data: " + json.dumps({"choices": [choice]}).encode())
    # Some servers name no reason at the end.
    reply = streamed([*lines, b"data: [DONE]"])
    assert (reply.text, reply.thought, reply.finish_reason) == (ANSWER, True, None)
    assert reply.uncertainty == pytest.approx(0.08)
    assert (reply.measured_tokens, reply.completion_tokens) == (len(OWN), len(THOUGHTS) + len(OWN))
    assert [mark.start for mark in reply.marks] == [len("".join(OWN[:number])) for number in range(len(OWN))]


def test_a_streamed_number_that_is_no_logprob_gives_no_u() -> None:
    choice = {"text": "{}", "logprobs": {"top_logprobs": [{"a": 23.5, "b": 1.5}]}, "finish_reason": "stop"}
    reply = streamed([b"data: " + json.dumps({"choices": [choice]}).encode()])
    assert (reply.text, reply.uncertainty) == ("{}", None)
    assert "23.5 lies above 0" in (reply.defect or "")


@pytest.mark.parametrize(
    ("document", "status", "words"),
    [
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, 400, "too long"),
        ({"error": {"message": "no such model", "code": "model_not_found"}}, 404, "no such model"),
        ({"error": {"message": "who?", "type": "authentication_error"}}, 401, "who?"),
        ({"error": {"message": "slow down", "code": "429"}}, 429, "slow down"),
        ({"error": {"message": "bad", "type": "invalid_request_error", "code": None}, "choices": None}, 400, "bad"),
        ({"error": "out of memory"}, None, "out of memory"),
        ({"error": {"message": "worker died", "type": "InternalServerError", "code": 500}}, 500, "worker died"),
        ({"detail": "Not Found"}, 404, "Not Found"),
        ({"detail": [{"loc": ["body", "logprobs"], "msg": "extra"}]}, 422, "logprobs"),
        ({"message": "the upstream is gone", "choices": []}, None, "the upstream is gone"),
        ({"title": "Bad Request", "status": 400, "detail": "no logprobs here"}, 400, "no logprobs here"),
        ({"error": " "}, None, "an error without words"),
        ([{"error": {"code": 503, "message": "loading"}}], 503, "loading"),
        ({"choices": [{"error": {"code": 502, "message": "upstream"}, "finish_reason": "error"}]}, 502, "upstream"),
    ],
)
def test_an_error_in_place_of_a_reply_keeps_its_words(document: Any, status: int | None, words: str) -> None:
    with pytest.raises(ErrorReplyError) as caught:
        read_reply(json.dumps(document).encode(), TOKEN_MARGIN)
    assert caught.value.status == status
    assert words in str(caught.value)
    if isinstance(document, dict) and not document.get("choices"):
        with pytest.raises(ErrorReplyError, match="broke off") as broken:
            streamed([b"data: " + json.dumps(document).encode()])
        assert (broken.value.status, words in str(broken.value)) == (status, True)


@pytest.mark.parametrize("counted", [2**53, 2**70, True, False, -1, 1.5, "12", [], {}, None])
def test_a_bad_usage_count_ends_in_no_internal_error(counted: Any) -> None:
    """Of a reply whose count is no number of tokens, the tokens themselves are counted."""
    document = json.loads(completions([[0.0, -1.0]] * 3)) | {"usage": {"completion_tokens": counted}}
    reply = read_reply(json.dumps(document).encode(), TOKEN_MARGIN)
    assert judge_answer("small", reply, ("iso",), 0.1).run.completion_tokens == 3


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
        with_logprobs({"top_logprobs": [[1]]}),
        b'{"choices": null}',
        b'{"error": {"code": 1' + b"0" * 4_400 + b"}}",
        b'{"choices": {}}',
        b"<html><body>502 Bad Gateway</body></html>",
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
        b'data: {"choices": [{"text": "{}", "logprobs": {"top_logprobs": ["b"]}}]}',
    ],
)
def test_a_malformed_stream_is_named_as_such(line: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        streamed([line])


def test_a_stream_that_ends_early_is_no_reply() -> None:
    lines = events_of([[-0.1, -3.0]] * 3, ["{", '"', "a"], as_chat=False)
    with pytest.raises(MalformedReplyError, match="ended before"):
        streamed(lines[:-5])
