"""Dead letters as an operator deals with them: what one says, how many there are of each reason, what may be replayed.

A letter is replayed as the record that it was, with a header that names the letter. The header is how a later replay
knows what was replayed before: it stands in the topic itself, written in the transaction that wrote the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import from_json

from schemas.errors import DecodeError
from schemas.event import rfc3339
from schemas.topics import (
    DLQ_ERROR,
    DLQ_OFFSET,
    DLQ_PARTITION,
    DLQ_REASON,
    DLQ_STAGE,
    DLQ_TOPIC,
    DLQ_TRUNCATED,
    FEEDBACK,
    QUERIES,
    REPLAY_OF,
)
from schemas.wire_format import unframed
from ucci_runtime.broker.records import Header, Record

_DLQ_PREFIX = "dlq."
_MILLISECONDS = 1_000
#: The last day of the year 9999: producers choose the times of their records.
_LAST_MS = 253_402_214_400_000

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter."""

    #: Where it stands in its own topic: ``partition/offset``.
    place: str

    at: datetime
    #: Who set the record aside, in a word why, and in a sentence.
    stage: str
    reason: str
    error: str

    topic: str
    partition: str
    offset: str
    #: What of the record is missing, or empty.
    truncated: str

    record: Record

    def document(self, *, whole: bool) -> dict[str, Any]:
        """Return it as JSON values; ``whole`` with the record itself."""
        found: dict[str, Any] = {
            "place": self.place,
            "at": rfc3339(self.at),
            "stage": self.stage,
            "reason": self.reason,
            "error": self.error,
            "source": f"{self.topic}/{self.partition}/{self.offset}",
            "truncated": self.truncated or None,
        }
        if whole:
            record = self.record
            found |= {
                "key": _text(record.key),
                "value": None if record.value is None else record.value.decode("utf-8", "replace"),
                "headers": [[name, _text(value)] for name, value in kept_headers(record.headers)],
            }
        return found


def letter_of(record: Record) -> Letter:
    """Return a record of the topic as a letter; what its headers lack is ``unknown``."""
    headers = dict(record.headers)
    texts = {
        name: _text(headers.get(name)) or "" for name in (DLQ_STAGE, DLQ_REASON, DLQ_ERROR, DLQ_TOPIC, DLQ_TRUNCATED)
    }
    return Letter(
        place=f"{record.source.partition}/{record.offset}",
        at=datetime.fromtimestamp(min(max(record.timestamp_ms, 0), _LAST_MS) / _MILLISECONDS, UTC),
        stage=texts[DLQ_STAGE] or UNKNOWN,
        reason=texts[DLQ_REASON] or UNKNOWN,
        error=texts[DLQ_ERROR],
        topic=texts[DLQ_TOPIC] or UNKNOWN,
        partition=_text(headers.get(DLQ_PARTITION)) or "",
        offset=_text(headers.get(DLQ_OFFSET)) or "",
        truncated=texts[DLQ_TRUNCATED],
        record=record,
    )


class Selection(NamedTuple):
    """Which letters are meant; None and nothing mean all."""

    stage: str | None = None
    reason: str | None = None
    topic: str | None = None
    since: datetime | None = None
    places: frozenset[str] = frozenset()

    def takes(self, letter: Letter) -> bool:
        """Return whether a letter is meant."""
        return (
            self.stage in (None, letter.stage)
            and self.reason in (None, letter.reason)
            and (self.topic is None or letter.topic.endswith(f".{self.topic}"))
            and (self.since is None or letter.at >= self.since)
            and (not self.places or letter.place in self.places)
        )


@dataclass(slots=True)
class Group:
    """The letters of one stage, reason and topic."""

    stage: str
    reason: str
    topic: str
    count: int
    first: Letter
    last: Letter

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "stage": self.stage,
            "reason": self.reason,
            "topic": self.topic,
            "count": self.count,
            "first_at": rfc3339(self.first.at),
            "last_at": rfc3339(self.last.at),
            "last_place": self.last.place,
            "last_error": self.last.error,
        }


def grouped(letters: Iterable[Letter]) -> list[Group]:
    """Return letters by stage, reason and topic, the most frequent first; keeps two letters a group in memory."""
    groups: dict[tuple[str, str, str], Group] = {}
    for letter in letters:
        key = letter.stage, letter.reason, letter.topic
        group = groups.get(key)
        if group is None:
            groups[key] = Group(*key, 1, letter, letter)
            continue
        group.count += 1
        group.first = min(group.first, letter, key=lambda one: one.at)
        group.last = max(group.last, letter, key=lambda one: one.at)
    return sorted(groups.values(), key=lambda group: (-group.count, group.stage, group.reason, group.topic))


class Past(NamedTuple):
    """What the topics say has happened to letters and queries already."""

    #: Identities of letters whose record was written again.
    replayed: frozenset[str]

    answered: frozenset[str]
    #: Of a letter of which ``replayed`` still tells: records of that time may have expired before.
    oldest: datetime | None = None


def refusal(letter: Letter, prefix: str, topic: str, past: Past) -> str | None:
    """Return in a word why a letter is not replayed, or None."""
    if letter.topic not in {QUERIES.name(prefix), FEEDBACK.name(prefix)}:
        # Results and observations are written by the services alone, in transactions with their offsets.
        return "not_replayable"
    if letter.truncated:
        return "truncated"
    if identity(topic, letter) in past.replayed:
        return "replayed_before"
    if past.oldest is not None and letter.at < past.oldest:
        return "too_old"
    if letter.topic == QUERIES.name(prefix) and query_id(letter.record.value) in past.answered:
        return "answered"
    return None


def identity(topic: str, letter: Letter) -> str:
    """Return what names a letter for good: its place on the topic of dead letters."""
    return f"{topic}/{letter.place}"


def replay_headers(topic: str, letter: Letter) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of the record when it is written again: its own, and the letter's identity."""
    return [*kept_headers(letter.record.headers), (REPLAY_OF, identity(topic, letter).encode())]


def kept_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers that the record had before it became a letter, or was replayed."""
    return [one for one in headers if not one[0].startswith(_DLQ_PREFIX) and one[0] != REPLAY_OF]


def is_replay(record: Record, letter: Letter) -> bool:
    """Return whether a record is what a replay of the letter writes, key and value byte for byte."""
    kept = letter.record
    return (record.source.topic, record.key, record.value) == (letter.topic, kept.key, kept.value)


def replayed_from(headers: Iterable[Header]) -> str | None:
    """Return the identity of the letter that a record was replayed from, or None."""
    return next((_text(value) for name, value in headers if name == REPLAY_OF), None)


def query_id(value: bytes | None) -> str | None:
    """Return a query's id, or None where there is none to be read."""
    try:
        content: Mapping[str, Any] | Any = None if value is None else from_json(unframed(value))
    except (ValueError, DecodeError):
        return None
    found = content.get("query_id") if isinstance(content, dict) else None
    return found if isinstance(found, str) else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
