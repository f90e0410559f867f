"""What every event shares: frozen, finite, tolerant of unknown fields, UTC times, one JSON form.

Bytes become a valid event or a :class:`~schemas.errors.DecodeError`, never a half-valid one. Free-form JSON inside an
event is passed on as it came, unless another reader could not read it: numbers that are not finite, integers beyond 64
bits and nesting without end are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from itertools import chain, takewhile
from math import isfinite
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from schemas.errors import DecodeError, one_line
from schemas.json_bytes import LONG_BYTES, Validator, collector_paused, unframed, validated

#: The longest record that is parsed at all, in bytes; Kafka's own default limit.
MAX_RECORD_BYTES = 1_000_000

#: Levels of nesting in free-form JSON.
MAX_DEPTH = 64

MAX_ID_CHARS = 512
MAX_NAME_CHARS = 255
#: The largest integer that every JSON reader takes exactly, and that canonical JSON knows (RFC 8785, RFC 7493).
MAX_INTEGER = 2**53 - 1

_SHOWN_CHARS = 60
_INTEGER_BITS = 64
_KINDS = frozenset({dict, list, str, int, float, bool, type(None)})
_MANY = 64
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIRST_YEAR, _LAST_YEAR = 1970, 2999


def _only_text_or_datetime(value: Any) -> Any:
    """Refuse numbers, also those written as text, which would silently be read as seconds since 1970."""
    if isinstance(value, datetime) or (isinstance(value, str) and value[4:5] == "-"):
        return value
    raise ValueError("must be an RFC 3339 time such as 2026-01-31T12:00:00Z")


def _in_utc(value: datetime) -> datetime:
    """Refuse times without an offset: guessing a zone moves labels between windows."""
    if value.tzinfo is None:
        raise ValueError("must carry a UTC offset, such as a final Z")
    # Outside these years neither Kafka's timestamps nor a difference of two times can be relied on. The year is that
    # in UTC: what is written must be read again. The first and last years that exist cannot be converted at all.
    if MINYEAR < value.year < MAXYEAR:
        value = value.astimezone(UTC)
    if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
        raise ValueError(f"must lie in the years {_FIRST_YEAR} to {_LAST_YEAR}")
    return value


def rfc3339(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC with a final ``Z``."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


#: An RFC 3339 time in UTC. Of such a time pydantic itself writes what :func:`rfc3339` returns, in a third of the time.
Timestamp = Annotated[
    datetime,
    BeforeValidator(_only_text_or_datetime, json_schema_input_type=str),
    AfterValidator(_in_utc),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

QueryId = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
WorkloadName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
# Strict: a boolean or a text where a number belongs is a mistake of the sender, not a number.
Flag = Annotated[bool, Field(strict=True)]
Real = Annotated[float, Field(strict=True)]
Probability = Annotated[Real, Field(ge=0.0, le=1.0)]
Uncertainty = Annotated[Real, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_INTEGER)]
Ordinal = Annotated[int, Field(strict=True, ge=1, le=MAX_INTEGER)]
#: Bounded, so that a sum of many stays finite.
NonNegative = Annotated[Real, Field(ge=0.0, le=float(MAX_INTEGER))]

#: The ways to measure u that a workload can choose from.
SignalKind = Literal["token_margin", "entropy", "max_probability"]

#: The way u was measured, which may be one of a later release.
SignalName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]

#: Also how u was measured in every record that does not say so.
DEFAULT_SIGNAL: Final = "token_margin"


def readable(value: dict[str, Any]) -> dict[str, Any]:
    """Check a JSON object. Raises ValueError, naming the first value that a reader would refuse or read as another."""
    level: list[Any] = [value]
    depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"is nested more than {MAX_DEPTH} levels deep: flatten it")
        depth += 1
        inside = _inside_many(level) if len(level) > _MANY else None
        level = [inner for outer in level for inner in _inside(outer)] if inside is None else inside
    return value


def _inside_many(level: list[Any]) -> list[Any] | None:
    """Return the values inside many, None where one is faulty: in C, as one by one takes longer than to parse them."""
    by_kind: dict[Any, list[Any]] = {
        kind: [value for value in level if type(value) is kind] for kind in set(map(type, level))
    }
    objects, lists = by_kind.get(dict, []), by_kind.get(list, [])
    bits = max(map(int.bit_length, by_kind.get(int, [])), default=0)
    if not (by_kind.keys() <= _KINDS and bits <= _INTEGER_BITS and all(map(isfinite, by_kind.get(float, [])))):
        return None
    if not _are_encodable(chain(by_kind.get(str, []), chain.from_iterable(objects))):
        return None
    return [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, objects))]


def _inside(value: Any) -> list[Any]:
    """Return the values inside one value, itself checked."""
    if isinstance(value, dict):
        if len(value) <= _MANY or not _are_encodable(value):
            for key in value:
                _encodable(key)
        return list(value.values())
    if isinstance(value, list):
        # Plots are lists of hundreds of numbers: in C, many times faster than one by one.
        return [] if set(map(type, value)) == {float} and all(map(isfinite, value)) else value
    if isinstance(value, str):
        _encodable(value)
    elif isinstance(value, float) and not isfinite(value):
        raise ValueError(f"holds {value}, not a finite number: leave it out or send null")
    elif isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS:
            bits = value.bit_length()
            raise ValueError(f"holds an integer of {bits} bits, more than {_INTEGER_BITS}: send it as text")
    elif value is not None and not isinstance(value, float):
        raise ValueError(f"holds a {type(value).__name__}, which JSON does not know: send text, a number or a list")
    return []


def _are_encodable(texts: Iterable[Any]) -> bool:
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _encodable(text: Any) -> None:
    try:
        text.encode()
    except AttributeError:
        raise ValueError(f"holds a key that is a {type(text).__name__}: send text") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"holds a lone surrogate at character {error.start} of a text: send Unicode") from None


class _AsJsonValues:
    """Describes free-form members in the JSON schema as what they are: JSON values."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(_JSON_VALUES.core_schema)


