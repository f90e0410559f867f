"""Rounds with a tracing service: each score becomes feedback once, and labels from elsewhere reach their traces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from recalibrator.labelling.label_tool import AnnotationKey, LabelToolFailed
from recalibrator.labelling.reconcile import Author, Sent, note_sent
from recalibrator.labelling.trace_scores import Score, ScoredTrace, TraceLabel
from schemas.errors import ConfigError
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from ucci_runtime.broker.records import Input, Record
from ucci_stream.label_tools.sync import Round, SyncOptions
from ucci_stream.label_tools.trace_sync import (
    Langfuse,
    Phoenix,
    TracesOfQueries,
    TraceSynchroniser,
    TraceTopics,
    TracingProject,
)

NOW = datetime.now(UTC).replace(microsecond=0)
MEMORY = timedelta(days=14)
TRACE = "0af7651916cd43dd8448eb211c80319c"


def result(query_id: str, trace: str = TRACE) -> Record:
    parent = f"00-{trace}-00f067aa0ba902b7-01".encode()
    return Record(Input("ucci.results", 0), 0, query_id.encode(), b"{}", headers=(("traceparent", parent),))


def score(number: int, **changes: Any) -> Score:
    return Score(f"s-{number}", "correctness", "correct", None, {}, "ann", NOW)._replace(**changes)


class MemoryService(TracingProject):
    """A tracing service that holds what it is given."""

    source = "phoenix"

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1", "default", "correctness", MEMORY, None)
        self.traces: dict[str, ScoredTrace] = {}
        self.written: dict[str, TraceLabel] = {}
        self.is_away = False

    async def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        assert since < NOW - timedelta(days=1)
        for trace in list(self.traces.values()):
            yield trace

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        if self.is_away:
            raise LabelToolFailed("away")
        self.written |= {one.identifier: one for one in labels}


class MemoryTraceTopics:
    """The topics: what was sent, which trace is whose, and what others have said since."""

    def __init__(self) -> None:
        self.records: list[FeedbackEvent] = []
        self.traces = TracesOfQueries(1_000)
        self.elsewhere: dict[Author, TraceLabel] = {}

    def read_results(self) -> None: ...

    def requests(self, now: datetime, most: int) -> Sequence[LabelRequested]:
        del now, most
        return ()

    def sent(self) -> Mapping[Author, Sent]:
        found: dict[Author, Sent] = {}
        for event in self.records:
            note_sent(found, event, "phoenix", "default")
        return found

    def send(self, events: Sequence[FeedbackEvent]) -> None:
        self.records += events


class Site:
    def __init__(self, *traces: ScoredTrace) -> None:
        self.service, self.topics = MemoryService(), MemoryTraceTopics()
        self.service.traces = {one.trace_id: one for one in traces}

    async def round(self) -> Round:
        topics, options = cast(TraceTopics, self.topics), SyncOptions(most=1_000)
        return await TraceSynchroniser(self.service, topics, options, join_retention_s=1e6).round()

    def said(self) -> list[tuple[str, str | None, str | None, bool]]:
        return [(one.query_id, one.labeler, one.verdict, one.retracted) for one in self.topics.records]


async def test_each_score_is_sent_once_and_again_when_it_changes() -> None:
    """Also a change within the same second, which has the same time and another content; a deleted one is withdrawn."""
    site = Site(ScoredTrace(TRACE, "q-1", [score(1)]))
    first, again = await site.round(), await site.round()
    site.service.traces[TRACE] = ScoredTrace(TRACE, "q-1", [score(1, value="incorrect")])
    changed = await site.round()

    assert (first.new, again.new, again.revised, changed.revised, changed.skipped) == (1, 0, 0, 1, 0)
    assert site.said() == [("q-1", "phoenix:ann", "right", False), ("q-1", "phoenix:ann", "wrong", False)]
    assert site.topics.records[1].revision > site.topics.records[0].revision
    # Even the last one of its trace, as long as the process runs.
    site.service.traces.clear()
    assert (await site.round()).retracted == 1
    assert site.said()[-1] == ("q-1", "phoenix:ann", None, True)


async def test_a_trace_without_a_name_is_joined_by_its_result() -> None:
    named = ScoredTrace("e" * 32, "q-8", [score(3, metadata={"query_id": "q-9"})])
    site = Site(ScoredTrace(TRACE, None, [score(1)]), ScoredTrace("f" * 32, None, [score(2)]), named)
    site.topics.traces.take(result("q-7"))

    assert (await site.round()).new == 2
    assert [one[0] for one in site.said()] == ["q-7", "q-9"]


def test_a_trace_of_several_queries_is_joined_to_none() -> None:
    traces = TracesOfQueries(2)
    for query_id in ("q-1", "q-1", "q-2"):
        traces.take(result(query_id))
    assert (traces.query_of(TRACE), traces.trace_of("q-2")) == (None, TRACE)
    for number in range(3):
        traces.take(result(f"r-{number}", f"{number + 1:032x}"))
    assert (traces.query_of(TRACE), traces.trace_of("q-2"), traces.query_of(f"{3:032x}")) == (None, None, "r-2")
    traces.take(Record(Input("ucci.results", 0), 0, b"q-3", b"{}"))
    assert traces.trace_of("q-3") is None


async def test_labels_from_elsewhere_reach_their_traces() -> None:
    site = Site()
    event = FeedbackEvent(query_id="q-1", entities={"camera": "leica"}, labeler="eve", source="page")
    site.topics.elsewhere = {("q-1", "eve"): TraceLabel(TRACE, event)}
    site.service.is_away = True
    with pytest.raises(LabelToolFailed):
        await site.round()
    site.service.is_away = False

    assert (await site.round()).pushed == 1
    assert [one.event for one in site.service.written.values()] == [event]
    assert (await site.round()).pushed == 0


#: As Langfuse's description has it (openapi.yml, version 4): `fields=details,subject,annotation`.
LANGFUSE: list[dict[str, Any]] = [
    {"id": "a", "name": "correctness", "value": True, "dataType": "BOOLEAN", "source": "ANNOTATION"}
    | {"subject": {"kind": "trace", "id": "t-1"}, "comment": None, "metadata": {}, "authorUserId": "u-1"},
    {"id": "b", "name": "correctness", "value": "incorrect", "dataType": "CATEGORICAL", "source": "API"}
    | {"subject": {"kind": "observation", "id": "o-2", "traceId": "t-2"}, "metadata": {"query_id": "q-2"}},
    {"id": "c", "name": "correctness", "value": 0, "dataType": "NUMERIC", "source": "EVAL"}
    | {"subject": {"kind": "trace", "id": "t-1"}, "comment": "a judge", "metadata": None},
    {"id": "d", "name": "output", "value": '{"camera": "leica"}', "dataType": "CORRECTION", "source": "ANNOTATION"}
    | {"subject": {"kind": "trace", "id": "t-3"}, "comment": None, "metadata": None, "authorUserId": "u-1"},
    {"id": "e", "name": "correctness", "value": 1, "dataType": "NUMERIC", "source": "API"}
    | {"subject": {"kind": "session", "id": "s-1"}, "comment": None, "metadata": None},
]


class RecordedLangfuse:
    """Answers as Langfuse does, two scores a page; keeps what is posted."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != "Basic cGs6c2s=":
            return web.json_response({"message": "Invalid credentials"}, status=401)
        if request.method == "POST":
            self.posted.append(await request.json())
            return web.json_response({"id": self.posted[-1]["id"]})
        asked = request.query
        held = [one for one in LANGFUSE if asked.get("name", one["name"]) == one["name"]]
        if "id" in asked:
            held = [one for one in held if one["id"] == asked["id"]]
        else:
            assert (asked["fields"], asked["limit"]) == ("details,subject,annotation", "100")
        end = (start := int(asked.get("cursor", 0))) + 2
        meta = {"limit": 100} | ({"cursor": str(end)} if end < len(held) else {})
        data = [one | {"updatedAt": "2026-03-01T12:00:00.000Z"} for one in held[start:end]]
        return web.json_response({"data": data, "meta": meta})


