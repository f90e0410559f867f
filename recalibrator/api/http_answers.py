"""What the API answers: JSON, the one shape of errors, and entity tags."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from recalibrator.errors import Refused

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
    """Return the one shape of errors."""
    return {"error": {"code": code, "message": message, "field": field}}


def refusal(error: Refused) -> Response:
    """Return the answer to a request that is not served."""
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.status == _REQUEST_TIMEOUT:
        # What may still come of the body belongs to nothing.
        headers["Connection"] = "close"
    if error.code.startswith("key_"):
        # A browser asks its user for the key, as the password of any name.
        headers["WWW-Authenticate"] = 'Basic realm="recalibrator: the key is the password"'
    return json_answer(error_body(error.code, str(error), error.field), status=error.status, headers=headers)


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON; bytes are sent as they are."""
    data = content if isinstance(content, bytes) else to_json(content)
    return Response(data, status, headers, JSON)


def tagged(request: Request, data: bytes, media_type: str = JSON) -> Response:
    """Return a document with its entity tag, or 304 when the caller has it."""
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


UNCHANGED: dict[int | str, dict[str, Any]] = {
    _NOT_MODIFIED: {"description": "As the caller's If-None-Match says, nothing has changed"}
}
"""What :func:`tagged` may answer besides, for the OpenAPI document."""

# By reference, whatever media type the route answers with otherwise.
_ERROR_CONTENT = {JSON: {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}}
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
    413: "Too large",
    415: "Media type not taken",
    422: "A field is wrong",
    429: "Over the quota; see Retry-After",
    503: "The broker is away; see Retry-After",
}
