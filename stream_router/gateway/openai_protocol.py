"""A request in OpenAI's protocol as a query of a workload, or why it is none. Pure.

The workload decides prompt, models and decoding. What a request says of these is ignored and named in the answer; what
would change the shape of the answer, or what the caller pays for, is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from schemas.errors import DecodeError
from schemas.event import MAX_ID_CHARS, decode_error, refuse_duplicate_keys
from schemas.json_bytes import validated
from schemas.routed import QueryEvent, RoutedEvent
from ucci_runtime.refusals import RequestRefused

Endpoint = Literal["completions", "chat"]

#: May stand before a workload's name, for callers who route by a model's name.
MODEL_PREFIX = "ucci:"

#: Means the default workload.
DEFAULT_MODEL = "ucci"

ID_HEADER = "X-Query-Id"

_BAD_REQUEST, _NOT_FOUND = 400, 404
_NAMES_SHOWN = 10
_CHARS_SHOWN = 60
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_TEXT_PART = "text"
_USER = "user"


_ONE_ANSWER = "a query has one answer; send 1, or leave it out"
_NO_TOOLS = "the answer is a JSON object of the workload's fields; leave it out"
_NO_PROBABILITIES = "token probabilities are not passed on; the answer carries ucci.uncertainty; leave it out"
_ONLY_TEXT = "queries and answers are text; leave it out"

#: Parameters that are not offered: the values that ask for nothing, and what to do.
_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "stream": ((None, False), "whether the small answer is served is known only when it is whole; send false"),
    "n": ((None, 1), _ONE_ANSWER),
    "best_of": ((None, 1), _ONE_ANSWER),
    "logprobs": ((None, False), _NO_PROBABILITIES),
    "top_logprobs": ((None, 0), _NO_PROBABILITIES),
    "prompt_logprobs": ((None, 0), _NO_PROBABILITIES),
    "tools": ((None, []), _NO_TOOLS),
    "functions": ((None, []), _NO_TOOLS),
    "tool_choice": ((None, "none", "auto"), _NO_TOOLS),
    "function_call": ((None, "none", "auto"), _NO_TOOLS),
    "web_search_options": ((None,), _NO_TOOLS),
    "prediction": ((None,), _NO_TOOLS),
    "echo": ((None, False), "the prompt is not repeated; send false"),
    "suffix": ((None, ""), "the answer is a JSON object and is not completed by a text; leave it out"),
    "modalities": ((None, ["text"]), _ONLY_TEXT),
    "audio": ((None,), _ONLY_TEXT),
}

_FORMATS = ("text", "json_object")
_READ = frozenset({"model", "metadata", "response_format"})


class Call(NamedTuple):
    """A request that can be answered."""

    query: QueryEvent
    workload: str
    #: What the request asked for without effect, by name.
    ignored: tuple[str, ...]


class Workloads(NamedTuple):
    """What a caller may ask for: the configured workloads, and the one of requests that name none."""

    names: Collection[str]
    default: str | None

    def named(self, model: str) -> str | None:
        """Return the workload that a model's name means, the default one where it is empty; None for no workload."""
        if model in ("", DEFAULT_MODEL) and model not in self.names:
            return self.default
        return next((name for name in (model, model.removeprefix(MODEL_PREFIX)) if name in self.names), None)


def read_call(endpoint: Endpoint, body: bytes, workloads: Workloads, given_id: str | None, made_id: str) -> Call:
    """Read the body of a request. Raises RequestRefused: 400 or 404, naming field, value and remedy."""
    document = _document(body)
    workload = _workload(document.get("model"), workloads)
    ignored = _checked(document, endpoint)
    place, text, more = _prompt(document) if endpoint == "completions" else _last_of_user(document)
    metadata = document.get("metadata")
    id_place, query_id = _query_id(metadata, given_id, made_id)
    fields = {"query_id": query_id, "text": text, "workload": workload, "metadata": metadata}
    try:
        query = QueryEvent.model_validate(fields)
    except ValidationError as error:
        raise _as_refused(decode_error(error), {"text": place, "query_id": id_place}) from None
    return Call(query, workload, (*more, *ignored))


