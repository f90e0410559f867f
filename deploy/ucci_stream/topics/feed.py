"""``ucci-stream send`` and ``label``: send a file of events, and wait until the broker acknowledges them."""

from __future__ import annotations

import sys
import time
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from confluent_kafka import KafkaError, Message, Producer
from rich.progress import DownloadColumn, TimeRemainingColumn

from schemas.entities import spells_any_nothing
from schemas.errors import DecodeError, UcciError
from schemas.event import Event
from schemas.feedback import FeedbackEvent
from schemas.routed import QueryEvent
from schemas.settings import Settings
from schemas.topics import FEEDBACK, QUERIES, Topic
from ucci_stream.options import progress
from ucci_stream.topics import admin
from ucci_stream.topics.admin import client_properties
from ucci_stream.topics.json_lines import HEAD_BYTES, WANTED, kind_of

_POLL_S = 0.1

Decoded = TypeVar("Decoded")


class FeedStopped(UcciError):
    """The feed ended before the end of the file; what was acknowledged stays sent."""


def holds_nothing(path: Path) -> str:
    """Return what is said of a file without a line."""
    return f"{path}: is empty; {WANTED}"


class Fed(NamedTuple):
    """What was sent and acknowledged, and where."""

    topic: str
    records: int
    query_ids: frozenset[str]
    #: Of labels: fields that no configured workload has, with the number of lines that name them. They count nothing.
    unknown_fields: Counter[str]
    #: Of labels: lines that hold a value such as "None", which counts as one.
    spelt_nulls: int = 0


def send_queries(settings: Settings, path: Path) -> Fed:
    """Send a JSONL file of queries. Raises FeedStopped, naming the bad line, or the broker's refusal."""
    stopped: FeedStopped | None = None
    query_ids: set[str] = set()
    with open_lines(path) as lines, _progress(path) as advance:
        sends = _new_sends(settings, QUERIES)
        for number, line in lines:
            advance(len(line))
            if not line.strip():
                continue
            try:
                event = QueryEvent.from_json(line.strip())
            except DecodeError as error:
                stopped = FeedStopped(f"{path}:{number}: {error}")
                break
            sends.send(event.query_id, event.to_json())
            query_ids.add(event.query_id)
    sends.finish()
    if stopped is not None:
        raise FeedStopped(f"{stopped}; the {sends.acknowledged} records before it stay sent")
    return Fed(sends.topic, sends.acknowledged, frozenset(query_ids), Counter())


def send_feedback(settings: Settings, path: Path) -> Fed:
    """Send a JSONL file of :class:`FeedbackEvent` to the feedback topic; it is read and checked whole before that.

    Raises FeedStopped, naming the first bad line, and how many there are, or the broker's refusal.
    """
    events, faults, unknown = [], [], Counter[str]()
    known = {name for workload in settings.workloads.values() for name in workload.fields}
    # Labels name no workload: a text is null for certain if all of them say so.
    each = [workload.nulls for workload in settings.workloads.values()]
    nulls = frozenset[str]().union(*each).intersection(*each)
    with open_lines(path) as lines:
        for number, line in lines:
            try:
                events += [FeedbackEvent.from_json(line.strip())] if line.strip() else []
            except DecodeError as error:
                faults.append(f"{path}:{number}: {error}")
                continue
            named = set(events[-1].entities or ()) if line.strip() and known else set[str]()
            unknown.update(named - known)
            if named and not named & known:
                fields = ", ".join(sorted(known))
                faults.append(f"{path}:{number}: entities: has none of the fields, which are {fields}")
    if faults:
        more = f"; {len(faults) - 1} more lines are faulty" if len(faults) > 1 else ""
        raise FeedStopped(f"{faults[0]}{more}; nothing was sent")
    count = send_events(settings, FEEDBACK, ((event.query_id, event) for event in events))
    spelt = sum(spells_any_nothing(event.entities, nulls) for event in events)
    return Fed(
        FEEDBACK.name(settings.topics.prefix), count, frozenset(event.query_id for event in events), unknown, spelt
    )


