"""vLLM's OpenAI-compatible protocol, as measured on vLLM 0.32: requests read, replies built. Pure.

Shapes that clients trip over are kept: completions key the alternatives of a token by its text (so that tokens of
equal text collide, unless ``return_tokens_as_token_ids``), chat lists them, cut with the chosen token first; the end
of sequence is counted and listed though it has no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from ucci_demo.model_server.generation import TOP, FinishReason, GeneratedToken

DEFAULT_MAX_TOKENS = 16
Api = Literal["completions", "chat"]
BAD_REQUEST, NOT_FOUND = 400, 404
_GUIDES = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")


class ProtocolError(Exception):
    """A request that vLLM refuses, with its status."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Asked:
    """A valid request, reduced to what generation needs."""

    api: Api
    prompt: str
    max_tokens: int
    #: Alternatives a token; None without log-probabilities.
    alternatives: int | None
    #: Name tokens ``token_id:N``.
    as_ids: bool
    #: Send each token as an event, as soon as it is there.
    streams: bool = False
    #: End the stream with the numbers of tokens.
    counts_usage: bool = False


def read_request(api: Api, body: Any, served_model: str) -> Asked:
    """Validate a decoded request body. Raises ProtocolError with the status that vLLM answers."""
    if not isinstance(body, dict):
        raise ProtocolError(BAD_REQUEST, "the body must be a JSON object")
    if body.get("model") != served_model:
        raise ProtocolError(NOT_FOUND, f"The model `{body.get('model')}` does not exist.")
    if body.get("temperature", 1.0) != 0:
        raise ProtocolError(BAD_REQUEST, "temperature: this demo server decodes greedily only; send 0")
    prompt = _chat_prompt(body) if api == "chat" else body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise ProtocolError(BAD_REQUEST, "prompt: must be a text that is not empty")
    by_default = None if api == "chat" else DEFAULT_MAX_TOKENS
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or by_default
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ProtocolError(BAD_REQUEST, f"max_tokens must be at least 1, got {limit}.")
    streams, options = bool(body.get("stream")), body.get("stream_options") or {}
    if options and not streams:
        raise ProtocolError(BAD_REQUEST, "Stream options can only be defined when `stream=True`.")
    if not isinstance(options, dict):
        raise ProtocolError(BAD_REQUEST, "stream_options: must be an object")
    as_ids, counts_usage = bool(body.get("return_tokens_as_token_ids")), bool(options.get("include_usage"))
    _require_free_decoding(body)
    return Asked(api, prompt, limit or 2**31, _alternatives(api, body), as_ids, streams, counts_usage)


def _require_free_decoding(body: dict[str, Any]) -> None:
    guides = [key for key in _GUIDES if body.get(key) is not None]
    if (body.get("response_format") or {"type": "text"}) != {"type": "text"}:
        guides.append("response_format")
    if guides:
        raise ProtocolError(
            BAD_REQUEST, f"{guides[0]}: this demo server decodes freely; vLLM holds answers to a schema"
        )


def _chat_prompt(body: dict[str, Any]) -> str | None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise ProtocolError(BAD_REQUEST, "messages: must be a list of objects")
    if body.get("continue_final_message"):
        if body.get("add_generation_prompt", True):
            message = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            raise ProtocolError(BAD_REQUEST, message)
        if not messages or messages[-1].get("role") != "assistant":
            raise ProtocolError(BAD_REQUEST, "continue_final_message: the last message must be the assistant's")
    # This model's chat template is no more than the messages, so that a last one is continued in any case.
    return "".join(str(message.get("content", "")) for message in messages)


def _alternatives(api: Api, body: dict[str, Any]) -> int | None:
    asked = body.get("logprobs")
    if api == "chat":
        asked = body.get("top_logprobs", 0) if asked else None
    if asked is None or asked is False:
        return None
    if not isinstance(asked, int) or not 0 <= asked <= TOP:
        message = f"Requested sample logprobs of {asked}, which is greater than max allowed: {TOP}"
        raise ProtocolError(BAD_REQUEST, message)
    return asked


def error_body(error: ProtocolError) -> dict[str, Any]:
    """Return vLLM's error object."""
    kind = "NotFoundError" if error.status == NOT_FOUND else "BadRequestError"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": error.status}}


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """How tokens read as text."""

    #: The end of sequence, which has no text.
    eos_id: int
    #: Token ids → text.
    decode: Callable[[list[int]], str]
    #: Token id → its own text.
    name_token: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Generated:
    """What the model generated for one request, and the numbers that identify the reply."""

    model: str
    request_id: str
    #: Seconds since 1970.
    created: int
    prompt_tokens: int
    tokens: Sequence[GeneratedToken]
    finish_reason: FinishReason


