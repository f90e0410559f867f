"""Answers in OpenAI's protocol: completions of both kinds, the list of models, and errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from schemas.routed import RoutedEvent
from stream_router.gateway.openai_request import Endpoint

OWNER = "ucci-stream"

_KINDS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
}
_INVALID = "invalid_request_error"


def completion(endpoint: Endpoint, routed: RoutedEvent, ignored: Sequence[str]) -> bytes:
    """Return the answer to a query.

    The text is the entities as one JSON object, every field of the workload in it. Usage counts what both models read
    and wrote for it. What the protocol has no place for stands under ``ucci``.
    """
    text = to_json(routed.entities).decode()
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
    if endpoint == "chat":
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
    else:
        choice["text"] = text
    document = {
        "id": routed.query_id,
        "object": "chat.completion" if endpoint == "chat" else "text_completion",
        "created": int(routed.routed_at.timestamp()),
        "model": routed.workload,
        "choices": [choice],
        "usage": _usage(routed),
        "system_fingerprint": _fingerprint(routed),
        "ucci": _decision(routed) | {"ignored": list(ignored)},
    }
    return to_json(document)


def models(workloads: Iterable[str], since: datetime) -> bytes:
    """Return the workloads as a list of models."""
    created = int(since.timestamp())
    listed = [{"id": name, "object": "model", "created": created, "owned_by": OWNER} for name in sorted(workloads)]
    return to_json({"object": "list", "data": listed})


def model(workload: str, since: datetime) -> bytes:
    """Return one workload as a model."""
    return to_json({"id": workload, "object": "model", "created": int(since.timestamp()), "owned_by": OWNER})


def error(code: str, message: str, status: int, param: str | None = None) -> bytes:
    """Return an error.

    Examples
    --------
    >>> error("over_quota", "try again in 2 s", 429)
    b'{"error":{"message":"try again in 2 s","type":"rate_limit_error","param":null,"code":"over_quota"}}'
    """
    return to_json({"error": {"message": message, "type": _KINDS.get(status, _INVALID), "param": param, "code": code}})


def _usage(routed: RoutedEvent) -> dict[str, int]:
    runs = [run for run in (routed.small, routed.large) if run is not None]
    read = sum(run.prompt_tokens for run in runs)
    written = sum(run.completion_tokens for run in runs)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _fingerprint(routed: RoutedEvent) -> str:
    version = routed.decision.calibration_version
    return f"ucci-{routed.workload}-" + ("cold-start" if version is None else f"v{version}")


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