def _document(body: bytes) -> dict[str, Any]:
    try:
        document: dict[str, Any] = validated(_OBJECT.validator, body)
        refuse_duplicate_keys(body)
    except ValidationError as error:
        found = decode_error(error)
        line = str(found) if found.reason == "not_json" else "the body must be a JSON object"
        raise RequestRefused(_BAD_REQUEST, "invalid_body", f"{line}; send Content-Type: application/json") from None
    except DecodeError as error:
        raise _as_refused(error, {}) from None
    return document


def _as_refused(error: DecodeError, places: Mapping[str, str]) -> RequestRefused:
    """Return what the parser found, in the names of the request."""
    field, message = error.field, str(error)
    if field is not None and field in places:
        field, message = places[field], message.replace(f"{field}:", f"{places[field]}:", 1)
    return RequestRefused(_BAD_REQUEST, "invalid_value", message, field)


def _workload(model: Any, workloads: Workloads) -> str:
    known = ", ".join(sorted(workloads.names)[:_NAMES_SHOWN])
    if model is not None and not isinstance(model, str):
        raise _invalid("model", model, f"must be the name of a workload: {known}")
    if (found := workloads.named(model or "")) is not None:
        return found
    if model in (None, "", DEFAULT_MODEL):
        message = f"names no workload, and several are configured: {known}; name one, or set default_workload"
        raise RequestRefused(_BAD_REQUEST, "missing_workload", f"model: {message}", "model")
    message = f"model: {model[:_CHARS_SHOWN]!r} is not a configured workload; known: {known}"
    raise RequestRefused(_NOT_FOUND, "model_not_found", message, "model")


def _checked(document: Mapping[str, Any], endpoint: Endpoint) -> tuple[str, ...]:
    for name, (harmless, remedy) in _REFUSED.items():
        value = document.get(name)
        if not any(type(value) is type(one) and value == one for one in harmless):
            raise _invalid(name, value, f"is not offered here: {remedy}", "unsupported_parameter")
    wanted = document.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else wanted
    if wanted is not None and kind not in _FORMATS:
        remedy = "the workload's fields are the shape of the answer; send json_object or leave it out"
        raise _invalid("response_format.type", kind, f"is not offered here: {remedy}", "unsupported_parameter")
    read = _READ | _REFUSED.keys() | {"prompt" if endpoint == "completions" else "messages"}
    return tuple(sorted(name for name, value in document.items() if value is not None and name not in read))


