"""Where a query's records meet: its home partition, and how a record that lies elsewhere travels there.

Producers hash keys as they like, leave them out, or quote them, and partitions are added to the topics. So the join
goes by the ``query_id`` in the value alone. A query's home is one of the partitions of the repartition topic, whose
number never changes. The owner of home h reads partition h of that topic, and every partition of results and feedback
whose number leaves the remainder h. What it finds there of another home's query it forwards, as it is, within its
transaction: the record arrives at home exactly once.

The home of an id is its CRC-32 modulo the number of homes. librdkafka's default partitioner is the same function of the
key, so what our own services write is at home already, also after the number of partitions of its topic was doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from schemas.errors import DecodeError
from schemas.topics import (
    ORIGIN_COUNTED,
    ORIGIN_DATED_BY,
    ORIGIN_KEY,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP_MS,
    ORIGIN_TOPIC,
)
from ucci_runtime.broker.records import Header, Input, OutputRecord, Record

_ORIGIN_PREFIX = "join.origin."
_BROKER, _PRODUCER = b"broker", b"producer"
_YES = b"1"
_LONGEST_NUMBER = 18
_NOTE_PREFIX = "homes="


def home_of(query_id: str, homes: int) -> int:
    """Return the partition at which all records of a query meet.

    Examples
    --------
    >>> home_of("q-1", 4)
    0
    >>> {home_of("q-1", homes) % 4 for homes in (4, 8, 12)}
    {0}
    """
    return crc32(query_id.encode()) % homes


def placement_note(homes: int) -> str:
    """Return what the join notes beside an offset: everything below it was forwarded to one of so many homes."""
    return f"{_NOTE_PREFIX}{homes}"


def noted_homes(note: str) -> int | None:
    """Return the number of homes in a note; None where an earlier release, which forwarded nothing, left none.

    Examples
    --------
    >>> noted_homes(placement_note(6)), noted_homes("")
    (6, None)
    """
    number = note.removeprefix(_NOTE_PREFIX)
    return int(number) if number != note and number.isascii() and number.isdigit() else None


class Placed(NamedTuple):
    """A record of results or feedback as its producer wrote it, wherever the join has read it."""

    record: Record
    #: Whether an earlier release has counted it in its traffic.
    was_counted: bool = False


def forwarded(placed: Placed, repartition: str, home: int, query_id: str, *, is_counted: bool) -> OutputRecord:
    """Return the record to write to a query's home, with the original bytes, headers and place.

    ``repartition``: name of the topic. ``is_counted``: whether an earlier release has counted it in its traffic.
    """
    record, was_counted = placed
    origin: tuple[Header, ...] = (
        (ORIGIN_TOPIC, record.source.topic.encode()),
        (ORIGIN_PARTITION, str(record.source.partition).encode()),
        (ORIGIN_OFFSET, str(record.offset).encode()),
        (ORIGIN_KEY, record.key),
        (ORIGIN_TIMESTAMP_MS, str(record.timestamp_ms).encode()),
        (ORIGIN_DATED_BY, _BROKER if record.by_broker else _PRODUCER),
    )
    if is_counted or was_counted:
        origin = (*origin, (ORIGIN_COUNTED, _YES))
    headers = (*record.headers, *origin)
    return OutputRecord(repartition, query_id.encode(), record.value, headers, partition=home)


def original(record: Record) -> Placed:
    """Return a record of the repartition topic as it was before it was forwarded.

    Raises DecodeError where the headers do not say where it comes from, as of a record that somebody else has written.
    """
    if record.headers_fault is not None:
        raise DecodeError("bad_headers", f"{record.headers_fault}; only the join writes to this topic")
    origin = dict(record.headers)
    topic = (origin.get(ORIGIN_TOPIC) or b"").decode(errors="replace")
    source = Input(topic, _number(origin, ORIGIN_PARTITION))
    as_written = record._replace(
        source=source,
        key=origin.get(ORIGIN_KEY),
        offset=_number(origin, ORIGIN_OFFSET),
        timestamp_ms=_number(origin, ORIGIN_TIMESTAMP_MS),
        headers=tuple(header for header in record.headers if not header[0].startswith(_ORIGIN_PREFIX)),
        by_broker=origin.get(ORIGIN_DATED_BY) == _BROKER,
    )
    return Placed(as_written, origin.get(ORIGIN_COUNTED) == _YES)


def _number(origin: Mapping[str, bytes | None], name: str) -> int:
    text = origin.get(name) or b""
    if not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise DecodeError("no_origin", f"header {name} is {text!r}, needs a number; only the join writes to this topic")
    return int(text)
