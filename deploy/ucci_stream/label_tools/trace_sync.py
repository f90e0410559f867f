"""Rounds with a tracing service: scores of traces become feedback, and labels go back to their traces.

A score is joined to its query by an id that it or a span names, else by its trace: results carry the trace context of
their query. Phoenix is asked as version 20 answers, and tried against it; Langfuse by the API that its version 4 keeps,
and tried against answers as its description has them. Their own client libraries bring far more than these few calls.
"""

from __future__ import annotations

import asyncio
import base64
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote, urlencode

import aiohttp

from recalibrator.labelling.label_tool import AnnotationKey, JsonDocument, LabelToolFailed, TaskId
from recalibrator.labelling.reconcile import Author
from recalibrator.labelling.trace_scores import CORRECTIONS, OURS, Score, ScoredTrace, TraceLabel, TraceScoreReader
from schemas.event import rfc3339
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from schemas.topics import RESULTS
from stream_router.otel_tracing import TRACEPARENT, trace_context
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.records import Record, event_of
from ucci_runtime.http_proxy import proxy_use
from ucci_stream.label_tools.label_studio_client import answered
from ucci_stream.label_tools.sync import OpenTool, Round, Rounds, Synchroniser, SyncTopics, batches
from ucci_stream.options import address_of
from ucci_stream.topics.access import tool_groups
from ucci_stream.topics.kafka_reading import tail_reader

_POLL_S = 0.1
_TIMEOUT = aiohttp.ClientTimeout(total=60.0, connect=10.0)
_FAILED, _DETAIL_CHARS = 400, 300
#: Traces of one question for their annotations: their ids stand in its address.
_AT_ONCE = 50
_QUERY_ID = "ucci.query_id"

_Pairs = list[tuple[str, Any]]
_Scores = dict[str, list[Score]]


class TracingProject(ABC):
    """One project of a tracing service, a ``LabelTool`` that makes and removes no task.

    ``name``: of the scores that say right or wrong. ``memory``: older traces are left alone, as the join has forgotten
    their queries.
    """

    source = ""

    def __init__(self, url: str, project: str, name: str, memory: timedelta, authorization: str | None) -> None:
        self.project = quote(project, safe="")
        self.reader = TraceScoreReader(self.source, self.project, name)
        #: Which query a trace is of, where no span and no score says so.
        self.query_of: Callable[[str], str | None] = lambda _: None
        self._url = address_of("--url", url, "http://127.0.0.1:6006")
        self._memory, self._names = memory, (name, *CORRECTIONS)
        self._headers = {} if authorization is None else {"Authorization": authorization}
        self._known: dict[str, str | None] = {}

    async def tasks(self, changed_since: datetime | None) -> AsyncIterator[JsonDocument]:
        """Yield all traces with scores, and those whose last one was deleted since this process began."""
        del changed_since
        now, gone = datetime.now(UTC), dict(self._known)
        async for trace in self.scored(now - self._memory):
            gone.pop(trace.trace_id, None)
            named = (one.metadata.get("query_id") for one in trace.scores)
            query_id = next((one for one in named if isinstance(one, str)), trace.query_id)
            query_id = self._known[trace.trace_id] = query_id or self.query_of(trace.trace_id)
            yield {"trace": trace._replace(query_id=query_id), "now": now}
        for trace_id, query_id in gone.items():
            yield {"trace": ScoredTrace(trace_id, query_id, ()), "now": now}

    async def add(self, requests: Sequence[LabelRequested]) -> None:
        """Make nothing: the traces are there."""
        del requests

    async def remove(self, tasks: Sequence[TaskId]) -> None:
        """Remove nothing."""
        del tasks

    async def has(self, annotation: AnnotationKey) -> bool:
        """Return false: what the listing of a trace lacks is gone."""
        del annotation
        return False

    @abstractmethod
    def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield the traces since then that people have scored, each once and with all such scores."""

    @abstractmethod
    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write labels to their traces; one that was written before is replaced."""

    async def _pages(self, path: str, pairs: _Pairs) -> AsyncIterator[list[dict[str, Any]]]:
        cursor = None
        while True:
            document = await self._call("GET", path, [*pairs, *([("cursor", cursor)] if cursor else [])])
            yield document["data"]
            cursor = document.get("next_cursor") or document.get("meta", {}).get("cursor")
            if not cursor:
                return

    async def _call(self, method: str, path: str, pairs: _Pairs = (), content: Any = None) -> Any:  # type: ignore[assignment]
        address, name = f"{self._url}{path}?{urlencode(pairs)}", self.source.capitalize()
        use = proxy_use(self._url)
        sent = {"json": content, "headers": {**self._headers, **use.headers}, "timeout": _TIMEOUT, **use.options}
        asked = aiohttp.request(method, address, **sent)
        status, text = await answered(asked, f"{name} at {self._url}")
        with suppress(ValueError):
            if status < _FAILED:
                return json.loads(text or "{}")
        detail = " ".join(text.split())[:_DETAIL_CHARS]
        raise LabelToolFailed(f"{name} answered {method} {path} with {status}: {detail}; check --url and --key")