def reply(asked: Asked, generated: Generated, texts: TokenTexts) -> dict[str, Any]:
    """Return the response body."""
    tokens = generated.tokens
    text = texts.decode([token.token_id for token in tokens if token.token_id != texts.eos_id])
    content = {"message": {"role": "assistant", "content": text}} if asked.api == "chat" else {"text": text}
    kind = "chat.completion" if asked.api == "chat" else "text_completion"
    choice = _choice(asked, texts, tokens, content, generated.finish_reason)
    usage = _usage(generated.prompt_tokens, len(tokens))
    return _document(asked, generated, kind) | {"choices": [choice], "usage": usage}


def _choice(
    asked: Asked,
    texts: TokenTexts,
    tokens: Sequence[GeneratedToken],
    content: dict[str, Any],
    finish_reason: FinishReason | None,
) -> dict[str, Any]:
    def name(token_id: int) -> str:
        return f"token_id:{token_id}" if asked.as_ids else texts.name_token(token_id)

    logprobs = None
    if asked.alternatives is not None:
        listed = _chat_logprobs if asked.api == "chat" else _logprobs
        logprobs = listed(tokens, asked.alternatives, name)
    return {"index": 0, "finish_reason": finish_reason, "stop_reason": None, **content, "logprobs": logprobs}


def _usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _document(asked: Asked, generated: Generated, kind: str) -> dict[str, Any]:
    name = f"{'chatcmpl' if asked.api == 'chat' else 'cmpl'}-{generated.request_id}"
    return {"id": name, "object": kind, "created": generated.created, "model": generated.model}


class EventStream:
    """The documents of a stream: one a token, with the text that it completes, and the numbers of tokens at the end.

    ``generated``: without its tokens, which come one by one.
    """

    def __init__(self, asked: Asked, generated: Generated, texts: TokenTexts) -> None:
        self._asked, self._generated, self._texts = asked, generated, texts
        self._ids: list[int] = []
        self._sent = 0
        self._tokens = 0

    def token(self, token: GeneratedToken, finish_reason: FinishReason | None) -> dict[str, Any]:
        """Return the document of one token; ``finish_reason`` ends the stream."""
        self._tokens += 1
        text = self._text(token, is_last=finish_reason is not None)
        content = {"delta": {"content": text}} if self._asked.api == "chat" else {"text": text}
        choice = _choice(self._asked, self._texts, [token], content, finish_reason)
        return self._document() | {"choices": [choice]}

    def usage(self) -> dict[str, Any]:
        """Return the document that ends the stream."""
        return self._document() | {"choices": [], "usage": _usage(self._generated.prompt_tokens, self._tokens)}

    def _document(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._asked.api == "chat" else "text_completion"
        return _document(self._asked, self._generated, kind)

    def _text(self, token: GeneratedToken, *, is_last: bool) -> str:
        """Return what the answer's text grows by; bytes that are no character yet are held back, as vLLM does."""
        if token.token_id != self._texts.eos_id:
            self._ids.append(token.token_id)
        text = self._texts.decode(self._ids)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and not is_last:
            return ""
        new, self._sent = text[self._sent :], len(text)
        return new


def _logprobs(tokens: Sequence[GeneratedToken], count: int, name: Callable[[int], str]) -> dict[str, Any]:
    names = [name(token.token_id) for token in tokens]
    return {
        "text_offset": [0, *accumulate(map(len, names))][:-1],
        "tokens": names,
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{name(i): logprob for i, logprob in _top(token, count)} for token in tokens],
    }


def _top(token: GeneratedToken, count: int) -> list[tuple[int, float]]:
    """Return the most probable alternatives of one token as plain numbers."""
    return list(zip(token.top_ids[:count].tolist(), token.top_logprobs[:count].tolist(), strict=True))


def _chat_logprobs(tokens: Sequence[GeneratedToken], count: int, name: Callable[[int], str]) -> dict[str, Any]:
    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        text = name(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    listed = ([entry(*alternative) for alternative in _top(token, count)] for token in tokens)
    chosen = (entry(token.token_id, token.logprob) for token in tokens)
    return {"content": [one | {"top_logprobs": top} for one, top in zip(chosen, listed, strict=True)]}
