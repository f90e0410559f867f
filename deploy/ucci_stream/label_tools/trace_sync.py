"""Rounds that keep a tracing service in step with the topics: scores become feedback, labels go back to their traces.

A score is joined to its query by an id that it or a span names, else by its trace: results carry the trace context of
their query.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from recalibrator.labelling.label_tool import AnnotationKey, JsonDocument, LabelTool, TaskId
from recalibrator.labelling.reconcile import Author
from recalibrator.labelling.trace_scores import ScoredTrace, TraceLabel, TraceScoreReader
from schemas.errors import DecodeError
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from schemas.topics import RESULTS
from stream_router.trace_context import TRACEPARENT, trace_context
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.records import Record
from ucci_stream.label_tools.sync import Round, Rounds, Synchroniser, SyncOptions, SyncTopics, reading_group
from ucci_stream.label_tools.trace_services import Langfuse, Phoenix, ScoreService
from ucci_stream.topics.kafka_reading import tail_reader

_POLL_S = 0.1
_AT_ONCE = 100


class TracesOfQueries:
    """Which trace belongs to which query, of the latest results; bounded by ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queries: dict[str, str | None] = {}
        self._traces: dict[str, str] = {}

    def take(self, record: Record) -> None:
        """Take one result's record."""
        context = trace_context(record.headers)
        if context is None or record.key is None:
            return
        trace, query_id = context[TRACEPARENT].split("-")[1], record.key.decode("utf-8", "replace")
        # A trace of several queries does not say which one a score means.
        self._queries[trace] = query_id if self._queries.get(trace, query_id) == query_id else None
        self._traces[query_id] = trace
        for held in (self._queries, self._traces):
            if len(held) > self._most:
                del held[next(iter(held))]

    def query_of(self, trace_id: str) -> str | None:
        """Return a trace's only query."""
        return self._queries.get(trace_id)

    def trace_of(self, query_id: str) -> str | None:
        """Return a query's trace."""
        return self._traces.get(query_id)


class TraceTopics(SyncTopics):
    """The topics as one tracing project's synchronisation sees them. ``most``: results that are looked at."""

    def __init__(self, settings: Settings, workload: str, source: str, project: str, most: int) -> None:
        super().__init__(settings, workload, source, project)
        prefix = settings.topics.prefix
        self.traces = TracesOfQueries(most)
        self._elsewhere: dict[Author, TraceLabel] = {}
        group = reading_group(prefix, source, "results")
        self._results = tail_reader(settings, f"{source}-results", RESULTS.name(prefix), group, most)

    def requests(self, now: datetime, most: int) -> tuple[LabelRequested, ...]:
        """Return none: a tracing service has the traces already."""
        del now, most
        return ()

    def read_results(self) -> None:
        """Read the results that have come; blocks. Raises BrokerUnreachable when it is interrupted."""
        for record in self._latest():
            self.traces.take(record)

    def labels(self) -> list[TraceLabel]:
        """Return what others have said, last of each, of queries whose trace is known, and was not written yet."""
        return list(self._elsewhere.values())

    def written(self) -> None:
        """Forget those labels."""
        self._elsewhere.clear()

    def close(self) -> None:
        """Close the readers."""
        super().close()
        self._results.close()

    def _latest(self) -> Iterator[Record]:
        while not self._results.has_reached_ends:
            if self._closing.is_set():
                raise BrokerUnreachable("closed while results were read")
            yield from self._results.poll(_POLL_S)
        while records := list(self._results.poll(_POLL_S)):
            yield from records

    def _note(self, value: bytes) -> None:
        super()._note(value)
        try:
            event = FeedbackEvent.from_record(value)
        except DecodeError:
            return
        trace, author = self.traces.trace_of(event.query_id), (event.query_id, event.labeler)
        known = self._elsewhere.get(author)
        is_newest = known is None or event.revision >= known.event.revision
        if event.source != self._source and trace is not None and is_newest:
            self._elsewhere[author] = TraceLabel(trace, event)


class TraceTool:
    """A tracing project as a label tool: traces with scores are tasks with annotations, and none is made or removed."""

    def __init__(self, service: ScoreService, name: str, window: timedelta) -> None:
        self.service = service
        self.reader = TraceScoreReader(service.source, service.project, name)
        self.traces = TracesOfQueries(0)
        self._window = window
        self._known: dict[str, str | None] = {}

    @property
    def project(self) -> str:
        """The service's project."""
        return self.service.project

    async def tasks(self, changed_since: datetime | None) -> AsyncIterator[JsonDocument]:
        """Yield the traces with scores, those included whose last one was deleted since this process began."""
        del changed_since
        now = datetime.now(UTC)
        gone = dict(self._known)
        async for trace in self.service.scored(now - self._window):
            gone.pop(trace.trace_id, None)
            named = (one.metadata.get("query_id") for one in trace.scores)
            query_id = next((one for one in named if isinstance(one, str)), None)
            query_id = query_id or trace.query_id or self.traces.query_of(trace.trace_id)
            self._known[trace.trace_id] = query_id
            yield {"trace": trace._replace(query_id=query_id), "now": now}
        for trace_id, query_id in gone.items():
            yield {"trace": ScoredTrace(trace_id, query_id, ()), "now": now}

    async def add(self, requests: Sequence[LabelRequested]) -> None:
        """Make nothing."""

    async def remove(self, tasks: Sequence[TaskId]) -> None:
        """Remove nothing."""

    async def has(self, annotation: AnnotationKey) -> bool:
        """Ask the service."""
        return await self.service.has(unquote(annotation.annotation))


class TraceSynchroniser(Synchroniser):
    """Keeps one tracing project in step; ``pushed`` of a round are the labels that were written to traces."""

    def __init__(self, tool: TraceTool, topics: TraceTopics, options: SyncOptions, *, join_retention_s: float) -> None:
        super().__init__(tool, topics, options, join_retention_s=join_retention_s)
        self._service, self._own = tool.service, topics
        tool.traces = topics.traces

    async def round(self) -> Round:
        """Do one round, with the results that have come meanwhile."""
        await asyncio.to_thread(self._own.read_results)
        done = await super().round()
        labels = self._own.labels()
        for start in range(0, len(labels), _AT_ONCE):
            await self._service.write(labels[start : start + _AT_ONCE])
        self._own.written()
        return replace(done, pushed=len(labels))


class TraceRounds(Rounds):
    """Rounds with a tracing project. ``most`` of the options: results that are looked at."""

    async def _open(self, open_tool: Callable[[], Awaitable[LabelTool]]) -> Synchroniser:
        tool, settings = await open_tool(), self._settings
        assert isinstance(tool, TraceTool)
        topics = await asyncio.to_thread(
            TraceTopics, settings, self._workload, tool.reader.source, tool.project, self._options.most
        )
        self._topics = topics
        return TraceSynchroniser(tool, topics, self._options, join_retention_s=settings.recalibrator.join_retention_s)


@asynccontextmanager
async def opened_service(
    service: Phoenix | Langfuse, name: str, window_s: float, closing: asyncio.Event
) -> AsyncIterator[Callable[[], Awaitable[LabelTool]]]:
    """Yield what opens a project; traces older than ``window_s`` are left alone, as the join has forgotten them."""
    del closing
    tool = TraceTool(service, name, timedelta(seconds=window_s))

    async def open_tool() -> LabelTool:
        return tool

    async with service:
        yield open_tool
