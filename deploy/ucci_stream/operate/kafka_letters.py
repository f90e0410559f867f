"""Dead letters: what one says, how many there are of each reason, and each written back at most once.

A letter is replayed as the record that it was, with a header that names the letter. The header is how a later replay
knows what was replayed before: it stands in the topic itself, written in the transaction that wrote the record.

A replay is a sequence of transactions under one transactional id. Beginning one fences a replay that still runs and
ends what a dead one left open; what is committed by then stands in the topics, where the next replay finds it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from schemas.errors import UcciError
from schemas.event import from_ms, rfc3339
from schemas.json_bytes import text_member
from schemas.settings import Settings
from schemas.topics import (
    DEAD_LETTERS,
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
    RESULTS,
    ROOMY_MAX_MESSAGE_BYTES,
)
from ucci_runtime.broker.kafka_properties import admin_properties
from ucci_runtime.broker.kafka_topics import partition_counts
from ucci_runtime.broker.records import Header, Record
from ucci_stream.topics.admin import (
    ANSWER_TIMEOUT_S,
    broker_failures,
    client_properties,
    transaction,
)
from ucci_stream.topics.kafka_reading import records_since

_MILLISECONDS = 1_000
_DLQ_PREFIX = "dlq."
_UNKNOWN = "unknown"


class Letter(NamedTuple):
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
            "source": self.source,
            "truncated": self.truncated or None,
        }
        if whole:
            found |= {
                "key": _text(self.record.key),
                "value": _text(self.record.value),
                "headers": [[name, _text(value)] for name, value in kept_headers(self.record.headers)],
            }
        return found

    @property
    def source(self) -> str:
        """Where the record stood: ``topic/partition/offset``."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def identity(self) -> str:
        """What names it for good: its place on the topic of dead letters."""
        return f"{self.record.source.topic}/{self.place}"


