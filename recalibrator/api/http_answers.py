"""What the API answers: JSON, the one shape of errors, entity tags, and the OpenAPI document that describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from threading import Lock
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from recalibrator.api.http_requests import JSON_TYPES, JSONL_TYPES
from schemas.event import MAX_ID_CHARS, QueryId
from schemas.feedback import FeedbackEvent
from ucci_runtime.refusals import RequestRefused

JSON = "application/json"
_NOT_MODIFIED, _REQUEST_TIMEOUT = 304, 408
_TAG_CHARS = 20


class ErrorDetail(BaseModel):
    """What is wrong, for programs and for people."""

    code: str
    message: str
    field: str | None = None


class ErrorBody(BaseModel):
    """The one shape of every error."""

    error: ErrorDetail


def error_body(code: str, message: str, field: str | None = None) -> dict[str, Any]:
    """Return an :class:`ErrorBody`."""
    return {"error": {"code": code, "message": message, "field": field}}


def refusal(error: RequestRefused) -> Response:
    """Return the answer to a request that is not served."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.status == _REQUEST_TIMEOUT:
        # What may still come of the body belongs to nothing.
        headers["Connection"] = "close"
    if error.code.startswith("key_"):
        # A browser asks its user for the key, as the password of any name.
        headers["WWW-Authenticate"] = 'Basic realm="recalibrator: the key is the password"'
    return json_answer(error_body(error.code, str(error), error.field), error.status, headers)


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON; bytes are sent as they are."""
    return Response(content if isinstance(content, bytes) else to_json(content), status, headers, JSON)


def tagged(request: Request, data: bytes, media_type: str = JSON) -> Response:
    """Return a document with its entity tag, or 304 when the caller already has it."""
    tag = f'"{sha256(data).hexdigest()[:_TAG_CHARS]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in {known.strip().removeprefix("W/") for known in request.headers.get("if-none-match", "").split(",")}:
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    return Response(data, headers=headers, media_type=media_type)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of a route, for the OpenAPI document."""
    return {
        status: {"description": _MEANING[status], "headers": _HEADERS.get(status, {}), "content": _ERROR_CONTENT}
        for status in statuses
    }


#: What else :func:`tagged` may answer, for the OpenAPI document.
UNCHANGED: dict[int | str, dict[str, Any]] = {
    _NOT_MODIFIED: {"description": "As the caller's If-None-Match says, nothing has changed"}
}

# By reference, whatever media type the route answers with otherwise.
_ERROR_CONTENT = {JSON: {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds", "required": True, "schema": {"type": "integer"}}}
_HEADERS = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_MEANING = {
    400: "Malformed",
    401: "No valid key",
    403: "The key lacks the scope or is not bound to the labeler, or the request comes from another site",
    404: "Not found",
    408: "The body came too slowly",
    409: "Not possible as things stand",
    413: "Too large",
    415: "Media type not taken",
    422: "A field is wrong",
    429: "Over the quota; see Retry-After",
    503: "The broker is away; see Retry-After",
}


_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def document_of(app: FastAPI, *, has_keys: bool) -> Callable[[], dict[str, Any]]:
    """Return what stands in for ``app.openapi``: makes the document once, callable from any thread."""
    made_by_framework, making = app.openapi, Lock()

    def openapi() -> dict[str, Any]:
        with making:
            # The framework keeps what it has made.
            return app.openapi_schema or _completed(made_by_framework(), has_keys=has_keys)

    return openapi


def _completed(document: dict[str, Any], *, has_keys: bool) -> dict[str, Any]:
    """Add to a document what routes name by reference, and where keys are asked for."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for model in (ErrorBody, FeedbackEvent):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    if has_keys:
        components["securitySchemes"] = _SCHEMES
        guarded = (operations for path, operations in document["paths"].items() if path.startswith("/v1/"))
        for operation in (one for operations in guarded for one in operations.values()):
            operation["security"] = [{name: []} for name in _SCHEMES]
    return document


_EVENT_EXAMPLE = {"query_id": "q-17", "entities": {"camera": "canon 5d", "lens": None}, "labeler": "ann", "revision": 1}
_LINES_EXAMPLE = (
    '{"query_id":"q-17","entities":{"camera":"canon 5d"},"labeler":"ann"}\n{"query_id":"q-18","entities":null}\n'
)
_TAKEN_LINE = '{"line":1,"status":202,"error":null}\n'
_REFUSED_LINE = '{"line":2,"status":422,"error":{"code":"missing_field","message":"…","field":"entities"}}\n'


class WarningDetail(BaseModel):
    """What is probably not meant in feedback that was taken."""

    code: str
    message: str
    field: str


class TakenEvent(BaseModel):
    """The event is in the topic."""

    query_id: QueryId
    #: Sent again under this id, it changes nothing.
    feedback_id: str
    #: What is probably not meant, where it can be known; absent where all is well.
    warnings: list[WarningDetail] = []


class TakenHook(BaseModel):
    """How many events the webhook led to: 1 for an annotation, which is in the topic."""

    taken: int
    query_id: str | None = None
    #: What is probably not meant, as for an event; absent where all is well.
    warnings: list[WarningDetail] = []


class JsonLines(Response):
    """One JSON object a line."""

    media_type = JSONL_TYPES[0]


def _optional(name: str, place: str, meaning: str, **bounds: int) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "description": meaning, "schema": {"type": "string"} | bounds}


def _idempotency_key(meaning: str) -> dict[str, Any]:
    return _optional("Idempotency-Key", "header", meaning, maxLength=MAX_ID_CHARS)


def _request(media_types: tuple[str, ...], content: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    body = {"required": True, "content": dict.fromkeys(media_types, content)}
    return {"requestBody": body, "parameters": list(parameters)}


ONE_EVENT = _request(
    JSON_TYPES,
    {"schema": {"$ref": "#/components/schemas/FeedbackEvent"}, "example": _EVENT_EXAMPLE},
    _idempotency_key("Stands in for a missing feedback_id: the same key again changes nothing."),
)
_LINES = {"type": "string", "description": "A FeedbackEvent a line; blank lines are skipped."}
EVENT_LINES = _request(
    JSONL_TYPES,
    {"schema": _LINES, "example": _LINES_EXAMPLE},
    _idempotency_key("KEY:n stands in for a missing feedback_id on line n."),
)
_HOOK = {
    "action": {"type": "string", "description": "Such as ANNOTATION_CREATED; others are left."},
    "annotation": {"type": "object", "description": "As Label Studio sends it."},
    "task": {"type": "object", "description": "With the query's id in data.query_id or meta.query_id."},
}
_OF_SEVERAL = "Whose queries are labelled, where several are configured and the webhook names no project."
LABEL_STUDIO_HOOK = _request(
    JSON_TYPES,
    {"schema": {"type": "object", "required": ["action"], "properties": _HOOK}},
    _optional("project", "query", "Number of Label Studio's project, for webhooks that name none."),
    _optional("workload", "query", _OF_SEVERAL),
)
BATCH_ANSWERS: dict[int | str, dict[str, Any]] = {
    status: {"description": said, "content": {JSONL_TYPES[0]: {"schema": {"type": "string"}, "example": example}}}
    for status, said, example in (
        (202, "Every line is in the topic", _TAKEN_LINE * 2),
        (207, "A line each; some were not taken", _TAKEN_LINE + _REFUSED_LINE),
    )
}