class Phoenix(TracingProject):
    """One project of Phoenix."""

    source = "phoenix"

    async def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield traces with annotations of people, on the trace or on any of its spans."""
        parts = [f"any(a.name in {list(self._names)!r} for a in span_annotations)"]
        for part in ("label", "score", "explanation"):
            parts += [f"trace_annotations[{name!r}].{part} is not None" for name in self._names]
        asked: _Pairs = [("filter", " or ".join(parts)), ("start_time", rfc3339(since)), ("limit", _AT_ONCE)]
        path = f"/v1/projects/{self.project}"
        async for page in self._pages(f"{path}/traces", [*asked, ("include_spans", "true")]):
            if not page:
                return
            spans = {span["span_id"]: one["trace_id"] for one in page for span in one["spans"] or ()}
            scores: _Scores = {one["trace_id"]: [] for one in page}
            await self._annotations(scores, f"{path}/trace_annotations", "trace_id", {one: one for one in scores})
            await self._annotations(scores, f"{path}/span_annotations", "span_id", spans)
            queries: dict[str, str] = {}
            of_traces: _Pairs = [("limit", 1_000), *(("trace_id", one) for one in scores)]
            async for some in self._pages(f"{path}/spans", of_traces):
                queries |= {one["context"]["trace_id"]: one["attributes"][_QUERY_ID] for one in some if _names(one)}
            for trace_id, found in scores.items():
                yield ScoredTrace(trace_id, queries.get(trace_id), found)

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write them in one call; an annotation with the same identifier is replaced."""
        data = [
            {"name": OURS, "annotator_kind": "HUMAN", "trace_id": one.trace_id, "identifier": one.identifier}
            | {"result": {"label": one.word, "explanation": json.dumps(one.details["entities"])}}
            | {"metadata": one.details}
            for one in labels
        ]
        await self._call("POST", "/v1/trace_annotations", content={"data": data})

    async def _annotations(self, scores: _Scores, path: str, kind: str, trace_of: Mapping[str, str]) -> None:
        names: _Pairs = [("limit", 1_000), *(("include_annotation_names", name) for name in self._names)]
        ids = list(trace_of)
        for start in range(0, len(ids), _AT_ONCE):
            asked = ((f"{kind}s", one) for one in ids[start : start + _AT_ONCE])
            async for page in self._pages(path, [*names, *asked]):
                for one in page:
                    if one["annotator_kind"] == "HUMAN":
                        scores[trace_of[one[kind]]].append(_phoenix_score(one))


def _names(span: Mapping[str, Any]) -> bool:
    return isinstance((span.get("attributes") or {}).get(_QUERY_ID), str)


def _phoenix_score(one: Mapping[str, Any]) -> Score:
    result = one.get("result") or {}
    value = result.get("score") if result.get("label") is None else result["label"]
    author, changed_at = one.get("user_id") or one.get("identifier") or None, datetime.fromisoformat(one["updated_at"])
    return Score(one["id"], one["name"], value, result.get("explanation"), one["metadata"] or {}, author, changed_at)