def letter_of(record: Record) -> Letter:
    """Return a record of the topic as a letter; what its headers lack is ``unknown``."""
    texts = {name: _text(value) or "" for name, value in record.headers}
    return Letter(
        place=f"{record.source.partition}/{record.offset}",
        at=from_ms(record.timestamp_ms),
        stage=texts.get(DLQ_STAGE) or _UNKNOWN,
        reason=texts.get(DLQ_REASON) or _UNKNOWN,
        error=texts.get(DLQ_ERROR, ""),
        topic=texts.get(DLQ_TOPIC) or _UNKNOWN,
        partition=texts.get(DLQ_PARTITION, ""),
        offset=texts.get(DLQ_OFFSET, ""),
        truncated=texts.get(DLQ_TRUNCATED, ""),
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


_moment = attrgetter("at")


def grouped(letters: Iterable[Letter]) -> list[dict[str, Any]]:
    """Count letters by stage, reason and topic, the most frequent first; keeps two a group in memory."""
    groups: dict[tuple[str, str, str], tuple[int, Letter, Letter]] = {}
    for letter in letters:
        key = letter.stage, letter.reason, letter.topic
        count, first, last = groups.get(key, (0, letter, letter))
        groups[key] = count + 1, min(first, letter, key=_moment), max(last, letter, key=_moment)
    return [
        {
            "stage": stage,
            "reason": reason,
            "topic": topic,
            "count": count,
            "first_at": rfc3339(first.at),
            "last_at": rfc3339(last.at),
            "last_place": last.place,
            "last_error": last.error,
        }
        for (stage, reason, topic), (count, first, last) in sorted(
            groups.items(), key=lambda group: (-group[1][0], group[0])
        )
    ]


class Past(NamedTuple):
    """What the topics say has happened to letters and queries already."""

    #: Identities of letters whose record was written again.
    replayed: frozenset[str] = frozenset()

    answered: frozenset[str] = frozenset()
    #: Of a letter of which ``replayed`` still tells: records of that time may have expired before.
    oldest: datetime | None = None


def refusal(letter: Letter, prefix: str, past: Past) -> str | None:
    """Return in a word why a letter is not replayed, or None."""
    if letter.topic not in {QUERIES.name(prefix), FEEDBACK.name(prefix)}:
        # Results and observations are written by the services alone, in transactions with their offsets.
        return "not_replayable"
    if letter.truncated:
        return "truncated"
    if letter.identity in past.replayed:
        return "replayed_before"
    if past.oldest is not None and letter.at < past.oldest:
        return "too_old"
    if letter.topic == QUERIES.name(prefix) and text_member(letter.record.value, "query_id") in past.answered:
        return "answered"
    return None


def replay_headers(letter: Letter) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of the record when it is written again: its own, and the letter's identity."""
    return [*kept_headers(letter.record.headers), (REPLAY_OF, letter.identity.encode())]


def kept_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers that the record had before it became a letter, or was replayed."""
    return [one for one in headers if not one[0].startswith(_DLQ_PREFIX) and one[0] != REPLAY_OF]


def is_replay(record: Record, letter: Letter) -> bool:
    """Return whether a record is what a replay of the letter writes, key and value byte for byte."""
    kept = letter.record
    return (record.source.topic, record.key, record.value) == (letter.topic, kept.key, kept.value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


#: Letters of one replay; they are held in memory.
MOST_REPLAYED = 100_000

#: Of their records.
MOST_BYTES = 256_000_000

#: After which the broker ends the transaction of a replay that died, where readers of the topic wait for it.
TRANSACTION_TIMEOUT_MS = 10_000

_MOST_BATCH = 500
#: How far the clocks of services, of this machine and of the broker may be apart.
_CLOCKS_DIFFER = timedelta(hours=1)

_GROUP = "dead-letters"
#: In place of a partition: the client chooses one by the record's key.
_BY_KEY = -1


class ReplayFailed(UcciError):
    """A replay that cannot go on; the line says what was done by then."""


def read_letters(settings: Settings, selection: Selection) -> Iterator[Letter]:
    """Yield the dead letters that are meant, up to the topic's present end; blocks. Raises BrokerError or NotRead."""
    with broker_failures(settings):
        found = records_since(settings, DEAD_LETTERS.name(settings.topics.prefix), from_ms(0), _GROUP)
        yield from filter(selection.takes, map(letter_of, found))


class Replay(NamedTuple):
    """What a replay did, or would do: how many records it wrote to each topic, and left out for each reason."""

    by_topic: Counter[str]
    skipped: Counter[str]


def replay_letters(
    settings: Settings,
    selection: Selection,
    *,
    rate: float,
    dry_run: bool,
    wait: Callable[[float], object] = time.sleep,
) -> Replay:
    """Write dead letters' records to where they came from. Raises BrokerError, NotRead or ReplayFailed."""
    replay = Replay(Counter(), Counter())

    def is_taken(letter: Letter, past: Past) -> bool:
        if (why := refusal(letter, settings.topics.prefix, past)) is not None:
            replay.skipped[why] += 1
        return why is None

    letters, size = [], 0
    for letter in read_letters(settings, selection):
        if is_taken(letter, Past()):
            letters.append(letter)
            size += len(letter.record.key or b"") + len(letter.record.value or b"")
        if len(letters) > MOST_REPLAYED or size > MOST_BYTES:
            most = f"more than {MOST_REPLAYED} letters, or {MOST_BYTES // 1_000_000} MB, are meant"
            raise ReplayFailed(f"{most}; choose fewer with --since or --reason")
    with broker_failures(settings):
        # Before the topics are read: from here on no other replay can add to them.
        producer = None if dry_run else _transactional(settings)
        past = _past(settings, letters)
        chosen = [letter for letter in sorted(letters, key=_moment) if is_taken(letter, past)]
        size = min(_MOST_BATCH, max(1, int(rate)))
        for start in range(0, len(chosen), size):
            batch = chosen[start : start + size]
            if producer is not None:
                if start:
                    wait(size / rate)
                _write(settings, producer, batch, replay.by_topic.total())
            replay.by_topic.update(letter.topic for letter in batch)
    return replay


def _transactional(settings: Settings) -> Producer:
    producer = Producer(
        client_properties(
            settings,
            transactional_id=f"{settings.topics.prefix}-dead-letters-replay",
            message_max_bytes=ROOMY_MAX_MESSAGE_BYTES,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=5,
        )
    )
    producer.init_transactions(ANSWER_TIMEOUT_S)
    return producer


def _write(settings: Settings, producer: Producer, batch: Sequence[Letter], done: int) -> None:
    counts = partition_counts(settings)
    now_ms = int(time.time() * _MILLISECONDS)
    try:
        with transaction(producer):
            for letter in batch:
                record = letter.record
                # The one that the record had, so that a query's result and feedback stay side by side.
                places = {str(number): number for number in range(counts[letter.topic])}
                producer.produce(
                    letter.topic,
                    key=record.key,
                    value=record.value,
                    headers=replay_headers(letter),
                    # Never before the letter: a later replay looks for it from the letter's time on.
                    timestamp=max(now_ms, record.timestamp_ms),
                    partition=places.get(letter.partition, _BY_KEY),
                )
    except (KafkaException, BufferError) as error:
        raise ReplayFailed(
            f"stopped after {done} records ({error}), which stay replayed; run this again: it finds what was "
            "committed, and goes on with the rest"
        ) from None


def _past(settings: Settings, letters: Sequence[Letter]) -> Past:
    if not letters:
        return Past()
    since = min(letter.at for letter in letters) - _CLOCKS_DIFFER
    prefix, sources = settings.topics.prefix, sorted({letter.topic for letter in letters})
    letters_of = {letter.identity: letter for letter in letters}
    asked = {text_member(letter.record.value, "query_id") for letter in letters}
    replayed: set[str] = set()
    for record in chain.from_iterable(records_since(settings, source, since, _GROUP) for source in sources):
        letter = letters_of.get(_text(dict(record.headers).get(REPLAY_OF)) or "")
        # Whoever may write to the topic may name any letter; only its own bytes there show that it was replayed.
        if letter is not None and is_replay(record, letter):
            replayed.add(letter.identity)
    has_queries = QUERIES.name(prefix) in sources
    results = records_since(settings, RESULTS.name(prefix), since, _GROUP) if has_queries else ()
    answered = frozenset(key for record in results if (key := _text(record.key) or "") in asked)
    return Past(frozenset(replayed), answered, _oldest(settings, sources))


def _oldest(settings: Settings, topics: Sequence[str]) -> datetime | None:
    """Return from when on every record of these topics is still there; None where they are kept for ever."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    admin = AdminClient(admin_properties(settings))
    described = admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT_S)
    kept = [int(future.result()["retention.ms"].value or -1) for future in described.values()]
    limited = [milliseconds for milliseconds in kept if milliseconds >= 0]
    return datetime.now(UTC) - timedelta(milliseconds=min(limited)) + _CLOCKS_DIFFER if limited else None