def send_events(settings: Settings, topic: Topic, events: Iterable[tuple[str, Event]]) -> int:
    """Send events by their keys and wait until the broker has acknowledged all of them; returns how many.

    Raises FeedStopped when one was not acknowledged; it may have come in all the same.
    """
    sends = _new_sends(settings, topic)
    for key, event in events:
        sends.send(key, event.to_json())
    sends.finish()
    return sends.acknowledged


def _new_sends(settings: Settings, topic: Topic) -> Sends:
    admin.require_broker(settings)
    producer = Producer(client_properties(settings, enable_idempotence=True, linger_ms=20))
    return Sends(producer, topic.name(settings.topics.prefix))


class Sends:
    """Records on their way to one topic; counts what the broker acknowledged."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.topic = topic
        self.acknowledged = 0
        self._producer = producer
        self._refused: str | None = None
        self._reports = 0

    def send(self, key: str, value: bytes) -> None:
        """Hand one record to the client, waiting for room. Raises FeedStopped when nothing is acknowledged any more."""
        self._await(lambda: self._has_taken(key, value))
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all is acknowledged. Raises FeedStopped if one is refused, or nothing is acknowledged any more."""
        self._await(lambda: self._producer.flush(_POLL_S) == 0)
        if self._refused is not None:
            raise FeedStopped(f"{self.topic}: {self._refused}; {self.acknowledged} records were acknowledged")

    def _has_taken(self, key: str, value: bytes) -> bool:
        try:
            self._producer.produce(self.topic, key=key.encode(), value=value, on_delivery=self._report)
        except BufferError:
            self._producer.poll(_POLL_S)
            return False
        return True

    def _await(self, done: Callable[[], bool]) -> None:
        """Repeat a call until it returns true, as long as acknowledgements come in meanwhile."""
        since, reports = time.monotonic(), self._reports
        while not done():
            if self._reports != reports:
                since, reports = time.monotonic(), self._reports
            elif time.monotonic() - since > admin.ANSWER_TIMEOUT_S:
                self._producer.purge()
                raise FeedStopped(
                    f"{self.topic}: no acknowledgement for {admin.ANSWER_TIMEOUT_S:g} s; {self.acknowledged} records "
                    "were acknowledged, and the cluster may be failing over"
                )

    def _report(self, error: KafkaError | None, _message: Message) -> None:
        self._reports += 1
        if error is None:
            self.acknowledged += 1
        elif self._refused is None:
            self._refused = error.str()


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Open a JSONL file, or standard input for ``-``, as numbered lines; a byte order mark of UTF-8 is passed over.

    Raises FeedStopped if it cannot be read, or is something else than one JSON object a line.
    """
    try:
        stream = cast(BufferedReader, sys.stdin.buffer) if str(path) == "-" else path.open("rb")
    except OSError as error:
        raise FeedStopped(f"{path}: cannot be read: {error.strerror}") from None
    with stream:
        head = _head(path, stream)
        if (kind := kind_of(head)) is not None:
            raise FeedStopped(kind.line(path))
        if head.startswith(BOM_UTF8):
            stream.read(len(BOM_UTF8))
        yield enumerate(stream, start=1)


def _head(path: Path, stream: BufferedReader) -> bytes:
    """Return a file's first bytes, which are read again. Raises FeedStopped if it cannot be read, as a folder."""
    try:
        return stream.peek(HEAD_BYTES)[:HEAD_BYTES]
    except OSError as error:
        raise FeedStopped(f"{path}: cannot be read: {error.strerror}") from None


def decoded_lines(path: Path, decode: Callable[[bytes], Decoded]) -> Iterator[tuple[int, Decoded]]:
    """Yield what each line that is not empty says, with its number. Raises FeedStopped, naming a line that is bad."""
    with open_lines(path) as lines:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                decoded = decode(line)
            except DecodeError as error:
                raise FeedStopped(f"{path}:{number}: {error}") from None
            yield number, decoded


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None]]:
    """Show how much of the file is sent; nothing is drawn where the output is no terminal."""
    size = path.stat().st_size if str(path) != "-" else None
    with progress(DownloadColumn(), TimeRemainingColumn()) as bars:
        task = bars.add_task(path.name, total=size)
        yield lambda sent: bars.advance(task, sent)
