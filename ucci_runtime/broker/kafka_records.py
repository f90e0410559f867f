"""Makes our records from Kafka's messages; the only place that does.

A header's key is text by the protocol, but any bytes may come. On a key that is not UTF-8 the client library returns a
half-made list and leaves an exception behind. An ordinary call of a hot method passes both on unchecked, and a second
call returns the list without the exception, and to touch its parts crashes the process. So each message is asked once,
by a call that the interpreter always checks, and nothing of a failed answer is touched.
"""

from __future__ import annotations

from functools import lru_cache
from operator import methodcaller
from typing import cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from ucci_runtime.broker.records import Header, Input, Record

HEADERS_FAULT = "a header's key is not UTF-8"

# Called through C, where every result is checked against the error state; `message.headers()` is not, once it is hot.
_ask_headers = methodcaller("headers")


def record_of(message: Message) -> Record:
    """Return a message without error as a record."""
    kind, timestamp_ms = message.timestamp()
    headers, fault = _headers(message)
    return Record(
        source_of(message),
        cast(int, message.offset()),
        message.key(),
        message.value(),
        0 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        headers,
        by_broker=kind == TIMESTAMP_LOG_APPEND_TIME,
        headers_fault=fault,
    )


def source_of(message: Message) -> Input:
    """Return the partition that a message came from."""
    return _input(cast(str, message.topic()), cast(int, message.partition()))


#: One object for all records of a partition: each message has its own copy of the topic's name, to keep and hash.
_input = lru_cache(maxsize=1_024)(Input)


def _headers(message: Message) -> tuple[tuple[Header, ...], str | None]:
    try:
        found: list[Header] | None = _ask_headers(message)
    except (SystemError, UnicodeDecodeError):
        return (), HEADERS_FAULT
    return tuple(found) if found else (), None
