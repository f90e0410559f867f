"""Reads a model server's reply: its text, how it ended, and u; whole, or as a stream of events. Pure.

Both shapes of log-probabilities are read: one mapping a token (completions) and a list of entries (chat; some servers
send it for completions too). The order of alternatives means nothing. What the model thought before it answered is no
part of the text, and its tokens are none of u.

A reply whose numbers cannot give the u of its answer is a reply all the same, since another attempt would bring the
same: its ``defect`` says why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, TypeGuard

from schemas.event import MAX_INTEGER
from schemas.json_bytes import parsed
from stream_router.errors import ErrorReplyError, MalformedReplyError
from stream_router.model_client.error_body import complaint_of
from stream_router.model_client.thinking import answer_start, first_own_token, first_token_from
from stream_router.model_client.uncertainty import SignalError, UncertaintySignal, margin, uncertainty_of
from stream_router.ports import Reply, TokenMark

_DATA = b"data:"
_END = b"[DONE]"

_MAX_REASON_CHARS = 64
_SHOWN_BYTES = 80
_MAX_BYTE = 255
#: Parts of a message that hold thinking.
_THINKING = ("reasoning", "thinking")
_TEXT_PARTS = ("text", "output_text")
_MINGLED = (
    "the model thinks before it answers, and the reply does not say which tokens are the answer's own: ask it by "
    'api = "chat", at a server that parts both (vLLM: --reasoning-parser), or switch its thinking off'
)


class _Measured(NamedTuple):
    """What a reply's tokens say."""

    #: Of the answer's own tokens.
    certainties: Sequence[float]
    #: Why they say nothing.
    defect: str | None
    thought: bool


def read_reply(body: bytes, signal: UncertaintySignal) -> Reply:
    """Parse a reply of ``/completions`` or ``/chat/completions``.

    Raises MalformedReplyError when it is none, and ErrorReplyError when it says itself what went wrong.
    """
    document = _parsed_reply(body)
    try:
        choice = document["choices"][0]
        if choice.get("error"):
            _complain(choice)
        message = choice.get("message", choice)
        text = _text(choice["text"] if message is choice else message.get("content"))
        usage = document.get("usage") or {}
        logprobs = choice.get("logprobs")
        start = answer_start(text)
        thoughts = _hidden(usage)
        if start or thoughts or _thinks(message):
            measured = _measured_apart(logprobs, signal, (text, start), usage, thoughts)
        else:
            measured = _measured(list(_tokens(logprobs)), signal)
        reply = _reply(text[start:] if start else text, choice.get("finish_reason"), usage, measured)
    except _MISSHAPEN as error:
        raise MalformedReplyError(f"not a completion: {type(error).__name__}: {error}") from None
    if not reply.text and message.get("tool_calls"):
        return replace(reply, defect="the reply calls a tool instead of answering in text")
    return reply


def _parsed_reply(body: bytes) -> Any:
    try:
        document = parsed(body)
    except ValueError as error:
        if not body.strip():
            raise MalformedReplyError("the body is empty") from None
        begins = body[:_SHOWN_BYTES].decode(errors="replace")
        raise MalformedReplyError(f"not valid JSON: {error}; it begins: {begins}") from None
    if not (isinstance(document, dict) and document.get("choices")):
        if (complaint := complaint_of(document)) is not None:
            raise ErrorReplyError(complaint.words, complaint.status)
        raise MalformedReplyError("not a completion: it holds no choices")
    return document


def _complain(part: Any) -> NoReturn:
    complaint = complaint_of(part)
    assert complaint is not None, "an error that is not empty has words"
    raise ErrorReplyError(complaint.words, complaint.status)


