"""``ucci-stream send`` and ``label``: send a file of events to a topic and wait until the broker acknowledges them.

A bad line stops the feed and is named by its number; the good ones before it stay sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from schemas.errors import DecodeError, UcciError
from schemas.event import Event
from schemas.feedback import FeedbackEvent
from schemas.query import QueryEvent
from schemas.settings import Settings
from schemas.topics import FEEDBACK, QUERIES, Topic
from ucci_stream.topics.admin import client_properties

_FLUSH_TIMEOUT_S = 60.0
_POLL_EVERY = 100


class FeedStopped(UcciError):
    """The feed ended before the end of the file; what was acknowledged stays sent."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Fed:
    """What was sent and acknowledged, and where."""

    topic: str
    records: int


def send_queries(settings: Settings, path: Path, console: Console) -> Fed:
    """Send a JSONL file of :class:`QueryEvent` to the queries topic.

    Raises
    ------
    FeedStopped
        Naming the bad line, or the broker's refusal.
    """
    return _feed(settings, path, QUERIES, QueryEvent, console)


def send_feedback(settings: Settings, path: Path, console: Console) -> Fed:
    """Send a JSONL file of :class:`FeedbackEvent` to the feedback topic.

    Raises
    ------
    FeedStopped
        Naming the bad line, or the broker's refusal.
    """
    return _feed(settings, path, FEEDBACK, FeedbackEvent, console)


def send_events(settings: Settings, topic: Topic, events: Iterable[tuple[str, Event]]) -> int:
    """Send events by their keys and wait until the broker has acknowledged all of them; returns how many.

    Raises
    ------
    FeedStopped
        When one was not acknowledged; it may have come in all the same.
    """
    name = topic.name(settings.topics.prefix)
    producer = Producer(client_properties(settings, enable_idempotence=True, linger_ms=20))
    acknowledged = _Acknowledgements()
    for key, event in events:
        _produce(producer, name, key, event, acknowledged)
        producer.poll(0)
    _require_acknowledged(producer, name, acknowledged)
    return acknowledged.count


def _require_acknowledged(producer: Producer, topic: str, acknowledged: _Acknowledgements) -> None:
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if acknowledged.refused is not None or left:
        reason = acknowledged.refused or f"{left} records were not acknowledged within {_FLUSH_TIMEOUT_S:g} s"
        raise FeedStopped(f"{topic}: {reason}; {acknowledged.count} records were acknowledged")


def _feed(
    settings: Settings, path: Path, topic: Topic, kind: type[QueryEvent | FeedbackEvent], console: Console
) -> Fed:
    name = topic.name(settings.topics.prefix)
    producer = Producer(client_properties(settings, enable_idempotence=True, linger_ms=20))
    acknowledged = _Acknowledgements()
    stopped: FeedStopped | None = None
    with open_lines(path) as lines, _progress(path, console) as advance:
        for number, line in lines:
            advance(len(line))
            if not line.strip():
                continue
            try:
                event = kind.from_json(line.strip())
            except DecodeError as error:
                stopped = FeedStopped(f"{path}:{number}: {error}")
                break
            _produce(producer, name, event.query_id, event, acknowledged)
            if number % _POLL_EVERY == 0:
                producer.poll(0)
    _require_acknowledged(producer, name, acknowledged)
    if stopped is not None:
        raise FeedStopped(f"{stopped}; the {acknowledged.count} records before it stay sent")
    return Fed(name, acknowledged.count)


def _produce(producer: Producer, topic: str, key: str, event: Event, acknowledged: _Acknowledgements) -> None:
    """Produce one record, waiting for room when the client's queue is full."""
    value = event.to_json()
    while True:
        try:
            producer.produce(topic, key=key.encode(), value=value, on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.1)
        else:
            return


class _Acknowledgements:
    """Counts delivery reports and keeps the first refusal."""

    def __init__(self) -> None:
        self.count = 0
        self.refused: str | None = None

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.count += 1
        elif self.refused is None:
            self.refused = error.str()


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Open a JSONL file, or standard input for ``-``, as numbered lines.

    Raises
    ------
    FeedStopped
        When the file cannot be read.
    """
    try:
        stream: BinaryIO = sys.stdin.buffer if str(path) == "-" else path.open("rb")
    except OSError as error:
        raise FeedStopped(f"{path}: cannot be read: {error.strerror}") from None
    with stream:
        yield enumerate(stream, start=1)


@contextmanager
def _progress(path: Path, console: Console) -> Iterator[Advance]:
    """Show how much of the file is sent; nothing is drawn where the output is no terminal."""
    size = path.stat().st_size if str(path) != "-" else None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Advance(progress, size, path.name)


class Advance:
    """Moves the progress bar by a number of bytes."""

    def __init__(self, progress: Progress, total: int | None, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total)

    def __call__(self, size: int) -> None:
        """Advance by ``size`` bytes."""
        self._progress.advance(self._task, size)
