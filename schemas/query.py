"""QueryEvent: what pipeline owners send."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import to_json

from schemas.event import Event, JsonObject, QueryId, Timestamp, WorkloadName

MAX_TEXT_CHARS = 32_768
MAX_METADATA_BYTES = 65_536


def _bounded(value: JsonObject) -> JsonObject:
    if (size := len(to_json(value))) > MAX_METADATA_BYTES:
        raise ValueError(f"holds {size} bytes of JSON, more than {MAX_METADATA_BYTES}: pass a reference")
    return value


Metadata = Annotated[JsonObject, AfterValidator(_bounded)]


class QueryEvent(Event):
    """One query to answer."""

    #: Unique; 1 to 512 characters.
    query_id: QueryId
    #: 1 to 32,768 characters.
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
    #: May be left out where one workload is configured, or a default one.
    workload: WorkloadName | None = None
    #: RFC 3339 with an offset.
    created_at: Timestamp | None = None
    #: Handed through to the result untouched; at most 64 KiB of JSON.
    metadata: Metadata | None = None