_JSON_VALUES = TypeAdapter(dict[str, JsonValue])

#: A JSON object whose members are the sender's own. :func:`readable` alone looks at them: pydantic's own type for JSON
#: values calls Python for each of hundreds of numbers, when it validates and when it writes.
JsonObject = Annotated[dict[str, Any], AfterValidator(readable), _AsJsonValues]


Key = TypeVar("Key", bound=str)
Item = TypeVar("Item")
#: A list whose first faulty item ends its validation: one is named; to find all in a megabyte of them took seconds.
Many = Annotated[tuple[Item, ...], Field(fail_fast=True)]

#: A JSON object with keys of the sender's choice, whose first faulty member ends its validation; see :data:`Many`.
Members = Annotated[dict[Key, Item], Field(fail_fast=True)]


class Part(BaseModel):
    """A nested part of an event: frozen, finite, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Event(Part):
    """A record of one topic, or a line of one file."""

    #: Whether other programs write it, so that a key given twice must be looked for (as costly as the parsing).
    sent_by_others: ClassVar[bool] = True

    def to_json(self) -> bytes:
        """Return the event as compact UTF-8 JSON, fields in the order of declaration."""
        # `model_dump_json` would decode these bytes, and its twenty arguments cost as much as a nested model.
        return self.__pydantic_serializer__.to_json(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Parse and validate one JSON object.

        ``data``: UTF-8 JSON without a byte order mark, at most ``MAX_RECORD_BYTES`` long. Raises DecodeError, naming
        the first faulty field, its value and what is expected. Reason ``too_large``, ``not_json``, ``missing_field``,
        ``invalid_field`` or ``duplicate_key``.
        """
        raw = _encoded(data)
        if len(raw) > MAX_RECORD_BYTES:
            raise DecodeError("too_large", f"record of {len(raw)} bytes exceeds {MAX_RECORD_BYTES}: send less")
        if raw.startswith(_BYTE_ORDER_MARK):
            raise DecodeError("not_json", "not valid JSON: starts with a byte order mark; send UTF-8 without one")
        event: Self = decoded(cls.__pydantic_validator__, raw)
        if cls.sent_by_others:
            refuse_duplicate_keys(raw)
        return event

    @classmethod
    def from_record(cls, value: bytes) -> Self:
        """Parse a record that may have come through a schema registry. Raises DecodeError as :meth:`from_json`."""
        return cls.from_json(unframed(value))


def _encoded(data: bytes | str) -> bytes:
    if isinstance(data, bytes):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise DecodeError("not_json", f"not valid JSON: a lone surrogate at character {error.start}") from None


def decoded(validator: Validator, raw: bytes) -> Any:
    """Return what a validator makes of JSON. Raises DecodeError as :meth:`Event.from_json`."""
    if len(raw) > LONG_BYTES:
        with collector_paused():
            return _decoded_long(validator, raw)
    try:
        return validator.validate_json(raw)
    except ValidationError as error:
        raise decode_error(error) from None


def _decoded_long(validator: Validator, raw: bytes) -> Any:
    try:
        return validated(validator, raw)
    except ValidationError as error:
        fault = decode_error(error)
    # Raised here, it does not keep pydantic's error, and with it all that was parsed.
    raise fault