def _prompt(document: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        (prompt,) = prompt
    if prompt is None:
        raise _missing("prompt: is required and missing")
    if not isinstance(prompt, str):
        raise _invalid("prompt", prompt, "must be one text, not tokens or several: send a request for each")
    return "prompt", prompt, ()


def _last_of_user(document: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    messages = document.get("messages")
    if messages is None:
        raise _missing("messages: is required and missing")
    if not isinstance(messages, list):
        raise _invalid("messages", messages, "must be a list of messages")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid(f"messages[{number}]", message, "must be an object with a role")
    number = max((n for n, message in enumerate(messages) if message["role"] == _USER), default=-1)
    if number < 0:
        raise _missing("messages: holds no message of the role user")
    place = f"messages[{number}].content"
    return place, _content(place, messages[number].get("content")), ("messages",) if len(messages) > 1 else ()


def _content(place: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _invalid(place, content, "must be a text, or a list of text parts")
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != _TEXT_PART or not isinstance(part.get("text"), str):
            raise _invalid(f"{place}[{number}].type", kind, f"must be text: {_ONLY_TEXT}")
        texts.append(part["text"])
    return "\n".join(texts)


def _query_id(metadata: Any, given_id: str | None, made_id: str) -> tuple[str, str]:
    if metadata is not None and not isinstance(metadata, dict):
        raise _invalid("metadata", metadata, "must be an object")
    named = None if metadata is None else metadata.get("query_id")
    if named is not None and not isinstance(named, str):
        raise _invalid("metadata.query_id", named, f"must be a text of 1 to {MAX_ID_CHARS} characters")
    if given_id is None:
        return "metadata.query_id", made_id if named is None else named
    if not (given_id.isascii() and given_id.isprintable()):
        raise _invalid(ID_HEADER, given_id, "must be visible ASCII: send other ids as metadata.query_id")
    if named is not None and named != given_id:
        raise _invalid("metadata.query_id", named, f"is not the id of the header {ID_HEADER}: send one of them")
    return ID_HEADER, given_id


def _missing(message: str) -> RequestRefused:
    return RequestRefused(_BAD_REQUEST, "missing_field", message, message.partition(":")[0])


def _invalid(name: str, value: Any, remedy: str, code: str = "invalid_value") -> RequestRefused:
    # Of a text no more is taken than is shown: it may be as long as the body.
    if isinstance(value, str | list):
        value = value[: _CHARS_SHOWN + 1]
    elif isinstance(value, dict) and len(value) > _NAMES_SHOWN:
        value = "…"
    shown = repr(value)
    shown = shown if len(shown) <= _CHARS_SHOWN else f"{shown[:_CHARS_SHOWN]}…"
    return RequestRefused(_BAD_REQUEST, code, f"{name}: {remedy} (got {shown})", name)


OWNER = "ucci-stream"

_KINDS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    **dict.fromkeys((500, 502, 503, 504), "server_error"),
}
_INVALID = "invalid_request_error"


def completion(endpoint: Endpoint, routed: RoutedEvent, ignored: Sequence[str]) -> dict[str, Any]:
    """Return the answer to a query.

    The text is the entities as one JSON object, every field of the workload in it. Usage counts what both models read
    and wrote for it. What the protocol has no place for stands under ``ucci``.
    """
    text = to_json(routed.entities).decode()
    message = {"role": "assistant", "content": text, "refusal": None}
    content = {"message": message} if endpoint == "chat" else {"text": text}
    version = routed.decision.calibration_version
    runs = [run for run in (routed.small, routed.large) if run is not None]
    read, written = sum(run.prompt_tokens for run in runs), sum(run.completion_tokens for run in runs)
    return {
        "id": routed.query_id,
        "object": "chat.completion" if endpoint == "chat" else "text_completion",
        "created": int(routed.routed_at.timestamp()),
        "model": routed.workload,
        "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, **content}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        "system_fingerprint": f"ucci-{routed.workload}-" + ("cold-start" if version is None else f"v{version}"),
        "ucci": _decision(routed) | {"ignored": list(ignored)},
    }


def models(workloads: Iterable[str], since: datetime) -> dict[str, Any]:
    """Return the workloads as a list of models."""
    return {"object": "list", "data": [model(name, since) for name in sorted(workloads)]}


def model(workload: str, since: datetime) -> dict[str, Any]:
    """Return one workload as a model."""
    return {"id": workload, "object": "model", "created": int(since.timestamp()), "owned_by": OWNER}


def error(code: str, message: str, status: int, param: str | None = None) -> dict[str, Any]:
    """Return an error."""
    return {"error": {"message": message, "type": _KINDS.get(status, _INVALID), "param": param, "code": code}}


def _decision(routed: RoutedEvent) -> dict[str, Any]:
    decision = routed.decision
    return {
        "query_id": routed.query_id,
        "workload": routed.workload,
        "entities": routed.entities,
        "answered_by": routed.answered_by,
        "escalated": decision.escalated,
        "reason": decision.reason,
        "uncertainty": decision.uncertainty,
        "error_probability": decision.error_probability,
        "calibration_version": decision.calibration_version,
        "label_requested": routed.label.requested,
    }
