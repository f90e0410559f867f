"""Spans around a query's routing and its model calls, where OpenTelemetry is configured; else its headers, passed on.

This package uses OpenTelemetry's API alone. Which SDK, sampler and exporter record the spans is the user's choice, made
before the router starts, as ``opentelemetry-instrument stream-router run …`` does; without one no span is made and
nothing of OpenTelemetry runs.

Of the W3C trace context in a record's headers, what is malformed is not passed on, as the standard asks, and is never
an error: the query is answered all the same. Source: https://www.w3.org/TR/trace-context/, sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import structlog

from schemas.routed import ModelRole, ModelRun, RoutedEvent
from ucci_runtime.broker.records import Header, Record

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_log = structlog.get_logger()
_SCOPE = "stream_router"

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

_MAX_STATE_CHARS = 512
_VERSION_00 = "00"
# Later versions may append fields; version ff and identifiers of zeros alone are invalid.
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]*)?")
_STATE = re.compile(r"[ -~]+")


def trace_context(headers: Sequence[Header]) -> Mapping[str, str] | None:
    """Return the valid trace context among a record's headers, or None.

    Returns ``traceparent`` and, where it is valid too, ``tracestate``. Of several ``traceparent`` none can be trusted;
    several ``tracestate`` are one list.
    """
    if not headers:
        return None
    parents = [value for name, value in headers if name == TRACEPARENT]
    if len(parents) != 1:
        return None
    parent = (parents[0] or b"").decode("ascii", "replace")
    found = _PARENT.fullmatch(parent)
    if found is None or (found[1] == _VERSION_00 and found[2] is not None):
        return None
    state = b",".join(value or b"" for name, value in headers if name == TRACESTATE).decode("ascii", "replace")
    if not _STATE.fullmatch(state) or len(state) > _MAX_STATE_CHARS:
        return {TRACEPARENT: parent}
    return {TRACEPARENT: parent, TRACESTATE: state}


def as_headers(context: Mapping[str, str] | None) -> tuple[Header, ...]:
    """Return a trace context as a record's headers."""
    return () if context is None else tuple((name, value.encode()) for name, value in context.items())


class ModelCall(NamedTuple):
    """Which model is asked for what; ``operation`` as OpenTelemetry names it: chat or text_completion."""

    role: ModelRole
    model: str
    operation: str


class Trace:
    """A query's or a call's part in a trace; this one records nothing. ``headers``: for what it leads to, if any."""

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str] | None) -> None:
        self.headers = headers

    def answered(self, routed: RoutedEvent) -> None:
        """Record a query's result."""

    def failed(self, reason: str, error: str) -> None:
        """Record why there is none."""

    def ended(self, run: ModelRun) -> None:
        """Record how a model call ended."""


class Tracing:
    """Who follows queries from service to service; this one makes no spans, and passes trace contexts on."""

    def routing(self, record: Record, query_id: str, workload: str) -> AbstractContextManager[Trace]:  # noqa: ARG002 for spans
        """Follow one query, until the context ends."""
        return nullcontext(Trace(trace_context(record.headers)))

    def serving(self, headers: Sequence[Header], query_id: str, workload: str) -> AbstractContextManager[Trace]:  # noqa: ARG002 for spans
        """Follow one query that came over HTTP under these headers, until the context ends."""
        return nullcontext(Trace(trace_context(headers)))

    def calling(self, call: ModelCall, headers: Mapping[str, str] | None) -> AbstractContextManager[Trace]:  # noqa: ARG002 for spans
        """Follow one model call of the query whose trace context is given."""
        return nullcontext(Trace(headers))


class _Recorded(Trace):
    """A span, and the trace context of what it leads to."""

    __slots__ = ("_span",)

    def __init__(self, span: Span, propagator: TraceContextTextMapPropagator) -> None:
        carrier: dict[str, str] = {}
        propagator.inject(carrier)
        super().__init__(carrier or None)
        self._span = span

    def answered(self, routed: RoutedEvent) -> None:
        """Record what was decided, and by which version."""
        decision = routed.decision
        told = {
            "ucci.answered_by": routed.answered_by,
            "ucci.decision.reason": decision.reason,
            "ucci.decision.escalated": decision.escalated,
            "ucci.decision.uncertainty": decision.uncertainty,
            "ucci.calibration_version": decision.calibration_version,
        }
        self._span.set_attributes({name: value for name, value in told.items() if value is not None})

    def ended(self, run: ModelRun) -> None:
        """Record how a model's run ended."""
        self._span.set_attribute("gen_ai.usage.output_tokens", run.completion_tokens)
        if run.finish_reason is not None:
            self._span.set_attribute("gen_ai.response.finish_reasons", [run.finish_reason])
        if not run.valid:
            self.failed("invalid_answer", run.error or "no valid answer")

    def failed(self, reason: str, error: str) -> None:
        """Record why there is no answer."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("error.type", reason)
        self._span.set_status(Status(StatusCode.ERROR, error))


class OpenTelemetry(Tracing):
    """A span a query and one a model, in the trace that the query's headers belong to."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer(_SCOPE)
        self._propagator = TraceContextTextMapPropagator()
        self._nothing = Context()
        self._kinds = SpanKind

    def routing(self, record: Record, query_id: str, workload: str) -> AbstractContextManager[Trace]:
        """Open a query's span; without a valid context in its headers it begins a trace."""
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.source.topic,
            "messaging.destination.partition.id": str(record.source.partition),
            "messaging.kafka.offset": record.offset,
            "ucci.query_id": query_id,
            "ucci.workload": workload,
        }
        parent = self._parent(record.headers)
        return self._span(f"process {record.source.topic}", self._kinds.CONSUMER, attributes, parent)

    def serving(self, headers: Sequence[Header], query_id: str, workload: str) -> AbstractContextManager[Trace]:
        """Open the span of a query that came over HTTP; without a valid context in its headers it begins a trace."""
        attributes = {"http.request.method": "POST", "ucci.query_id": query_id, "ucci.workload": workload}
        return self._span("answer query", self._kinds.SERVER, attributes, self._parent(headers))

    def _parent(self, headers: Sequence[Header]) -> Context:
        given = trace_context(headers)
        return self._nothing if given is None else self._propagator.extract(given, context=self._nothing)

    def calling(self, call: ModelCall, headers: Mapping[str, str] | None) -> AbstractContextManager[Trace]:  # noqa: ARG002 the current span has them
        """Open a model call's span within the query's; retries and the queue for a place are part of it."""
        attributes = {
            "gen_ai.operation.name": call.operation,
            "gen_ai.request.model": call.model,
            "ucci.role": call.role,
        }
        return self._span(f"{call.operation} {call.model}", self._kinds.CLIENT, attributes)

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: Mapping[str, str | int], parent: Context | None = None
    ) -> Iterator[Trace]:
        with self._tracer.start_as_current_span(name, parent, kind, attributes) as span:
            yield _Recorded(span, self._propagator)


def configured_tracing() -> Tracing:
    """Return spans where a tracer provider is configured in this process, else the headers alone."""
    try:
        from opentelemetry import trace
    except ImportError:
        return Tracing()
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return Tracing()
    _log.info("tracing", provider=type(provider).__qualname__)
    return OpenTelemetry(provider)