def refuse_duplicate_keys(raw: bytes) -> None:
    """Refuse what one reader would take by its first value and the next by its last (RFC 8259, section 4).

    Raises DecodeError: reason ``duplicate_key`` or ``not_json``.
    """
    try:
        if len(raw) <= LONG_BYTES:
            _DISTINCT_KEYS.decode(raw.decode())
        else:
            with collector_paused():
                _search_long(raw.decode())
    except (ValueError, RecursionError) as error:
        # What the first parser skipped in an unknown field, such as a number of thousands of digits.
        raise DecodeError("not_json", f"not valid JSON: {error}") from None


def _search_long(text: str) -> None:
    """Look for keys given twice in C alone: to call Python for each of a hundred thousand objects takes longer."""
    objects: list[list[tuple[str, Any]]] = []
    json.JSONDecoder(object_pairs_hook=objects.append).decode(text)
    several = [members for members in objects if len(members) > 1]
    if sum(map(len, several)) != sum(map(len, map(dict, several))):
        for members in several:
            distinct_members(members)


def distinct_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's members. Raises DecodeError: reason ``duplicate_key``, naming the first key given twice."""
    document = dict(members)
    if len(document) != len(members):
        counts = Counter(key for key, _ in members)
        twice = next(key for key, count in counts.items() if count > 1)
        field = one_line(twice, _SHOWN_CHARS)
        raise DecodeError("duplicate_key", f"{field}: is given twice; send each key once", field)
    return document


_DISTINCT_KEYS = json.JSONDecoder(object_pairs_hook=distinct_members)


def decode_error(error: ValidationError) -> DecodeError:
    """Turn pydantic's findings into one line that names field, value and remedy."""
    first = error.errors(include_url=False)[0]
    # The sender chooses the keys of a mapping, and with them how long a path may be.
    field = ".".join(str(part)[:_SHOWN_CHARS] for part in first["loc"]) or None
    if first["type"] == "json_invalid":
        return DecodeError("not_json", f"not valid JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    shown = repr(_beginning(first["input"]))
    if len(shown) > _SHOWN_CHARS:
        shown = shown[:_SHOWN_CHARS] + "…"
    if first["type"] == "missing":
        return DecodeError("missing_field", f"{field}: is required and missing", field)
    message = _IN_JSON.get(first["type"], first["msg"]).removeprefix("Value error, ")
    if (named := first.get("ctx", {}).get("field")) is not None:
        return DecodeError(first["type"], message, named)
    return DecodeError("invalid_field", f"{field or 'record'}: {message} (got {shown})", field)


#: What was sent was JSON, also where it was validated as Python's values.
_IN_JSON = {
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "model_attributes_type": "Input should be an object",
    "tuple_type": "Input should be a valid array",
}


def _beginning(value: Any) -> Any:
    """Return as much of a value as is shown of it: the whole may be a megabyte, at any depth."""
    left = _SHOWN_CHARS

    def cut(value: Any) -> Any:
        # Each value takes at least a character.
        nonlocal left
        left -= 1
        if isinstance(value, dict):
            return {cut(key): cut(inner) for key, inner in takewhile(lambda _: left > 0, value.items())}
        if isinstance(value, list | tuple):
            shown = [cut(inner) for inner in takewhile(lambda _: left > 0, value)]
            return shown if isinstance(value, list) else tuple(shown)
        return value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value

    return cut(value)


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
#: Year 2255: whole numbers up to here are exact in a float, and every one of them is a datetime.
_MOST_US = 2**53


def to_us(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time with a zone, cut at 2^53 either way.

    Examples
    --------
    >>> to_us(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC))
    1000005
    >>> to_us(datetime.max.replace(tzinfo=UTC)) == 2**53
    True
    """
    exact = (moment - _EPOCH) // _MICROSECOND
    return exact if -_MOST_US < exact < _MOST_US else _MOST_US if exact > 0 else -_MOST_US


def from_us(instant_us: int) -> datetime:
    """Return the UTC time of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=int(instant_us))


#: The last millisecond of the year 2999, the latest that an event may carry.
LATEST_MS = 32_503_679_999_999


def from_ms(timestamp_ms: int) -> datetime:
    """Return the UTC time of milliseconds since 1970; a producer may stamp its record with any number.

    Examples
    --------
    >>> from_ms(0).isoformat(), from_ms(-1).year, from_ms(10**18).year
    ('1970-01-01T00:00:00+00:00', 1970, 2999)
    """
    return _EPOCH + timedelta(milliseconds=min(max(timestamp_ms, 0), LATEST_MS))