async def test_langfuse_scores_of_people_are_read_and_labels_written() -> None:
    """Of annotators and by API, on traces and their observations; not of judges, nor of sessions."""
    recorded, app = RecordedLangfuse(), web.Application()
    for path in ("/api/public/v3/scores", "/api/public/scores"):
        app.router.add_route("*", path, recorded.answer)
    async with TestServer(app) as server:
        url = str(server.make_url(""))
        langfuse = Langfuse(url, "pk:sk", "correctness", MEMORY)
        found = {one.trace_id: one.scores async for one in langfuse.scored(NOW)}
        known = [await langfuse.has(AnnotationKey("pk", one)) for one in ("a", "z")]
        event = FeedbackEvent(query_id="q-1", entities={"camera": "leica"}, labeler="eve", source="page")
        await langfuse.write([TraceLabel("t-1", event)])
        with pytest.raises(LabelToolFailed, match=r"Langfuse answered GET /api/public/v3/scores with 401: .*Invalid"):
            await Langfuse(url, "pk:other", "correctness", MEMORY).has(AnnotationKey("pk", "a"))

    ((first,), (second,), (third,)) = (found[trace] for trace in ("t-1", "t-2", "t-3"))
    assert len(found) == 3
    assert (first.score_id, first.value, first.author) == ("a", True, "u-1")
    assert (second.score_id, second.value, second.author) == ("b", "incorrect", None)
    assert second.metadata["query_id"] == "q-2"
    assert (third.score_id, third.comment) == ("d", '{"camera": "leica"}')
    assert known == [True, False]
    (posted,) = recorded.posted
    assert (posted["id"], posted["traceId"], posted["value"]) == ("ucci-label:q-1:eve", "t-1", "labelled")
    assert json.loads(posted["comment"]) == {"camera": "leica"}


async def test_a_service_that_is_away_or_nowhere_is_one_line() -> None:
    phoenix = Phoenix("http://127.0.0.1:9", "default", "correctness", MEMORY, None)
    with pytest.raises(LabelToolFailed, match=r"no answer from Phoenix at http://127.0.0.1:9"):
        await phoenix.write([])
    with pytest.raises(ConfigError, match="is not an address"):
        Phoenix("localhost:6006", "default", "correctness", MEMORY, None)
