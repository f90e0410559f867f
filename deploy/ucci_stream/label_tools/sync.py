"""Rounds that keep a label tool in step with the topics: label requests become tasks, annotations become feedback.

Whatever happened between rounds, deletions included, comes with the next one. Nothing here knows which tool it is.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TypeVar

from recalibrator.labelling.label_tool import Interrupted, LabelTool, LabelToolFailed, Task
from recalibrator.labelling.queue import LabelQueue
from recalibrator.labelling.reconcile import Author, Sent, note_sent, plan
from schemas.entities import spells_any_nothing
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from schemas.topics import FEEDBACK, LABEL_REQUESTS, RESULTS
from ucci_runtime.broker.errors import AccessDenied, BrokerError
from ucci_runtime.broker.kafka_topic_readers import KafkaTopicReader
from ucci_runtime.broker.kafka_topics import check_topics, partition_counts
from ucci_runtime.broker.records import Record, event_of
from ucci_stream.options import print_json, say, warn
from ucci_stream.topics.access import tool_groups
from ucci_stream.topics.feed import FeedStopped, send_events
from ucci_stream.topics.kafka_reading import topic_reader


class SyncTopics:
    """The topics as one project's synchronisation sees them; its calls block, and are made by one thread at a time.

    The feedback topic is the record of what was sent, by whichever process: nothing else need be remembered.

    ``source``: the tool. ``project``: as the tool knows it. What others sent, or of other projects, is left alone.
    Raises BrokerError when the broker does not answer, or the topics are missing.
    """

    def __init__(self, settings: Settings, workload: str, source: str, project: str) -> None:
        prefix, options = settings.topics.prefix, settings.recalibrator
        check_topics(settings, (RESULTS, FEEDBACK, LABEL_REQUESTS), (FEEDBACK,))
        self._settings, self._workload, self._source, self._project = settings, workload, source, project
        self._closing = Event()
        self._queue = LabelQueue([workload], prefix, most=options.label_requests_max)
        self._sent: dict[Author, Sent] = {}
        self._requests: KafkaTopicReader | None = None
        self._partitions = self._feedback_partitions()
        self._feedback = self._feedback_reader()

    def requests(self, now: datetime, most: int) -> tuple[LabelRequested, ...]:
        """Return the newest open label requests, newest first."""
        if self._requests is None:
            self._requests = self._reader("requests", LABEL_REQUESTS.name(self._settings.topics.prefix), 1)
        for record in self._requests.up_to_end():
            self._queue.take(record.source.topic, record.key, record.value)
        return self._queue.page(self._workload, now, most).requests

    def sent(self) -> dict[Author, Sent]:
        """Return what was sent with the highest revision, of each author and query; without the labels themselves."""
        if (found := self._feedback_partitions()) > self._partitions:
            # What lies in an added partition would count as not sent, and be sent in every round.
            self._feedback.close()
            self._partitions = found
            self._feedback = self._feedback_reader()
        for record in self._feedback.up_to_end():
            self._note(record)
        return self._sent

    def send(self, events: Sequence[FeedbackEvent]) -> None:
        """Send feedback and wait until the broker has it. Raises FeedStopped when one was not acknowledged."""
        send_events(self._settings, FEEDBACK, ((event.query_id, event) for event in events))

    def interrupt(self) -> None:
        """End a call that waits for the broker; callable from any thread."""
        self._closing.set()

    def close(self) -> None:
        """Close the readers."""
        if self._requests is not None:
            self._requests.close()
        self._feedback.close()

    def _note(self, record: Record) -> None:
        # Feedback of others is the most of a busy topic, and parsing it the most of the work.
        is_ours = self._source.encode() in (record.value or b"")
        if is_ours and (event := event_of(record, FeedbackEvent)) is not None:
            note_sent(self._sent, event, self._source, self._project)

    def _feedback_partitions(self) -> int:
        return partition_counts(self._settings)[FEEDBACK.name(self._settings.topics.prefix)]

    def _feedback_reader(self) -> KafkaTopicReader:
        return self._reader("told", FEEDBACK.name(self._settings.topics.prefix), self._partitions)

    def _reader(self, name: str, topic: str, partitions: int) -> KafkaTopicReader:
        client = f"{self._source}-{name}"
        group = tool_groups(self._settings.topics.prefix) + client
        return topic_reader(self._settings, client, [topic], group, partitions=partitions, closing=self._closing)


T = TypeVar("T")

#: Between full listings a round asks only for tasks that have changed.
FULL_LISTING_S = 900.0

#: Of listings: a change may become visible later than one that it precedes.
_OVERLAP = timedelta(seconds=60)

_AT_ONCE = 100
#: What waiting may fix: a tool or a broker that is away.
_MAY_PASS = (LabelToolFailed, BrokerError, FeedStopped)


#: Opens the project of a tool, which asks nothing more once the event is set; may be tried again.
OpenTool = Callable[[asyncio.Event], Awaitable[LabelTool]]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How a project is kept in step."""

    most: int = 1_000
    #: Seconds that a task stays when its request is over, since somebody may have it open.
    grace_s: float = 600.0
    #: Seconds between rounds; one round by default.
    every_s: float | None = None
    #: Whether each round is reported as a line of JSON.
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did."""

    pushed: int = 0
    removed: int = 0
    new: int = 0
    revised: int = 0
    skipped: int = 0
    retracted: int = 0
    #: Annotations that say nothing clear, a line each; they are sent once they are corrected.
    faults: tuple[str, ...] = ()
    #: Labels sent that hold a value such as "None", which counts as one.
    spelt_nulls: int = 0

    waiting: int = 0


class Synchroniser:
    """Keeps one project in step with the topics."""

    def __init__(
        self,
        tool: LabelTool,
        topics: SyncTopics,
        options: SyncOptions,
        *,
        join_retention_s: float,
        nulls: Collection[str] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._tool, self._topics, self._options = tool, topics, options
        self._join_retention = timedelta(seconds=join_retention_s)
        self._nulls, self._now = nulls, now
        self._tasks: dict[str, Task] = {}
        self._changed_at: datetime | None = None
        self._full_at: datetime | None = None

    async def round(self) -> Round:
        """Do one round. Raises Interrupted when asked to end, else LabelToolFailed, FeedStopped or BrokerError."""
        now, options = self._now(), self._options
        try:
            await self._list(now)
        except LabelToolFailed:
            # The next listing is whole, in case the question for changes was the one that could not be answered.
            self._full_at = None
            raise
        requests = await asyncio.to_thread(self._topics.requests, now, options.most)
        # Read after the listing: what a webhook sent meanwhile is not sent again.
        sent = await asyncio.to_thread(self._topics.sent)
        todo = plan(
            requests,
            self._tasks.values(),
            sent,
            most=options.most,
            now=now,
            over_before=now - timedelta(seconds=options.grace_s),
            forgotten_before=now - self._join_retention,
        )
        events = [*todo.send, *[event for key, event in todo.if_gone if not await self._tool.has(key)]]
        kinds = Counter(_kind(event, sent) for event in events)
        if events:
            await asyncio.to_thread(self._topics.send, events)
        for batch in batches(todo.push):
            await self._tool.add(batch)
        await self._remove(todo.remove)
        waiting = sum(task.is_untouched for task in self._tasks.values() if task.query_id is not None)
        return Round(
            pushed=len(todo.push),
            removed=len(todo.remove),
            **kinds,
            faults=tuple(fault for task in self._tasks.values() for fault in task.faults),
            spelt_nulls=sum(spells_any_nothing(event.entities, self._nulls) for event in events),
            waiting=waiting + len(todo.push),
        )

    async def _list(self, now: datetime) -> None:
        is_full = self._full_at is None or now - self._full_at >= timedelta(seconds=FULL_LISTING_S)
        since = None if is_full or self._changed_at is None else self._changed_at - _OVERLAP
        tasks = {}
        async for document in self._tool.tasks(since):
            task = self._tool.reader.task(document)
            tasks[task.document_id] = task
            self._changed_at = max(task.changed_at, self._changed_at or task.changed_at)
        if is_full:
            self._tasks, self._full_at = {}, now
        self._tasks |= tasks

    async def _remove(self, tasks: Sequence[str]) -> None:
        for batch in batches(tasks):
            await self._tool.remove(batch)
            self._tasks = {name: task for name, task in self._tasks.items() if task.task_id not in batch}


@dataclass(slots=True)
class Rounds:
    """One round, or one after another until a signal."""

    settings: Settings
    workload: str
    options: SyncOptions
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    topics: SyncTopics | None = None

    async def run(self, open_tool: OpenTool) -> None:
        """Run until done, or until SIGTERM or SIGINT.

        Raises LabelToolFailed, BrokerError or FeedStopped where one round was asked for, or waiting cannot fix it.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        try:
            await self._run(open_tool)
        except Interrupted:
            return
        except _MAY_PASS:
            if not self.closing.is_set():
                raise
        finally:
            if self.topics is not None:
                await asyncio.to_thread(self.topics.close)

    def _end(self) -> None:
        self.closing.set()
        if self.topics is not None:
            self.topics.interrupt()

    async def _run(self, open_tool: OpenTool) -> None:
        keeper: Synchroniser | None = None
        while not self.closing.is_set():
            try:
                keeper = keeper or await self._open(open_tool)
                self._show(await keeper.round())
            except _MAY_PASS as error:
                if self.options.every_s is None or self.closing.is_set() or isinstance(error, AccessDenied):
                    raise
                warn(f"{error}; trying again")
            if self.options.every_s is None:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self.closing.wait(), self.options.every_s)

    async def _open(self, open_tool: OpenTool) -> Synchroniser:
        tool, settings = await open_tool(self.closing), self.settings
        self.topics = await asyncio.to_thread(SyncTopics, settings, self.workload, tool.reader.source, tool.project)
        retention_s = settings.recalibrator.join_retention_s
        nulls = settings.workloads[self.workload].nulls
        return Synchroniser(tool, self.topics, self.options, join_retention_s=retention_s, nulls=nulls)

    def _show(self, done: Round) -> None:
        if self.options.as_json:
            print_json(json.dumps(asdict(done)).encode())
            return
        say(
            f"tasks: {done.pushed} pushed, {done.removed} removed, {done.waiting} waiting; labels: {done.new} new, "
            f"{done.revised} revised, {done.skipped} skipped, {done.retracted} retracted, {len(done.faults)} refused"
        )
        if done.spelt_nulls:
            remedy = "if nothing is meant, leave the field empty, or add the text to the workload's null_texts"
            warn(f'warning: {done.spelt_nulls} labels hold a value such as "None", which counts as one: {remedy}')
        warn(*done.faults)


def _kind(event: FeedbackEvent, sent: Mapping[Author, Sent]) -> str:
    if event.retracted:
        return "retracted"
    if event.entities is None and event.verdict is None:
        return "skipped"
    return "revised" if (event.query_id, event.labeler) in sent else "new"


def batches(items: Sequence[T]) -> list[Sequence[T]]:
    """Cut what is sent to a tool into parts that it takes at once."""
    return [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)]
