"""What every event shares: frozen, finite, tolerant of unknown fields, UTC times, one JSON form.

Bytes flow in, a valid event or a :class:`~schemas.errors.DecodeError` flows out; nothing half-valid ever does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)

from schemas.errors import DecodeError

MAX_RECORD_BYTES = 1_000_000
"""The longest record that is parsed at all, in bytes; Kafka's own default limit."""

MAX_ID_CHARS = 512
MAX_NAME_CHARS = 255
_SHOWN_CHARS = 60


def _only_text_or_datetime(value: Any) -> Any:
    """Refuse numbers, which would silently be read as seconds since 1970."""
    if isinstance(value, str | datetime):
        return value
    raise ValueError("must be an RFC 3339 time such as 2026-01-31T12:00:00Z")


def _in_utc(value: datetime) -> datetime:
    """Refuse times without an offset: guessing a zone moves labels between windows."""
    if value.tzinfo is None:
        raise ValueError("must carry a UTC offset, such as a final Z")
    return value.astimezone(UTC)


def rfc3339(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC with a final ``Z``.

    Examples
    --------
    >>> rfc3339(datetime(2026, 1, 31, 12, 0, tzinfo=UTC))
    '2026-01-31T12:00:00Z'
    """
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


Timestamp = Annotated[
    datetime,
    BeforeValidator(_only_text_or_datetime, json_schema_input_type=str),
    AfterValidator(_in_utc),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
]
"""An RFC 3339 time in UTC."""

QueryId = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
WorkloadName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Uncertainty = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0.0)]


class Part(BaseModel):
    """A nested part of an event: frozen, finite, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Event(Part):
    """A record of one topic, or a line of one file."""

    def to_json(self) -> bytes:
        """Return the event as compact UTF-8 JSON, fields in the order of declaration.

        Returns
        -------
        bytes
            Equal events give equal bytes.
        """
        return self.model_dump_json().encode()

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Parse and validate one JSON object.

        Parameters
        ----------
        data : bytes or str
            UTF-8 JSON, at most ``MAX_RECORD_BYTES`` long.

        Raises
        ------
        DecodeError
            Naming the first faulty field, its value and what is expected.
        """
        if len(data) > MAX_RECORD_BYTES:
            raise DecodeError("too_large", f"record of {len(data)} bytes exceeds {MAX_RECORD_BYTES}: send less")
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise decode_error(error) from None


def decode_error(error: ValidationError) -> DecodeError:
    """Turn pydantic's findings into one line that names field, value and remedy."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or None
    if first["type"] == "json_invalid":
        return DecodeError("not_json", f"not valid JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    shown = repr(first["input"])
    if len(shown) > _SHOWN_CHARS:
        shown = shown[:_SHOWN_CHARS] + "…"
    if first["type"] == "missing":
        return DecodeError("missing_field", f"{field}: is required and missing", field)
    message = first["msg"].removeprefix("Value error, ")
    return DecodeError("invalid_field", f"{field or 'record'}: {message} (got {shown})", field)
