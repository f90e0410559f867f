"""Reads a model server's reply: its text, how it ended, and u. Pure.

Both shapes of log-probabilities are read: one mapping a token (completions) and a list of entries (chat; some servers
send it for completions too). The order of alternatives means nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, TypeGuard

from pydantic_core import from_json

from schemas.event import MAX_INTEGER
from stream_router.errors import MalformedReplyError
from stream_router.model_client.uncertainty import UncertaintySignal
from stream_router.ports import Reply

_MAX_REASON_CHARS = 64


def read_reply(body: bytes, signal: UncertaintySignal) -> Reply:
    """Parse a reply of ``/completions`` or ``/chat/completions``.

    Parameters
    ----------
    body : bytes
    signal : UncertaintySignal
        How u is measured.

    Raises
    ------
    MalformedReplyError
        When it is not such a reply.
    """
    try:
        document = from_json(body)
    except ValueError as error:
        raise MalformedReplyError(f"not valid JSON: {error}") from None
    try:
        choice = document["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        tokens = list(_tokens(choice.get("logprobs")))
        uncertainty = signal.of(tokens)
        counted = (document.get("usage") or {}).get("completion_tokens")
        reason = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise MalformedReplyError(f"not a completion: {type(error).__name__}: {error}") from None
    return Reply(
        text=text if isinstance(text, str) else "",
        # A word by the protocol; whatever else a server sends goes into every result.
        finish_reason=reason[:_MAX_REASON_CHARS] if isinstance(reason, str) else None,
        completion_tokens=counted if _is_count(counted) else len(tokens),
        uncertainty=uncertainty,
    )


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
        listed = from_json(body)["data"]
        return {one["id"]: str(one.get("root") or "") for one in listed if isinstance(one["id"], str)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


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
                # By place, not by text: two alternatives may read alike. The chosen token can be missing.
                chosen = (token["token"], token["logprob"])
                listed = [(entry["token"], entry["logprob"]) for entry in entries]
                yield [value for _, value in (listed if chosen in listed else [*listed, chosen])]
        return
    for alternatives in logprobs["top_logprobs"] or ():
        if alternatives:
            yield alternatives.values()
