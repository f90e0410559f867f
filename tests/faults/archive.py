"""Follows every topic as an outside consumer with ``read_committed`` does, and keeps what it reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Condition, Event
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from schemas.topics import (
    CALIBRATION,
    CALIBRATION_HISTORY,
    DEAD_LETTERS,
    FEEDBACK,
    OBSERVATIONS,
    QUERIES,
    RESULTS,
    STATUS,
)
from tests.faults.evidence import Kept, Place
from tests.faults.worker import Worker
from tests.support.broker import committed_reader, read_all

FOLLOWED = (QUERIES, RESULTS, FEEDBACK, OBSERVATIONS, CALIBRATION, CALIBRATION_HISTORY, STATUS, DEAD_LETTERS)
_ASK_S = 30.0


class Archive(Worker):
    """All committed records so far, by place; one thread reads, any may ask.

    ``on_record``: called in the reader's thread with each record.
    """

    def __init__(self, bootstrap: str, prefix: str, on_record: Callable[[Kept], None]) -> None:
        super().__init__("archive")
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._on_record = on_record
        self._changed = Condition()
        self._has_grown = Event()
        self.records: dict[Place, Kept] = {}

    def find_growth(self) -> None:
        """Follow the partitions that were added to topics, too."""
        self._has_grown.set()

    def seen(self) -> dict[Place, Kept]:
        """Return the records so far, while the thread reads on."""
        with self._changed:
            return dict(self.records)

    def wait_for(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something holds; asked again whenever records have come. False when the time is over first."""
        with self._changed:
            return self._changed.wait_for(lambda: self.raise_failure() or holds(), timeout_s)

    def read_again(self) -> dict[Place, Kept]:
        """Return what the topics hold now, read anew by fresh consumers, over what retention has taken since."""
        found = self.seen()
        for topic in FOLLOWED:
            messages = read_all(self._bootstrap, topic.name(self._prefix))
            found.update((kept.place, kept) for kept in self._kept(messages))
        return found

    def run(self) -> None:
        super().run()
        with self._changed:
            self._changed.notify_all()

    def work(self) -> None:
        # It waits out every outage of the broker; the client's own lines would stand in the report.
        consumer = committed_reader(self._bootstrap, {"log_level": 2})
        followed = self._partitions(consumer)
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in followed])
        while not self.closing.is_set():
            messages = [one for one in consumer.consume(1_000, 0.05) if one.error() is None]
            fresh = [kept for kept in self._kept(messages) if kept.place not in self.records]
            with self._changed:
                self.records.update((kept.place, kept) for kept in fresh)
            for kept in fresh:
                self._on_record(kept)
            with self._changed:
                self._changed.notify_all()
            # A broker that is away just now is asked again.
            with suppress(KafkaException):
                followed |= self._follow_growth(consumer, followed)
        consumer.close()

    def _follow_growth(self, consumer: Consumer, followed: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Follow what was added, if anything may have been; return it."""
        if not self._has_grown.is_set():
            return set()
        added = self._partitions(consumer) - followed
        self._has_grown.clear()
        consumer.incremental_assign([TopicPartition(*place, OFFSET_BEGINNING) for place in added])
        return added

    def _partitions(self, consumer: Consumer) -> set[tuple[str, int]]:
        known = consumer.list_topics(timeout=_ASK_S).topics
        names = [topic.name(self._prefix) for topic in FOLLOWED]
        return {(name, number) for name in names for number in known[name].partitions}

    def _kept(self, messages: Iterable[Message]) -> Iterable[Kept]:
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            headers = cast(Sequence[tuple[str, bytes | None]], message.headers() or ())
            yield Kept(
                Place(topic.removeprefix(f"{self._prefix}."), partition, offset),
                (message.key() or b"").decode(errors="replace"),
                message.value(),
                message.timestamp()[1],
                {name: (value or b"").decode(errors="replace") for name, value in headers},
            )


def wall_ms() -> int:
    return int(time.time() * 1_000)
