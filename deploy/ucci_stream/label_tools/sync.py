"""``ucci-stream label-studio sync``: label requests → tasks, annotations → feedback, in rounds that repeat nothing.

A round reads what is open, what the project holds and what was told, does what is missing, and says what it did. What
happened while nobody listened, deletions included, comes with the next round.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from rich.console import Console

from recalibrator.labelling.reconcile import Author, Plan, Task, plan, read_task
from schemas.errors import UcciError
from schemas.feedback import FeedbackEvent
from schemas.settings import Settings, WorkloadSettings
from ucci_runtime.broker.errors import AccessDenied, BrokerError
from ucci_stream.label_tools.label_studio_client import Interrupted, LabelStudio, LabelStudioFailed
from ucci_stream.label_tools.label_studio_project import require_project, task_of
from ucci_stream.label_tools.topics import SyncTopics
from ucci_stream.topics.feed import FeedStopped

T = TypeVar("T")

FULL_LISTING_S = 900.0
"""Between full listings a round asks only for tasks that have changed."""

_OVERLAP = timedelta(seconds=60)
"""Of listings: a change may be seen later than one that it precedes."""

_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How a project is kept in step.

    Parameters
    ----------
    most : int
        Tasks that may wait for an annotator.
    grace_s : float
        Seconds that a task stays when its request is over, since somebody may have it open.
    prefill : bool
        Whether the served entities stand in the fields to begin with.
    """

    most: int = 1_000
    grace_s: float = 600.0
    prefill: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did.

    Parameters
    ----------
    pushed, removed : int
        Tasks.
    new, revised, skipped, retracted : int
        Feedback told and acknowledged.
    faults : tuple of str
        Annotations that say nothing clear, a line each; told once they are mended.
    waiting : int
        Tasks that wait for an annotator.
    """

    pushed: int = 0
    removed: int = 0
    new: int = 0
    revised: int = 0
    skipped: int = 0
    retracted: int = 0
    faults: tuple[str, ...] = ()
    waiting: int = 0

    def as_dict(self) -> dict[str, object]:
        """Return it for programs."""
        return asdict(self)


class Synchroniser:
    """Keeps one project in step with the topics.

    Parameters
    ----------
    studio : LabelStudio
    project : int
    topics : SyncTopics
    workload : WorkloadSettings
    options : SyncOptions
    join_retention_s : float
        Labels of queries routed longer ago than this, in seconds, find no result.
    now : callable
        Returns the time.
    """

    def __init__(
        self,
        studio: LabelStudio,
        project: int,
        topics: SyncTopics,
        workload: WorkloadSettings,
        options: SyncOptions,
        *,
        join_retention_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._studio = studio
        self._project = project
        self._topics = topics
        self._workload = workload
        self._options = options
        self._join_retention = timedelta(seconds=join_retention_s)
        self._now = now
        self._tasks: dict[int, Task] = {}
        self._faults: dict[int, list[str]] = {}
        self._changed_at: datetime | None = None
        self._full_at: datetime | None = None

    async def round(self) -> Round:
        """Do one round.

        Raises
        ------
        LabelStudioFailed, FeedStopped, BrokerError
            What was done before it stays done.
        Interrupted
            When asked to end.
        """
        now, options = self._now(), self._options
        try:
            await self._list(now)
        except LabelStudioFailed:
            # The next listing is whole, in case that it was the question for changes which could not be answered.
            self._full_at = None
            raise
        requests = await asyncio.to_thread(self._topics.requests, now, options.most)
        # Read after the listing: what a webhook told meanwhile is not told again.
        told = await asyncio.to_thread(self._topics.told)
        todo = plan(
            requests,
            self._tasks.values(),
            told,
            most=options.most,
            now=now,
            over_before=now - timedelta(seconds=options.grace_s),
            told_before=now - self._join_retention,
        )
        events = [*todo.tell, *await self._really_gone(todo)]
        kinds = Counter(_kind(event, told) for event in events)
        if events:
            await asyncio.to_thread(self._topics.tell, events)
        pushed = await self._push(todo)
        await self._remove(todo.remove)
        return Round(
            pushed=pushed,
            removed=len(todo.remove),
            **kinds,
            faults=tuple(fault for lines in self._faults.values() for fault in lines),
            waiting=sum(task.is_untouched for task in self._tasks.values()) + pushed,
        )

    async def _list(self, now: datetime) -> None:
        is_full = self._full_at is None or now - self._full_at >= timedelta(seconds=FULL_LISTING_S)
        since = None if is_full or self._changed_at is None else self._changed_at - _OVERLAP
        tasks, faults = {}, {}
        async for document in self._studio.tasks(self._project, since):
            task, lines = read_task(document)
            changed_at = datetime.fromisoformat(document["updated_at"])
            self._changed_at = changed_at if self._changed_at is None else max(changed_at, self._changed_at)
            faults[int(document["id"])] = lines
            if task is not None:
                tasks[task.number] = task
        if is_full:
            self._tasks, self._faults, self._full_at = {}, {}, now
        self._tasks.update(tasks)
        self._faults.update(faults)

    async def _really_gone(self, todo: Plan) -> list[FeedbackEvent]:
        return [event for key, event in todo.if_gone if not await self._studio.has_annotation(key.annotation)]

    async def _push(self, todo: Plan) -> int:
        tasks = [task_of(one, self._workload.fields, prefill=self._options.prefill) for one in todo.push]
        for batch in _batches(tasks):
            await self._studio.create_tasks(self._project, batch)
        return len(tasks)

    async def _remove(self, numbers: Sequence[int]) -> None:
        for batch in _batches(numbers):
            await self._studio.delete_tasks(self._project, batch)
            for number in batch:
                self._tasks.pop(number, None)


def _kind(event: FeedbackEvent, told: dict[Author, FeedbackEvent]) -> str:
    if event.retracted:
        return "retracted"
    if event.entities is None:
        return "skipped"
    return "revised" if (event.query_id, event.labeler) in told else "new"


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)]


_MAY_PASS = (LabelStudioFailed, BrokerError, FeedStopped)
"""What waiting may mend: a server or a broker that is away."""

_out = Console()
_err = Console(stderr=True)


class Rounds:
    """One round, or one after another until a signal.

    Parameters
    ----------
    settings : Settings
    workload : str
    options : SyncOptions
    project : int, optional
        By default the one that setup made.
    every_s : float, optional
        Seconds between rounds; one round by default.
    as_json : bool
        Whether each round is told as a line of JSON.
    """

    def __init__(
        self,
        settings: Settings,
        workload: str,
        options: SyncOptions,
        *,
        project: int | None,
        every_s: float | None,
        as_json: bool,
    ) -> None:
        self._settings = settings
        self._workload = workload
        self._options = options
        self._project = project
        self._every_s = every_s
        self._as_json = as_json
        self._closing = asyncio.Event()
        self._topics: SyncTopics | None = None

    async def run(self, url: str, token: str) -> None:
        """Run until done, or until SIGTERM or SIGINT.

        Raises
        ------
        LabelStudioFailed, BrokerError, FeedStopped
            Where one round was asked for, or waiting cannot mend it.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        async with LabelStudio(url, token, self._closing) as studio:
            try:
                await self._run(studio)
            except Interrupted:
                return
            except _MAY_PASS:
                if not self._closing.is_set():
                    raise
            finally:
                if self._topics is not None:
                    await asyncio.to_thread(self._topics.close)

    def _end(self) -> None:
        self._closing.set()
        if self._topics is not None:
            self._topics.interrupt()

    async def _run(self, studio: LabelStudio) -> None:
        keeper: Synchroniser | None = None
        while not self._closing.is_set():
            try:
                keeper = keeper or await self._open(studio)
                self._show(await keeper.round())
            except _MAY_PASS as error:
                if self._every_s is None or self._closing.is_set() or isinstance(error, AccessDenied):
                    raise
                self._warn(error)
            if self._every_s is None:
                return
            try:
                await asyncio.wait_for(self._closing.wait(), self._every_s)
            except TimeoutError:
                continue

    async def _open(self, studio: LabelStudio) -> Synchroniser:
        settings = self._settings
        project = await require_project(studio, self._workload, self._project)
        if self._topics is None:
            self._topics = await asyncio.to_thread(SyncTopics, settings, self._workload, project)
        return Synchroniser(
            studio,
            project,
            self._topics,
            settings.workloads[self._workload],
            self._options,
            join_retention_s=settings.recalibrator.join_retention_s,
        )

    def _show(self, done: Round) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps(done.as_dict()) + "\n")
            sys.stdout.flush()
            return
        _out.print(
            f"tasks: {done.pushed} pushed, {done.removed} removed, {done.waiting} waiting; labels: {done.new} new, "
            f"{done.revised} revised, {done.skipped} skipped, {done.retracted} retracted",
            highlight=False,
            soft_wrap=True,
        )
        for fault in done.faults:
            _err.print(fault, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def _warn(self, error: UcciError) -> None:
        _err.print(f"{error}; trying again", style="yellow", markup=False, highlight=False, soft_wrap=True)
