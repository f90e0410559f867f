"""Request bodies, bounded before they are parsed: raw bytes in, events or one clear refusal out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request

from recalibrator.errors import Refused
from schemas.errors import DecodeError
from schemas.event import decode_error
from schemas.feedback import FeedbackEvent

BODY_TIMEOUT_S = 20.0
"""How long a body may take to come, so that slow senders do not hold connections for ever."""

JSON_TYPES = ("application/json",)
JSONL_TYPES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines", "text/plain")

_BAD_REQUEST, _TIMEOUT, _TOO_LARGE, _MEDIA_TYPE, _UNPROCESSABLE = 400, 408, 413, 415, 422
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def require_type(request: Request, allowed: tuple[str, ...]) -> None:
    """Refuse a body of another media type; none given counts as the first.

    Raises
    ------
    Refused
        415.
    """
    given = request.headers.get("content-type", allowed[0]).partition(";")[0].strip().lower()
    if given not in allowed:
        raise Refused(_MEDIA_TYPE, "media_type", f"media type {given[:60]!r} is not taken here: send {allowed[0]}")


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body.

    Raises
    ------
    Refused
        413 as soon as it is longer than ``limit`` bytes, 408 when it comes too slowly.
    """
    chunks = [chunk async for chunk in body_chunks(request, limit)]
    return b"".join(chunks)


async def body_chunks(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it comes.

    Raises
    ------
    Refused
        As :func:`read_body`.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                yield chunk
    except TimeoutError:
        raise Refused(_TIMEOUT, "slow_body", f"the body did not come within {BODY_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise Refused(_BAD_REQUEST, "disconnected", "the caller left before the body was complete") from None


async def body_lines(request: Request, limit: int, line_limit: int) -> AsyncIterator[bytes]:
    """Yield the lines of a body as they come, without their ends; the last may lack one.

    Raises
    ------
    Refused
        As :func:`read_body`; 413 also for a line longer than ``line_limit``.
    """
    rest = b""
    async for chunk in body_chunks(request, limit):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > line_limit:
            raise _too_large(line_limit)
    if rest:
        yield rest


def parse_feedback(data: bytes) -> FeedbackEvent:
    """Return the feedback event of a body or line.

    Raises
    ------
    Refused
        400 for what is no JSON, 413 for what is too long, 422 for a faulty field.
    """
    try:
        event = FeedbackEvent.from_json(data)
        # What UTF-8 cannot carry, a lone surrogate, would fail later, when nobody can be told.
        event.identity().encode()
    except DecodeError as error:
        raise _refusal(error) from None
    except (UnicodeEncodeError, ValueError) as error:
        raise Refused(_UNPROCESSABLE, "invalid_field", f"entities: {error}") from None
    return event


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a body.

    Raises
    ------
    Refused
        400 for what is no JSON, 422 for what is no object.
    """
    try:
        return _OBJECT.validate_json(data)
    except ValidationError as error:
        raise _refusal(decode_error(error)) from None


def _refusal(error: DecodeError) -> Refused:
    status = {"not_json": _BAD_REQUEST, "too_large": _TOO_LARGE}.get(error.reason, _UNPROCESSABLE)
    return Refused(status, error.reason, str(error), error.field)


def _too_large(limit: int) -> Refused:
    return Refused(_TOO_LARGE, "too_large", f"larger than {limit} bytes: send less at once")
