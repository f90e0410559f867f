"""The topic of dead letters read whole, and letters written back to where their records came from, each at most once.

A replay is a sequence of transactions under one transactional id. Beginning one fences a replay that still runs and
ends what a dead one left open; what is committed by then stands in the topics, where the next replay finds it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from schemas.errors import UcciError
from schemas.settings import Settings
from schemas.topics import DEAD_LETTERS, FEEDBACK, QUERIES, RESULTS, ROOMY_MAX_MESSAGE_BYTES
from ucci_runtime.broker.kafka_properties import admin_properties
from ucci_stream.operate.kafka_scan import partitions_of, records_since
from ucci_stream.operate.letters import (
    Letter,
    Past,
    Selection,
    identity,
    is_replay,
    letter_of,
    query_id,
    refusal,
    replay_headers,
    replayed_from,
)
from ucci_stream.topics.admin import ANSWER_TIMEOUT_S, broker_failures, client_properties, partition_counts
from ucci_stream.topics.kafka_reading import topic_reader

#: Letters of one replay; they are held in memory.
MOST_REPLAYED = 100_000

#: Of their records.
MOST_BYTES = 256_000_000

#: After which the broker ends the transaction of a replay that died, where readers of the topic wait for it.
TRANSACTION_TIMEOUT_MS = 10_000

_MOST_BATCH = 500
#: How far the clocks of services, of this machine and of the broker may be apart.
_CLOCKS_DIFFER = timedelta(hours=1)

_MILLISECONDS = 1_000
_GROUP = "dead-letters"
#: In place of a partition: the client chooses one by the record's key.
_BY_KEY = -1


class ReplayFailed(UcciError):
    """A replay that cannot go on; the line says what was done by then."""

    exit_code = 1


def read_letters(settings: Settings, selection: Selection) -> Iterator[Letter]:
    """Yield the dead letters that are meant, partition by partition, up to the topic's end as of now; blocks.

    Raises BrokerError or ReplayFailed.
    """
    prefix = settings.topics.prefix
    topic, group_id = DEAD_LETTERS.name(prefix), f"{prefix}-{_GROUP}"
    partitions = partitions_of(settings, topic)
    with closing(topic_reader(settings, _GROUP, [topic], group_id, partitions=partitions)) as reader:
        for record in reader.up_to_end():
            letter = letter_of(record)
            if selection.takes(letter):
                yield letter


@dataclass(slots=True)
class Replay:
    """What a replay did, or would do."""

    is_dry: bool
    by_topic: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "dry_run": self.is_dry,
            "replayed": self.by_topic.total(),
            "by_topic": dict(self.by_topic),
            "skipped": dict(self.skipped),
        }


def replay_letters(
    settings: Settings,
    selection: Selection,
    *,
    rate: float,
    dry_run: bool,
    wait: Callable[[float], object] = time.sleep,
) -> Replay:
    """Write the records of dead letters to where they came from, but for those that have been or are answered.

    Raises BrokerError or ReplayFailed.
    """
    prefix = settings.topics.prefix
    topic = DEAD_LETTERS.name(prefix)
    replay = Replay(dry_run)
    letters, size = [], 0
    for letter in read_letters(settings, selection):
        why = refusal(letter, prefix, topic, Past(frozenset(), frozenset()))
        if why is not None:
            replay.skipped[why] += 1
            continue
        letters.append(letter)
        size += len(letter.record.key or b"") + len(letter.record.value or b"")
        if len(letters) > MOST_REPLAYED or size > MOST_BYTES:
            most = f"more than {MOST_REPLAYED} letters, or {MOST_BYTES // 1_000_000} MB, are meant"
            raise ReplayFailed(f"{most}; choose fewer with --since or --reason")
    with broker_failures(settings):
        # Before the topics are read: from here on no other replay can add to them.
        producer = None if dry_run else _transactional(settings)
        past = _past(settings, letters)
        chosen = []
        for letter in sorted(letters, key=lambda one: one.at):
            why = refusal(letter, prefix, topic, past)
            if why is None:
                chosen.append(letter)
            else:
                replay.skipped[why] += 1
        size = min(_MOST_BATCH, max(1, int(rate)))
        for start in range(0, len(chosen), size):
            batch = chosen[start : start + size]
            if producer is not None:
                if start:
                    wait(size / rate)
                _write(settings, producer, topic, batch, replay)
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


def _write(settings: Settings, producer: Producer, topic: str, batch: Sequence[Letter], replay: Replay) -> None:
    """Write the records of letters in one transaction."""
    counts = partition_counts(settings)
    now_ms = int(datetime.now(UTC).timestamp() * _MILLISECONDS)
    producer.begin_transaction()
    try:
        for letter in batch:
            record = letter.record
            producer.produce(
                letter.topic,
                key=record.key,
                value=record.value,
                headers=replay_headers(topic, letter),
                # Never before the letter: a later replay looks for it from the letter's time on.
                timestamp=max(now_ms, record.timestamp_ms),
                partition=_partition_of(letter, counts),
            )
        producer.commit_transaction(ANSWER_TIMEOUT_S)
    except BaseException as error:
        # Where this fails too, the broker ends the transaction by itself, or the next replay does when it begins.
        with suppress(KafkaException):
            producer.abort_transaction(ANSWER_TIMEOUT_S)
        if not isinstance(error, KafkaException | BufferError):
            raise
        done = replay.by_topic.total()
        raise ReplayFailed(
            f"stopped after {done} records ({error}), which stay replayed; run this again: it finds what was "
            "committed, and goes on with the rest"
        ) from None


def _partition_of(letter: Letter, counts: Mapping[str, int]) -> int:
    """Return the partition that the record had, so that a query's result and feedback stay side by side."""
    known = {str(number): number for number in range(counts[letter.topic])}
    return known.get(letter.partition, _BY_KEY)


