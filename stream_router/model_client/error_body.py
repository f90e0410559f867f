"""Reads what a server says went wrong out of a body that holds an error instead of a completion. Pure.

Servers, and the proxies in front of them, send such bodies under any HTTP status, 200 included, and in the middle of a
stream. The shapes are those of the OpenAI API, vLLM, FastAPI, RFC 9457 and of proxies that hand on one of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from schemas.errors import one_line

_MAX_WORDS = 300
_WORDLESS = "an error without words"
_HTTP_ERRORS = range(400, 600)
_UNPROCESSABLE = 422
#: Longer texts are sentences, and not names of a kind of error.
_MAX_NAME_CHARS = 40
_NUMBERED = ("code", "status", "status_code", "statusCode", "http_status")
_NAMED = (*_NUMBERED, "type", "error_type", "param_type")
_WORDED = ("message", "msg", "detail", "title", "reason", "description", "error_description")

#: Parts of the names that servers give to kinds of errors, letters alone, and the status that says the same.
_STATUS_BY_NAME: Mapping[str, int] = {
    **dict.fromkeys(("authenticat", "unauthorized", "apikey"), 401),
    **dict.fromkeys(("permission", "forbidden"), 403),
    **dict.fromkeys(("notfound", "nosuchmodel"), 404),
    "methodnotallowed": 405,
    **dict.fromkeys(("ratelimit", "toomanyrequests", "overload", "quota", "resourceexhausted"), 429),
    "unavailable": 503,
    **dict.fromkeys(("timeout", "timedout", "deadlineexceeded"), 504),
    **dict.fromkeys(("invalidrequest", "badrequest", "invalidargument", "unsupported"), 400),
    **dict.fromkeys(("contextlength", "contextwindow", "validation", "unprocessable"), 400),
}
_NO_LETTER = re.compile(r"[^a-z]+")


class Complaint(NamedTuple):
    """What a server says went wrong."""

    #: The HTTP status that means the same; None where the body does not say.
    status: int | None
    #: The server's own words, one line.
    words: str


def complaint_of(document: Any) -> Complaint | None:
    """Return the error that a parsed body holds, or None where it holds none.

    Examples
    --------
    >>> complaint_of({"object": "error", "message": "too long", "code": 400})
    Complaint(status=400, words='too long')
    >>> complaint_of({"error": {"message": "who are you?", "type": "authentication_error"}})
    Complaint(status=401, words='who are you?')
    >>> complaint_of({"object": "list", "data": []}) is None
    True
    """
    if isinstance(document, list):
        return next(filter(None, map(complaint_of, document[:1])), None)
    if not isinstance(document, dict):
        return None
    inner = document.get("error") or document.get("errors")
    if isinstance(inner, list):
        inner = inner[0]
    layers = [layer for layer in (inner, document) if isinstance(layer, dict)]
    words = _words(inner, layers)
    if words is None:
        return None
    return Complaint(_status(layers), one_line(" ".join(words.split()), _MAX_WORDS) or _WORDLESS)


def _words(inner: Any, layers: list[dict[str, Any]]) -> str | None:
    if isinstance(inner, str):
        return inner
    for layer in layers:
        for name in _WORDED:
            said = layer.get(name)
            if isinstance(said, str) and said.strip():
                return said
            if said and name == "detail":
                return _rendered(said)
    return _rendered(inner) if inner else None


def _rendered(said: Any) -> str:
    try:
        return json.dumps(said, ensure_ascii=False)
    except ValueError:
        # Python writes no integer of more than 4,300 digits.
        return _WORDLESS


def _status(layers: list[dict[str, Any]]) -> int | None:
    for layer in layers:
        for name in _NUMBERED:
            number = layer.get(name)
            if isinstance(number, str) and number.isascii() and number.isdecimal():
                number = int(number[:4])
            if type(number) is int and number in _HTTP_ERRORS:
                return number
    for name in _names(layers):
        for part, status in _STATUS_BY_NAME.items():
            if part in name:
                return status
    # What FastAPI sends of a request that does not fit its schema.
    return _UNPROCESSABLE if any(isinstance(layer.get("detail"), list) for layer in layers) else None


def _names(layers: list[dict[str, Any]]) -> Iterator[str]:
    for layer in layers:
        for key in (*_NAMED, "detail", "error"):
            name = layer.get(key)
            if isinstance(name, str) and len(name) <= _MAX_NAME_CHARS:
                yield _NO_LETTER.sub("", name.lower())