class Langfuse(TracingProject):
    """The project of a pair of Langfuse's keys, ``PUBLIC:SECRET``."""

    source = "langfuse"

    def __init__(self, url: str, keys: str, name: str, memory: timedelta) -> None:
        token = base64.b64encode(keys.encode()).decode()
        super().__init__(url, keys.partition(":")[0], name, memory, f"Basic {token}")

    async def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield traces with scores of annotators, or sent by API, on the trace or on any of its observations."""
        scores: _Scores = defaultdict(list)
        asked: _Pairs = [("fields", "details,subject,annotation"), ("limit", 100), ("fromTimestamp", rfc3339(since))]
        for name in self._names:
            async for page in self._pages("/api/public/v3/scores", [*asked, ("name", name)]):
                for one in page:
                    subject = one.get("subject") or {}
                    trace = subject.get("id") if subject.get("kind") == "trace" else subject.get("traceId")
                    if trace and one["source"] != "EVAL" and not one["id"].startswith(f"{OURS}:"):
                        scores[trace].append(_langfuse_score(one))
        for trace, found in scores.items():
            yield ScoredTrace(trace, None, found)

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write one after another; a score with the same id is replaced."""
        for one in labels:
            content: dict[str, Any] = {
                "id": one.identifier,
                "traceId": one.trace_id,
                "name": OURS,
                "dataType": "CATEGORICAL",
            }
            content |= {"value": one.word, "comment": json.dumps(one.details["entities"]), "metadata": one.details}
            await self._call("POST", "/api/public/scores", content=content)

    async def has(self, annotation: AnnotationKey) -> bool:
        """Ask for it by its id: what was written a moment ago may be missing from a listing."""
        asked = [("id", unquote(annotation.annotation))]
        return bool((await self._call("GET", "/api/public/v3/scores", asked))["data"])


def _langfuse_score(one: Mapping[str, Any]) -> Score:
    comment = one["value"] if one["dataType"] in {"TEXT", "CORRECTION"} else one.get("comment")
    author, changed_at = one.get("authorUserId"), datetime.fromisoformat(one["updatedAt"])
    return Score(one["id"], one["name"], one["value"], comment, one.get("metadata") or {}, author, changed_at)


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
        self._results = tail_reader(settings, name, RESULTS.name(prefix), tool_groups(prefix) + name, most)

    def requests(self, now: datetime, most: int) -> tuple[LabelRequested, ...]:
        """Return none: a tracing service has the traces already."""
        del now, most
        return ()

    def read_results(self) -> None:
        """Read the results that have come; blocks. Raises BrokerUnreachable when it is interrupted."""
        while (records := list(self._results.poll(_POLL_S))) or not self._results.has_reached_ends:
            if self._closing.is_set():
                raise BrokerUnreachable("closed while results were read")
            for record in records:
                self.traces.take(record)

    def close(self) -> None:
        """Close the readers."""
        super().close()
        self._results.close()

    def _note(self, record: Record) -> None:
        super()._note(record)
        if (event := event_of(record, FeedbackEvent)) is None:
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
        for some in batches(labels):
            await self._tool.write(some)
        elsewhere.clear()
        return replace(done, pushed=len(labels))


class TraceRounds(Rounds):
    """Rounds with a tracing project. ``most`` of the options: results that are looked at."""

    async def _open(self, open_tool: OpenTool) -> Synchroniser:
        project, settings, options = await open_tool(self.closing), self.settings, self.options
        assert isinstance(project, TracingProject)
        self.topics = await asyncio.to_thread(TraceTopics, settings, self.workload, project, options.most)
        retention_s = settings.recalibrator.join_retention_s
        nulls = settings.workloads[self.workload].nulls
        return TraceSynchroniser(project, self.topics, options, join_retention_s=retention_s, nulls=nulls)