def _past(settings: Settings, letters: Sequence[Letter]) -> Past:
    """Read what was replayed and answered since the first of these letters."""
    if not letters:
        return Past(frozenset(), frozenset())
    since = min(letter.at for letter in letters) - _CLOCKS_DIFFER
    prefix, topics = settings.topics.prefix, {letter.topic for letter in letters}
    sources = sorted(topics & {topic.name(prefix) for topic in (QUERIES, FEEDBACK)})
    letters_of = {identity(DEAD_LETTERS.name(prefix), letter): letter for letter in letters}
    asked = {query_id(letter.record.value) for letter in letters}
    replayed: set[str] = set()
    answered: set[str] = set()
    for source in sources:
        for record in records_since(settings, source, since, _GROUP):
            found = replayed_from(record.headers)
            letter = letters_of.get(found) if found is not None else None
            # Whoever may write to the topic may name any letter; only its own bytes there show that it was replayed.
            if found is not None and letter is not None and is_replay(record, letter):
                replayed.add(found)
    if QUERIES.name(prefix) in sources:
        for record in records_since(settings, RESULTS.name(prefix), since, _GROUP):
            if (key := (record.key or b"").decode("utf-8", "replace")) in asked:
                answered.add(key)
    return Past(frozenset(replayed), frozenset(answered), _oldest(settings, sources))


def _oldest(settings: Settings, topics: Sequence[str]) -> datetime | None:
    """Return from when on every record of these topics is still there; None where they are kept for ever."""
    if not topics:
        return None
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    admin = AdminClient(admin_properties(settings))
    described = admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT_S)
    kept = [int(future.result()["retention.ms"].value or -1) for future in described.values()]
    limited = [milliseconds for milliseconds in kept if milliseconds >= 0]
    return datetime.now(UTC) - timedelta(milliseconds=min(limited)) + _CLOCKS_DIFFER if limited else None
