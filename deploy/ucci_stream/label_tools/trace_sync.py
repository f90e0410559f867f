"""Rounds that keep a tracing service in step with the topics: scores become feedback, labels go back to their traces.

A score is joined to its query by an id that it or a span names, else by its trace: results carry the trace context of
their query.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from recalibrator.labelling.label_tool import LabelTool
from recalibrator.labelling.reconcile import Author
from recalibrator.labelling.trace_scores import TraceLabel
from schemas.errors import DecodeError
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from schemas.topics import RESULTS
from stream_router.otel_tracing import TRACEPARENT, trace_context
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.records import Record
from ucci_stream.label_tools.sync import Round, Rounds, Synchroniser, SyncTopics, reading_group
from ucci_stream.label_tools.trace_services import TracingProject
from ucci_stream.topics.kafka_reading import tail_reader

_POLL_S = 0.1
_AT_ONCE = 100


class TracesOfQueries:
    """Which trace belongs to which query, of the latest results; bounded by ``most``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queries: dict[str, str | None] = {}
        self._traces: dict[str, str] = {}
        self.query_of, self.trace_of = self._queries.get, self._traces.get

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


class TraceTopics(SyncTopics):
    """The topics as one tracing project's synchronisation sees them. ``most``: results that are looked at."""

    def __init__(self, settings: Settings, workload: str, project: TracingProject, most: int) -> None:
        super().__init__(settings, workload, project.source, project.project)
        self.traces = TracesOfQueries(most)
        #: What others have said, the last of each, of queries whose trace is known; until it is written there.
        self.elsewhere: dict[Author, TraceLabel] = {}
        prefix, name = settings.topics.prefix, f"{project.source}-results"
        group = reading_group(prefix, project.source, "results")
        self._results = tail_reader(settings, name, RESULTS.name(prefix), group, most)

    def requests(self, now: datetime, most: int) -> tuple[LabelRequested, ...]:
        """Return none: a tracing service has the traces already."""
        del now, most
        return ()

    def read_results(self) -> None:
        """Read the results that have come; blocks. Raises BrokerUnreachable when it is interrupted."""
        for record in self._latest():
            self.traces.take(record)

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
        known = self.elsewhere.get(author)
        if event.source != self._source and trace and (known is None or event.revision >= known.event.revision):
            self.elsewhere[author] = TraceLabel(trace, event)


class TraceSynchroniser(Synchroniser):
    """Keeps one tracing project in step; ``pushed`` of a round are the labels that were written to traces."""

    _tool: TracingProject
    _topics: TraceTopics

    async def round(self) -> Round:
        """Do one round, with the results that have come meanwhile."""
        await asyncio.to_thread(self._topics.read_results)
        self._tool.query_of = self._topics.traces.query_of
        done, elsewhere = await super().round(), self._topics.elsewhere
        labels = list(elsewhere.values())
        for start in range(0, len(labels), _AT_ONCE):
            await self._tool.write(labels[start : start + _AT_ONCE])
        elsewhere.clear()
        return replace(done, pushed=len(labels))


class TraceRounds(Rounds):
    """Rounds with a tracing project. ``most`` of the options: results that are looked at."""

    async def _open(self, open_tool: Callable[[], Awaitable[LabelTool]]) -> Synchroniser:
        project, settings, options = await open_tool(), self._settings, self._options
        assert isinstance(project, TracingProject)
        if self._topics is None:
            self._topics = await asyncio.to_thread(TraceTopics, settings, self._workload, project, options.most)
        retention_s = settings.recalibrator.join_retention_s
        return TraceSynchroniser(project, self._topics, options, join_retention_s=retention_s)


@asynccontextmanager
async def opened_project(
    project: TracingProject, closing: asyncio.Event
) -> AsyncIterator[Callable[[], Awaitable[LabelTool]]]:
    """Yield what opens a project."""
    del closing

    async def open_tool() -> LabelTool:
        return project

    yield open_tool
