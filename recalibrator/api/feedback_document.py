"""The feedback routes in the OpenAPI document: bodies, answers, the Idempotency-Key.

The routes read their bodies as bytes, bounded and streamed, so that the framework cannot know what is in them.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from recalibrator.api.http_requests import JSON_TYPES, JSONL_TYPES
from schemas.event import MAX_ID_CHARS, QueryId

_EVENT = {"$ref": "#/components/schemas/FeedbackEvent"}
_EXAMPLE = {"query_id": "q-17", "entities": {"camera": "canon 5d", "lens": None}, "labeler": "ann", "revision": 1}
_LINE = '{"query_id":"q-17","entities":{"camera":"canon 5d"},"labeler":"ann"}\n{"query_id":"q-18","entities":null}\n'
_ANSWER = '{"line":1,"status":202,"error":null}\n'
_REFUSED = '{"line":2,"status":422,"error":{"code":"missing_field","message":"…","field":"entities"}}\n'


class TakenEvent(BaseModel):
    """The event is in the topic."""

    query_id: QueryId
    feedback_id: str
    """Sent again under this id, it changes nothing."""


class TakenHook(BaseModel):
    """What the webhook led to: 1 when it told of an annotation, which is in the topic."""

    taken: int
    query_id: str | None = None


class JsonLines(Response):
    """One JSON object a line."""

    media_type = JSONL_TYPES[0]


def _idempotency_key(meaning: str) -> dict[str, Any]:
    schema = {"type": "string", "maxLength": MAX_ID_CHARS}
    return {"name": "Idempotency-Key", "in": "header", "required": False, "description": meaning, "schema": schema}


def _body(media_types: tuple[str, ...], content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": dict.fromkeys(media_types, content)}}


ONE_EVENT = _body(JSON_TYPES, {"schema": _EVENT, "example": _EXAMPLE}) | {
    "parameters": [_idempotency_key("Stands in for a missing feedback_id: the same key again changes nothing.")]
}
EVENT_LINES = _body(
    JSONL_TYPES,
    {"schema": {"type": "string", "description": "A FeedbackEvent a line; blank lines are skipped."}, "example": _LINE},
) | {"parameters": [_idempotency_key("KEY:n stands in for a missing feedback_id on line n.")]}
LABEL_STUDIO_HOOK = _body(
    JSON_TYPES,
    {
        "schema": {
            "type": "object",
            "required": ["action"],
            "properties": {
                "action": {"type": "string", "description": "Such as ANNOTATION_CREATED; others are left."},
                "annotation": {"type": "object", "description": "As Label Studio tells it."},
                "task": {"type": "object", "description": "With the query's id in data.query_id or meta.query_id."},
            },
        }
    },
)
BATCH_ANSWERS: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "Every line is in the topic",
        "content": {JSONL_TYPES[0]: {"schema": {"type": "string"}, "example": _ANSWER * 2}},
    },
    207: {
        "description": "A line each; some were not taken",
        "content": {JSONL_TYPES[0]: {"schema": {"type": "string"}, "example": _ANSWER + _REFUSED}},
    },
}
