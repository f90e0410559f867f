"""A query's trace, from its headers through the model calls to its result, with OpenTelemetry's SDK and without any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from schemas.routed import QueryEvent
from schemas.settings import Settings
from stream_router.cascade.answerer import CascadeAnswerer
from stream_router.commit.outcome import Outcome, OutputTopics
from stream_router.otel_tracing import OpenTelemetry, Tracing, as_headers, trace_context
from stream_router.query_loop import QueryLoop
from tests.support.cascades import InForce
from tests.support.model_clients import workload
from tests.support.scripted_model_server import Fault, ScriptedModelServer, answer_to
from tests.support.versions import sealed_version
from ucci_runtime.broker.records import Header, Input, Record
from ucci_runtime.process import SystemClock

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
GIVEN: tuple[Header, ...] = (("traceparent", PARENT.encode()), ("tracestate", b"vendor=1"), ("mine", b"x"))
_CALLS = ("text_completion small", "text_completion large")
ESCALATES = sealed_version(uncertainty_threshold=-1.0)


class Spans:
    """Spans as a user's exporter gets them."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OpenTelemetry(provider)

    def by_name(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


@dataclass
class Routing:
    """A router between two scripted model servers and the test."""

    small: ScriptedModelServer
    large: ScriptedModelServer
    router: QueryLoop
    outcomes: asyncio.Queue[Outcome]

    async def route(self, headers: tuple[Header, ...]) -> Outcome:
        self.router.take([record("canon", 17, headers)])
        return await self.outcomes.get()


def record(text: str, offset: int, headers: tuple[Header, ...]) -> Record:
    value = QueryEvent(query_id=text, text=text).to_json()
    return Record(Input("ucci.queries", 3), offset, None, value, headers=headers)


@asynccontextmanager
async def routing(tracing: Tracing) -> AsyncIterator[Routing]:
    async with ScriptedModelServer("small") as small, ScriptedModelServer("large") as large:
        photo = workload(small.base_url, large.base_url).model_dump()
        settings = Settings.model_validate({"workloads": {"photo": photo}})
        answerer = CascadeAnswerer(settings, InForce(ESCALATES), SystemClock(), "router-0", tracing=tracing)
        await answerer.start()
        outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        router = QueryLoop(
            answerer, ["photo"], outputs=OutputTopics("results", "dead"), finished=outcomes.put_nowait, tracing=tracing
        )
        try:
            yield Routing(small, large, router, outcomes)
        finally:
            await router.close()
            await answerer.close()


def context_of(headers: Mapping[str, Any]) -> dict[str, str]:
    found = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def test_a_query_over_http_has_a_span_in_its_callers_trace() -> None:
    spans = Spans()
    with spans.tracing.serving(GIVEN[:2], "q-1", "photo") as trace:
        assert TRACE in (trace.headers or {})["traceparent"]
        trace.failed("timeout", "no answer within 60 s")
    found = spans.by_name()["answer query"]
    assert (found.kind, found.status.status_code) == (SpanKind.SERVER, StatusCode.ERROR)
    assert found.parent is not None
    assert f"{found.parent.span_id:016x}" == SPAN
    told = found.attributes or {}
    assert (told["ucci.query_id"], told["error.type"]) == ("q-1", "timeout")


async def test_an_invalid_context_is_no_error_and_goes_nowhere() -> None:
    """A trace begins here."""
    spans = Spans()
    async with routing(spans.tracing) as r:
        outcome = await r.route((("traceparent", b"garbage"), ("tracestate", b"vendor=1")))
        assert outcome.record.topic == "results"
        sent = [context_of(r.small.seen.headers[-1]), context_of(dict(outcome.record.headers))]
    assert spans.by_name()["process ucci.queries"].parent is None
    assert all(found.keys() == {"traceparent"} for found in sent)
    assert {found["traceparent"].split("-")[1] for found in sent} == {
        format(span.context.trace_id, "032x") for span in spans.by_name().values()
    }


async def test_tracer_gets_spans_in_the_querys_trace() -> None:
    spans = Spans()
    async with routing(spans.tracing) as r:
        outcome = await r.route(GIVEN)
        to_small, to_large = context_of(r.small.seen.headers[-1]), context_of(r.large.seen.headers[-1])
    found = spans.by_name()
    query, small, large = (found[name] for name in ("process ucci.queries", *_CALLS))
    assert {span.context.trace_id for span in found.values()} == {int(TRACE, 16)}
    assert query.parent is not None
    assert query.parent.span_id == int(SPAN, 16)
    assert all(span.parent is not None and span.parent.span_id == query.context.span_id for span in (small, large))
    assert (query.kind, small.kind, large.kind) == (SpanKind.CONSUMER, SpanKind.CLIENT, SpanKind.CLIENT)
    for span, sent in ((small, to_small), (large, to_large), (query, context_of(dict(outcome.record.headers)))):
        assert sent == {"traceparent": f"00-{TRACE}-{span.context.span_id:016x}-01", "tracestate": "vendor=1"}
    told = {
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 17,
        "ucci.query_id": "canon",
        "ucci.workload": "photo",
        "ucci.answered_by": "large",
        "ucci.decision.reason": "threshold",
        "ucci.calibration_version": 1,
        "ucci.decision.uncertainty": pytest.approx(answer_to("Query: canon", "small").uncertainty),
    }
    assert {name: value for name, value in (query.attributes or {}).items() if name in told} == told
    assert dict(small.attributes or {})["gen_ai.request.model"] == "small"


async def test_queries_side_by_side_keep_their_traces_apart() -> None:
    spans = Spans()
    traces = {f"q-{n}": f"{n + 1:032x}" for n in range(20)}
    async with routing(spans.tracing) as r:
        headers = {name: (("traceparent", f"00-{trace}-{SPAN}-01".encode()),) for name, trace in traces.items()}
        r.router.take([record(name, offset, headers[name]) for offset, name in enumerate(headers)])
        outcomes = [await r.outcomes.get() for _ in traces]
    for outcome in outcomes:
        key = (outcome.record.key or b"").decode()
        assert context_of(dict(outcome.record.headers))["traceparent"].split("-")[1] == traces[key]
    by_trace = [format(span.context.trace_id, "032x") for span in spans.exporter.get_finished_spans()]
    assert sorted(by_trace) == sorted([*traces.values()] * 3)


async def test_failed_spans_are_marked() -> None:
    """Spans of failures are marked as errors, and the dead letter keeps the query's own headers."""
    spans = Spans()
    async with routing(spans.tracing) as r:
        for server in (r.small, r.large):
            server.play(Fault("status", status=400, containing="canon"), count=1_000)
        outcome = await r.route(GIVEN)
    found = spans.by_name()
    assert outcome.record.topic == "dead"
    assert outcome.record.headers[: len(GIVEN)] == GIVEN
    assert all(found[name].status.status_code is StatusCode.ERROR for name in (*_CALLS, "process ucci.queries"))
    assert dict(found["process ucci.queries"].attributes or {})["error.type"] == "models_failed"


async def test_a_query_is_not_lost_when_tracing_itself_fails() -> None:
    class Broken(Tracing):
        def routing(self, record: Record, query_id: str, workload: str) -> Any:
            raise RuntimeError("the sampler broke")

    async with routing(Broken()) as r:
        outcome = await r.route(GIVEN)
    assert outcome.record.topic == "dead"
    assert ("dlq.reason", b"internal_error") in outcome.record.headers


@pytest.mark.parametrize(
    "parent",
    [PARENT, f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"],
)
def test_a_valid_parent_is_passed_on_as_it_is(parent: str) -> None:
    context = trace_context([("other", b"x"), ("traceparent", parent.encode())])
    assert context == {"traceparent": parent}
    assert as_headers(context) == (("traceparent", parent.encode()),)


@pytest.mark.parametrize(
    "parent",
    [
        None,
        b"",
        b"\xff\xfe",
        PARENT.upper().encode(),
        PARENT.encode() + b"\n",
        f"00-{TRACE}-{SPAN}-01-more".encode(),
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"cc-{TRACE}-{SPAN}-01.more".encode(),
        f"cc-{TRACE}-{SPAN}-01-\r\nHost: evil".encode(),
    ],
)
def test_an_invalid_parent_is_not_passed_on_nor_is_its_state(parent: bytes | None) -> None:
    assert trace_context([("traceparent", parent), ("tracestate", b"a=1")]) is None


def test_of_two_parents_neither_is_believed() -> None:
    assert trace_context([("traceparent", PARENT.encode())] * 2) is None


@pytest.mark.parametrize("state", [None, b"", b"a=\n1", b"\xff", b"x" * 513])
def test_an_invalid_state_leaves_the_parent(state: bytes | None) -> None:
    assert trace_context([("traceparent", PARENT.encode()), ("tracestate", state)]) == {"traceparent": PARENT}


def test_several_states_are_one_list() -> None:
    states = [("tracestate", b"a=1"), ("traceparent", PARENT.encode()), ("tracestate", b"b=2")]
    assert trace_context(states) == {"traceparent": PARENT, "tracestate": "a=1,b=2"}


@given(
    st.text("0123456789abcdef", min_size=2, max_size=2),
    st.sampled_from([TRACE, "0" * 32, TRACE[:-1], TRACE.upper()]),
    st.sampled_from([SPAN, "0" * 16, SPAN + "a"]),
    st.sampled_from(["01", "ff", "1", "0g"]),
    st.sampled_from(["", "-x", "-", "x"]),
)
def test_opentelemetry_believes_whatever_is_passed_on(
    version: str, trace: str, span: str, flags: str, rest: str
) -> None:
    """Its own parser is more lenient (it takes 'x' after the flags of a later version), never stricter."""
    parent = f"{version}-{trace}-{span}-{flags}{rest}"
    if trace_context([("traceparent", parent.encode())]) is None:
        return
    found = TraceContextTextMapPropagator().extract({"traceparent": parent}, context=Context())
    assert format(get_current_span(found).get_span_context().trace_id, "032x") == trace
