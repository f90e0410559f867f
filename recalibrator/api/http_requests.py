"""What requests carry: paths, and bodies that are bounded before they are parsed. Each fault is one clear refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote

from fastapi import Path
from pydantic import TypeAdapter
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from schemas.errors import DecodeError
from schemas.event import decoded, refuse_duplicate_keys, rfc3339
from schemas.feedback import FeedbackEvent
from ucci_runtime.refusals import RequestRefused, require_body_type

#: How long a body may take to come, so that slow senders do not hold connections for ever.
BODY_TIMEOUT_S = 20.0

#: How long, and how much, of a refused body is read so that its sender sees the refusal. Nothing of it is kept.
DRAIN_TIMEOUT_S, DRAIN_BYTES = 5.0, 100_000_000

#: How far ahead of this machine's clock a label may be dated.
CLOCK_TOLERANCE = timedelta(minutes=5)

JSON_TYPES = ("application/json",)
JSONL_TYPES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines", "text/plain")

_MAX_DIGITS, _MAX_VERSION_DIGITS = 18, 16
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class SegmentConvertor(StringConvertor):
    """One segment of a path: the name that was encoded in it, slashes included."""

    def convert(self, value: str) -> str:
        """Return the name."""
        return value.replace("%2F", "/").replace("%25", "%")


register_url_convertor("segment", SegmentConvertor())


def invalid_field(name: str, message: str, code: str = "invalid_field") -> RequestRefused:
    """Return the refusal of a field: 422."""
    return RequestRefused(422, code, f"{name}: {message}", name)


def moment_in_query(name: str, given: str) -> datetime:
    """Return the time that a query's parameter gives, in UTC where it names no zone. Raises RequestRefused: 422."""
    try:
        # In a query string an unescaped plus is a space.
        moment = datetime.fromisoformat(given.replace(" ", "+"))
    except ValueError:
        raise invalid_field(name, f"{given[:60]!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def segmented_path(raw_path: bytes) -> str:
    """Return a path decoded but for the slashes within its segments, which only their encoding distinguishes.

    Examples
    --------
    >>> segmented_path(b"/v1/status/photo%20search")
    '/v1/status/photo search'
    >>> segmented_path(b"/v1/status/a%2fb")
    '/v1/status/a%2Fb'
    """
    segments = raw_path.decode("latin-1").split("/")
    return "/".join(unquote(segment).replace("%", "%25").replace("/", "%2F") for segment in segments)


def require_type(request: Request, allowed: tuple[str, ...]) -> None:
    """Refuse a body of another type or a compressed one; none given counts as the first. Raises RequestRefused: 415."""
    given = request.headers.get("content-type", allowed[0]).partition(";")[0].strip().lower()
    require_body_type(given[:60], request.headers, allowed)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body.

    Raises RequestRefused: 413 as soon as it is longer than ``limit`` bytes, 408 when it comes too slowly, 400 when it
    ends early.
    """
    return b"".join([chunk async for chunk in body_chunks(request, limit)])


async def body_chunks(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it comes; only the time of waiting for it counts, not what the reader does in between.

    Raises RequestRefused as :func:`read_body`.
    """
    declared = request.headers.get("content-length", "")
    # Compared by length first: text of thousands of digits is no number to Python.
    if declared.isdigit() and (len(declared) > _MAX_DIGITS or int(declared) > limit):
        raise _too_large(limit)
    now, size, left_s = asyncio.get_running_loop().time, 0, BODY_TIMEOUT_S
    stream = request.stream()
    try:
        while True:
            began_s = now()
            async with asyncio.timeout(left_s):
                if (chunk := await anext(stream, None)) is None:
                    return
            left_s -= now() - began_s
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            yield chunk
    except TimeoutError:
        raise RequestRefused(408, "slow_body", f"the body did not come within {BODY_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise RequestRefused(400, "disconnected", "the caller left before the body was complete") from None


class LineLimits(NamedTuple):
    """What a body of lines may hold: bytes in all, bytes of one line, lines. Empty lines count."""

    body_bytes: int
    line_bytes: int
    lines: int


async def body_lines(request: Request, limits: LineLimits) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a body as they come, some at a time and without their ends; the last may lack one.

    Raises RequestRefused as :func:`read_body`; 413 also for a line that is too long and for too many lines.
    """
    lines = 0
    # Grown in place: a long line in many small pieces would otherwise be copied once for each of them.
    rest = bytearray()
    async for chunk in body_chunks(request, limits.body_bytes):
        lines += chunk.count(b"\n")
        # Before they are split: ten million empty lines would take seconds.
        if lines > limits.lines:
            message = f"more than {limits.lines} lines, empty ones included: send less at once"
            raise RequestRefused(413, "too_large", message)
        first, *others = chunk.split(b"\n")
        rest += first
        if others:
            yield [bytes(rest), *others[:-1]]
            rest = bytearray(others[-1])
        if len(rest) > limits.line_bytes:
            raise _too_large(limits.line_bytes)
    if rest:
        yield [bytes(rest)]


async def drain(receive: Callable[[], Awaitable[Message]]) -> None:
    """Read and drop the rest of a request's body, up to a bound of bytes and of time."""
    left = DRAIN_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    return


def parse_feedback(data: bytes) -> FeedbackEvent:
    """Return a body's or line's feedback. Raises RequestRefused: 400 for no JSON, 413 too long, 422 for a bad field."""
    try:
        event = FeedbackEvent.from_json(data)
        # What UTF-8 cannot carry, an unpaired surrogate, would fail later, after the answer.
        event.identity().encode()
    except DecodeError as error:
        raise _refusal(error) from None
    except ValueError as error:
        raise invalid_field("entities", str(error)) from None
    return event


def require_past(event: FeedbackEvent, now: datetime) -> None:
    """Refuse a label dated ahead, which would stand above every later one. Raises RequestRefused: 422."""
    if event.labelled_at is not None and event.labelled_at > now + CLOCK_TOLERANCE:
        ahead = f"{rfc3339(event.labelled_at)} lies ahead of {rfc3339(now)}, now: set the sender's clock"
        raise invalid_field("labelled_at", ahead)


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a body. Raises RequestRefused: 400 for no JSON, 422 for no object or a key twice."""
    try:
        document: dict[str, Any] = decoded(_OBJECT.validator, data)
        refuse_duplicate_keys(data)
    except DecodeError as error:
        raise _refusal(error) from None
    return document


#: Checked by :func:`version_number`, whose refusal names the remedy.
VersionInPath = Annotated[str, Path(json_schema_extra={"pattern": f"^[0-9]{{1,{_MAX_VERSION_DIGITS}}}$"})]


def version_number(given: str) -> int:
    """Return the number in a path. Raises RequestRefused: 422."""
    if not (given.isascii() and given.isdigit() and len(given) <= _MAX_VERSION_DIGITS):
        raise invalid_field("version", f"{given[:60]!r} is not a version number")
    return int(given)


def unknown_version(workload: str, version: object) -> RequestRefused:
    """Return the refusal of a version that is not in the history."""
    message = f"version {version} of {workload} is not in the history: see /v1/calibrations/{workload}"
    return RequestRefused(404, "unknown_version", message, "version")


def _refusal(error: DecodeError) -> RequestRefused:
    status = {"not_json": 400, "too_large": 413}.get(error.reason, 422)
    return RequestRefused(status, error.reason, str(error), error.field)


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, "too_large", f"larger than {limit} bytes: send less at once")