def _text(content: Any) -> str:
    """Return the text of a message's content; chat servers may send it in parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS)
        return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    return ""


def _thinks(message: Any) -> bool:
    # Spelt out: in a loop over the names it took a fiftieth of what a reply takes.
    if message.get("reasoning_content") or message.get("reasoning") or message.get("thinking"):
        return True
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") in _THINKING for part in content
    )


def _hidden(usage: Any) -> int:
    """Return how many tokens of thinking the server counts that it may not show."""
    details = usage.get("completion_tokens_details")
    return (_count(details.get("reasoning_tokens")) or 0) if isinstance(details, dict) else 0


def _measured(tokens: Collection[Collection[float]], signal: UncertaintySignal) -> _Measured:
    try:
        return _Measured(signal.certainties(tokens), None, thought=False)
    except SignalError as error:
        return _Measured((), str(error), thought=False)


def _measured_apart(
    logprobs: Any, signal: UncertaintySignal, placed: tuple[str, int], usage: Any, thoughts: int
) -> _Measured:
    """Measure the tokens of the answer alone, which begins at a place in the text; ``thoughts``: tokens before it."""
    text, start = placed
    written = _count(usage.get("completion_tokens"))
    first = None if logprobs is None else _first_own(logprobs, text, start)
    if first is None and thoughts and written is not None:
        # The thinking comes first; of a server that measures the answer alone, nothing is left to pass over.
        first = max(0, sum(1 for _ in _tokens(logprobs)) - (written - thoughts))
    if first is None and logprobs is not None and text[start:].strip():
        return _Measured((), _MINGLED, thought=True)
    return _measured(list(_tokens(logprobs, first or 0)), signal)._replace(thought=True)


def _first_own(logprobs: Any, text: str, start: int) -> int | None:
    answer = text[start:].strip()
    if "content" in logprobs:
        return first_own_token([_spelt(token) for token in logprobs["content"] or ()], answer)
    names = [str(name).encode() for name in logprobs.get("tokens") or ()]
    first = first_own_token(names, answer)
    if first is None and start:
        offsets = logprobs.get("text_offset")
        if isinstance(offsets, list) and all(map(_is_count, offsets)):
            first = first_token_from(offsets, start, len(text))
    return first


def _spelt(token: Any) -> bytes:
    """Return what a token stands for; its name may be a number."""
    spelt = token.get("bytes")
    if isinstance(spelt, list) and all(type(one) is int and 0 <= one <= _MAX_BYTE for one in spelt):
        return bytes(spelt)
    return str(token["token"]).encode()


def _reply(
    text: str, reason: Any, usage: Any, measured: _Measured, marks: tuple[TokenMark, ...] = (), more: int = 0
) -> Reply:
    """Return a reply; ``usage`` has the tokens written and read as the server says, ``more`` came without being own."""
    written = _count(usage.get("completion_tokens"))
    read = _count(usage.get("prompt_tokens"))
    seen = len(measured.certainties)
    defect = measured.defect or (None if measured.thought else _too_few(seen, written))
    uncertainty = uncertainty_of(measured.certainties) if defect is None else None
    if defect is None and uncertainty is not None and not text:
        defect = "the reply holds thinking and no answer" if measured.thought else "the reply holds no text"
    return Reply(
        text,
        # A word by the protocol; whatever else a server sends goes into every result.
        reason[:_MAX_REASON_CHARS] if isinstance(reason, str) else None,
        seen + more if written is None else written,
        uncertainty,
        read or 0,
        marks,
        defect,
        seen,
        measured.thought,
    )


def _too_few(seen: int, written: int | None) -> str | None:
    """Return why u would not be of the answer, where fewer than half of its tokens carry probabilities.

    The end of sequence may be among those written and not among those seen. Half: u is a mean, and that of most tokens
    still follows the answer's, as a calibration then takes it.
    """
    if written is None or not seen or 2 * seen + 1 >= written:
        return None
    return f"the server gives log-probabilities of {seen} of the {written} tokens that it wrote"


def read_models(body: bytes) -> dict[str, str]:
    """Parse a reply of ``/models``: each model's name, and what it is made of (vLLM's ``root``) or "".

    Examples
    --------
    >>> read_models(b'{"data": [{"id": "small-4b", "root": "google/gemma-3-4b-it"}, {"id": "other"}]}')
    {'small-4b': 'google/gemma-3-4b-it', 'other': ''}
    >>> read_models(b'["small-4b", {"name": "other"}]')
    {'small-4b': '', 'other': ''}
    >>> read_models(b"<html>")
    {}
    """
    try:
        document = parsed(body)
    except ValueError:
        return {}
    listed = document
    if isinstance(document, dict):
        listed = document.get("data") or document.get("models")
    roots: dict[str, str] = {}
    for model in listed if isinstance(listed, list) else ():
        entry = model if isinstance(model, dict) else {"id": model}
        name = next((entry[key] for key in ("id", "name", "model") if entry.get(key)), None)
        if isinstance(name, str):
            roots[name] = str(entry.get("root") or "")
    return roots


class StreamedReply:
    """A reply that comes as server-sent events, each with the tokens that are new and their text."""

    def __init__(self, signal: UncertaintySignal) -> None:
        self._certainty = signal.certainty
        self._texts: list[str] = []
        self._length = 0
        #: Of each token that carries probabilities: where its text begins, and how certain it is.
        self._certainties: list[TokenMark] = []
        self._marks: list[TokenMark] = []
        self._thoughts = 0
        self._has_thought = False
        self._defect: str | None = None
        self._has_ended = False
        self._finish_reason: str | None = None
        self._usage: Any = None

    def take(self, line: bytes) -> None:
        """Take one line of the stream; whatever is no data is passed over.

        Raises MalformedReplyError when it is no part of a completion, and ErrorReplyError when it says that there will
        be none.
        """
        data = line.removeprefix(_DATA).strip()
        if not line.startswith(_DATA):
            return
        if data == _END:
            self._has_ended = True
            return
        try:
            document = parsed(data)
            if document.get("error") or not document.get("choices"):
                self._break_off(document)
            self._usage = document.get("usage") or self._usage
            for choice in document["choices"][:1]:
                self._add(choice)
        except _MISSHAPEN as error:
            raise MalformedReplyError(f"not a stream of a completion: {type(error).__name__}: {error}") from None

    def _break_off(self, document: Any) -> None:
        if (complaint := complaint_of(document)) is not None:
            raise ErrorReplyError(f"the stream broke off: {complaint.words}", complaint.status)

    def _add(self, choice: Any) -> None:
        delta = choice.get("delta", choice)
        text = _text(choice["text"] if delta is choice else delta.get("content"))
        if not text and _thinks(delta):
            self._has_thought = True
            self._thoughts += sum(1 for _ in _tokens(choice.get("logprobs")))
        else:
            count = len(self._certainties)
            for alternatives in _tokens(choice.get("logprobs")):
                self._add_token(alternatives)
            if text and len(self._certainties) == count:
                # Of text whose tokens are not known nothing is certain.
                self._marks.append(TokenMark(self._length, 0.0))
        if text:
            self._texts.append(text)
            self._length += len(text)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._finish_reason = reason

    def _add_token(self, alternatives: Collection[float]) -> None:
        try:
            certainty = self._certainty(alternatives)
            sure = certainty if self._certainty is margin else margin(alternatives)
        except SignalError as error:
            self._defect = str(error)
            return
        if certainty == certainty:  # noqa: PLR0124  not NaN: the token carries probabilities
            self._marks.append(TokenMark(self._length, sure))
            self._certainties.append(TokenMark(self._length, certainty))

    def reply(self) -> Reply:
        """Return what has come. Raises MalformedReplyError when the stream ended before the answer did."""
        if self._finish_reason is None and not self._has_ended:
            raise MalformedReplyError("the stream ended before the answer did")
        usage = self._usage if isinstance(self._usage, dict) else {}
        text = "".join(self._texts)
        marks = self._marks
        certainties = self._certainties
        start = answer_start(text)
        if start:
            marks = [TokenMark(begins - start, sure) for begins, sure in marks if begins >= start]
            certainties = [one for one in certainties if one.start >= start]
        measured = _Measured([sure for _, sure in certainties], self._defect, self._has_thought or start > 0)
        more = self._thoughts + len(self._certainties) - len(certainties)
        return _reply(text[start:], self._finish_reason, usage, measured, tuple(marks), more)


#: What reading something that is no completion as one gives.
_MISSHAPEN = (KeyError, IndexError, TypeError, AttributeError, ValueError)


def _count(value: Any) -> int | None:
    return value if _is_count(value) else None


def _is_count(value: Any) -> TypeGuard[int]:
    """Return whether a result can hold this number; a server may send anything, and in Python true is an integer."""
    return type(value) is int and 0 <= value <= MAX_INTEGER


def _tokens(logprobs: Any, first: int = 0) -> Iterator[Collection[float]]:
    """Yield the log-probabilities of the alternatives of each token that carries any, from the first one on."""
    if logprobs is None:
        return
    if "content" in logprobs:
        for token in (logprobs["content"] or ())[first:]:
            if entries := token.get("top_logprobs"):
                # By place, not by text: two alternatives may have the same text. The chosen token can be missing.
                chosen = (token["token"], token["logprob"])
                listed = [(entry["token"], entry["logprob"]) for entry in entries]
                is_listed = chosen in listed or chosen[1] is None
                yield [value for _, value in (listed if is_listed else [*listed, chosen])]
        return
    for alternatives in (logprobs["top_logprobs"] or ())[first:]:
        if alternatives:
            yield alternatives.values()
