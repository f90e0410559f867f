"""Feedback by HTTP: one event, a batch, Label Studio's webhook. 202 only after the broker has acknowledged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from recalibrator.api.answers import documented, error_body, json_answer
from recalibrator.api.bodies import (
    JSON_TYPES,
    JSONL_TYPES,
    body_lines,
    parse_feedback,
    parse_object,
    read_body,
    require_type,
)
from recalibrator.api.context import Context
from recalibrator.api.keys import LOCAL_CALLER
from recalibrator.api.label_studio import deleted_by, feedback_of
from recalibrator.api.recent_annotations import RecentAnnotations
from recalibrator.errors import Refused
from runtime.errors import BrokerUnreachable
from schemas.feedback import FeedbackEvent
from schemas.topics import FEEDBACK

BATCH_FACTOR = 10
"""How much larger than one event's a batch's body may be."""

RETRY_AFTER_S = 5
HOOK_TIMEOUT_S = 0.9
"""Label Studio gives up after 1.0 s."""

_MAX_UNACKNOWLEDGED = 2_000
_MAX_KEY_CHARS = 512
_ACCEPTED, _MULTI_STATUS, _UNAVAILABLE, _UNPROCESSABLE = 202, 207, 503, 422
_EVENT_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
_LINES_BODY = {"requestBody": {"required": True, "content": {"application/jsonl": {"schema": {"type": "string"}}}}}


@dataclass(slots=True)
class _Batch:
    """The lines of one batch so far: number, and status with error where it was not taken."""

    outcomes: dict[int, tuple[int, dict[str, Any] | None]] = field(default_factory=dict)
    waiting: list[tuple[int, FeedbackEvent, asyncio.Future[None]]] = field(default_factory=list)


class FeedbackRoutes:
    """The routes that take feedback.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topic = FEEDBACK.name(context.settings.topics.prefix)
        self._limit = context.settings.recalibrator.max_body_bytes
        self._annotations = RecentAnnotations()
        self.router = APIRouter(tags=["feedback"])
        refusals = documented(400, 401, 403, 408, 413, 415, 422, 429, 503)
        add = self.router.add_api_route
        add(
            "/v1/feedback",
            self.take_one,
            methods=["POST"],
            status_code=_ACCEPTED,
            responses=refusals,
            openapi_extra=_EVENT_BODY,
        )
        add(
            "/v1/feedback:batch",
            self.take_batch,
            methods=["POST"],
            status_code=_ACCEPTED,
            responses={**refusals, 207: {"description": "A line each; some were not taken"}},
            openapi_extra=_LINES_BODY,
        )
        add(
            "/v1/hooks/label-studio",
            self.take_hook,
            methods=["POST"],
            status_code=_ACCEPTED,
            responses=refusals,
            openapi_extra=_EVENT_BODY,
        )

    async def take_one(self, request: Request) -> Response:
        """Take one ``FeedbackEvent``; the header Idempotency-Key stands in for a missing ``feedback_id``."""
        caller = self._context.authorise(request, "feedback")
        require_type(request, JSON_TYPES)
        event = self._attributed(parse_feedback(await read_body(request, self._limit)), caller)
        key = request.headers.get("idempotency-key")
        if key and event.feedback_id is None:
            if len(key) > _MAX_KEY_CHARS:
                message = f"Idempotency-Key: longer than {_MAX_KEY_CHARS} characters"
                raise Refused(_UNPROCESSABLE, "invalid_field", message, "Idempotency-Key")
            event = event.model_copy(update={"feedback_id": key})
        self._context.spend(caller, 1)
        await self._queue(event)
        self._count(event)
        return json_answer({"query_id": event.query_id, "feedback_id": event.identity()}, _ACCEPTED)

    async def take_batch(self, request: Request) -> Response:
        """Take a ``FeedbackEvent`` a line; answers ``{"line", "status", "error"}`` for each."""
        caller = self._context.authorise(request, "feedback")
        require_type(request, JSONL_TYPES)
        self._context.spend(caller, 0)
        batch, number = _Batch(), 0
        async for line in body_lines(request, self._limit * BATCH_FACTOR, self._limit):
            number += 1
            if line.strip():
                self._take_line(batch, number, line, caller)
            if len(batch.waiting) >= _MAX_UNACKNOWLEDGED:
                await self._acknowledge(batch)
        await self._acknowledge(batch)
        self._context.owe(caller, len(batch.outcomes))
        return _batch_answer(batch)

    async def take_hook(self, request: Request) -> Response:
        """Take one webhook of Label Studio; what is not about an annotation is acknowledged and left."""
        caller = self._context.authorise(request, "feedback")
        require_type(request, JSON_TYPES)
        hook = parse_object(await read_body(request, self._limit))
        created, deleted = feedback_of(hook), deleted_by(hook)
        now = self._context.clock.now()
        known = [event for key in deleted if (event := self._annotations.retraction(key, now)) is not None]
        events = known if created is None else [created]
        self._context.spend(caller, len(events))
        try:
            async with asyncio.timeout(HOOK_TIMEOUT_S):
                await asyncio.gather(*(self._queue(event) for event in events))
        except TimeoutError:
            raise _broker_away("the broker did not acknowledge in Label Studio's time; reconcile later") from None
        for event in events:
            self._count(event)
            (self._annotations.forget if event.retracted else self._annotations.remember)(event)
        if len(known) < len(deleted):
            self._context.metrics.count("deletions_unknown", len(deleted) - len(known))
        about = {} if created is None else {"query_id": created.query_id}
        return json_answer({"taken": len(events), **about}, _ACCEPTED)

    def _take_line(self, batch: _Batch, number: int, line: bytes, caller: str) -> None:
        try:
            event = self._attributed(parse_feedback(line), caller)
        except Refused as error:
            batch.outcomes[number] = (error.status, error_body(error.code, str(error), error.field)["error"])
        else:
            batch.outcomes[number] = (_ACCEPTED, None)
            batch.waiting.append((number, event, self._queue(event)))

    async def _acknowledge(self, batch: _Batch) -> None:
        """Wait until the broker has answered for every line so far."""
        results = await asyncio.gather(*(future for _, _, future in batch.waiting), return_exceptions=True)
        for (number, event, _), result in zip(batch.waiting, results, strict=True):
            if isinstance(result, BaseException):
                batch.outcomes[number] = (_UNAVAILABLE, error_body("broker_away", str(result))["error"])
            else:
                self._count(event)
        batch.waiting.clear()

    def _queue(self, event: FeedbackEvent) -> asyncio.Future[None]:
        return self._context.producer.queue(self._topic, event.query_id.encode(), event.to_json())

    def _attributed(self, event: FeedbackEvent, caller: str) -> FeedbackEvent:
        """Name the caller as labeler where the event names nobody."""
        if event.labeler is not None or caller == LOCAL_CALLER:
            return event
        return event.model_copy(update={"labeler": caller})

    def _count(self, event: FeedbackEvent) -> None:
        self._context.metrics.count("feedback", source=event.source or "http")


def _batch_answer(batch: _Batch) -> Response:
    statuses = {status for status, _ in batch.outcomes.values()}
    if statuses == {_UNAVAILABLE}:
        raise _broker_away("no line was acknowledged by the broker: send the batch again")
    lines = b"".join(
        to_json({"line": number, "status": status, "error": error}) + b"\n"
        for number, (status, error) in sorted(batch.outcomes.items())
    )
    status = _ACCEPTED if statuses <= {_ACCEPTED} else _MULTI_STATUS
    return Response(lines, status, media_type="application/jsonl")


def _broker_away(message: str) -> Refused:
    return Refused(_UNAVAILABLE, "broker_away", message, retry_after_s=RETRY_AFTER_S)


def unavailable(error: BrokerUnreachable) -> Refused:
    """Return the refusal that stands for a broker that does not acknowledge."""
    return _broker_away(f"the broker is away: {error}; nothing was taken for sure, send it again")
