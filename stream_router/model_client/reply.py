"""Reads a model server's reply: its text, how it ended, and u; whole, or as a stream of events. Pure.

Both shapes of log-probabilities are read: one mapping a token (completions) and a list of entries (chat; some servers
send it for completions too). The order of alternatives means nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, TypeGuard

from schemas.event import MAX_INTEGER
from schemas.json_bytes import parsed
from stream_router.errors import MalformedReplyError
from stream_router.model_client.uncertainty import UncertaintySignal, margin, uncertainty_of
from stream_router.ports import Reply, TokenMark

_DATA = b"data:"
_END = b"[DONE]"

_MAX_REASON_CHARS = 64


def read_reply(body: bytes, signal: UncertaintySignal) -> Reply:
    """Parse a reply of ``/completions`` or ``/chat/completions``. Raises MalformedReplyError when it is none."""
    try:
        document = parsed(body)
    except ValueError as error:
        raise MalformedReplyError(f"not valid JSON: {error}") from None
    try:
        choice = document["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        tokens = list(_tokens(choice.get("logprobs")))
        uncertainty, usage = signal.of(tokens), document.get("usage") or {}
        reason = choice.get("finish_reason")
        # A word by the protocol; whatever else a server sends goes into every result.
        reason = reason[:_MAX_REASON_CHARS] if isinstance(reason, str) else None
        return _reply(text if isinstance(text, str) else "", reason, uncertainty, usage, len(tokens))
    except _MISSHAPEN as error:
        raise MalformedReplyError(f"not a completion: {type(error).__name__}: {error}") from None


def _reply(
    text: str, reason: str | None, uncertainty: float | None, usage: Any, seen: int, marks: tuple[TokenMark, ...] = ()
) -> Reply:
    """Return a reply; ``usage`` has the tokens written and read as the server says, ``seen`` are those that came."""
    counts = usage.get("completion_tokens"), usage.get("prompt_tokens")
    written, read = (count if _is_count(count) else None for count in counts)
    return Reply(text, reason, seen if written is None else written, uncertainty, read or 0, marks)


def read_models(body: bytes) -> dict[str, str]:
    """Parse a reply of ``/models``: each model's name, and what it is made of (vLLM's ``root``) or "".

    Examples
    --------
    >>> read_models(b'{"data": [{"id": "small-4b", "root": "google/gemma-3-4b-it"}, {"id": "other"}]}')
    {'small-4b': 'google/gemma-3-4b-it', 'other': ''}
    >>> read_models(b"<html>")
    {}
    """
    try:
        return {one["id"]: str(one.get("root") or "") for one in parsed(body)["data"] if isinstance(one["id"], str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


class StreamedReply:
    """A reply that comes as server-sent events, each with the tokens that are new and their text."""

    def __init__(self, signal: UncertaintySignal) -> None:
        self._certainty = signal.certainty
        self._texts: list[str] = []
        self._length = 0
        self._certainties: list[float] = []
        self._marks: list[TokenMark] = []
        self._finish_reason: str | None = None
        self._usage: Any = None

    def take(self, line: bytes) -> None:
        """Take one line of the stream; whatever is no data is passed over.

        Raises MalformedReplyError when it is no part of a completion, or says that there will be none.
        """
        data = line.removeprefix(_DATA).strip()
        if not line.startswith(_DATA) or data == _END:
            return
        try:
            document = parsed(data)
            if "error" in document:
                raise MalformedReplyError(f"the stream broke off: {document['error']}")
            self._usage = document.get("usage") or self._usage
            for choice in document["choices"][:1]:
                self._add(choice)
        except _MISSHAPEN as error:
            raise MalformedReplyError(f"not a stream of a completion: {type(error).__name__}: {error}") from None

    def _add(self, choice: Any) -> None:
        text = choice["delta"].get("content") if "delta" in choice else choice["text"]
        count = len(self._certainties)
        for alternatives in _tokens(choice.get("logprobs")):
            certainty = self._certainty(alternatives)
            sure = certainty if self._certainty is margin else margin(alternatives)
            self._marks.append(TokenMark(self._length, sure))
            self._certainties.append(certainty)
        if isinstance(text, str) and text:
            if len(self._certainties) == count:
                # Of text whose tokens are not known nothing is certain.
                self._marks.append(TokenMark(self._length, 0.0))
            self._texts.append(text)
            self._length += len(text)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._finish_reason = reason

    def reply(self) -> Reply:
        """Return what has come. Raises MalformedReplyError when the stream ended before the answer did."""
        if self._finish_reason is None:
            raise MalformedReplyError("the stream ended before the answer did")
        usage = self._usage if isinstance(self._usage, dict) else {}
        uncertainty = uncertainty_of(self._certainties)
        seen, marks = len(self._certainties), tuple(self._marks)
        return _reply("".join(self._texts), self._finish_reason, uncertainty, usage, seen, marks)


#: What reading something that is no completion as one gives.
_MISSHAPEN = (KeyError, IndexError, TypeError, AttributeError, ValueError)


def _is_count(value: Any) -> TypeGuard[int]:
    """Return whether a result can hold this number; a server may send anything, and in Python true is an integer."""
    return type(value) is int and 0 <= value <= MAX_INTEGER


def _tokens(logprobs: Any) -> Iterator[Collection[float]]:
    """Yield the log-probabilities of the alternatives of each token that carries any."""
    if logprobs is None:
        return
    if "content" in logprobs:
        for token in logprobs["content"] or ():
            if entries := token.get("top_logprobs"):
                # By place, not by text: two alternatives may have the same text. The chosen token can be missing.
                chosen = (token["token"], token["logprob"])
                listed = [(entry["token"], entry["logprob"]) for entry in entries]
                yield [value for _, value in (listed if chosen in listed else [*listed, chosen])]
        return
    for alternatives in logprobs["top_logprobs"] or ():
        if alternatives:
            yield alternatives.values()
