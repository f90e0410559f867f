"""Spans around a query's routing and its model calls, where OpenTelemetry is configured; else its headers, passed on.

This package uses OpenTelemetry's API alone. Which SDK, sampler and exporter record the spans is the user's choice, made
before the router starts, as ``opentelemetry-instrument stream-router run …`` does; without one no span is made and
nothing of OpenTelemetry runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import structlog

from schemas.routed import ModelRun, RoutedEvent
from stream_router.ports import ModelCall, Trace, Tracing
from stream_router.trace_context import trace_context
from ucci_runtime.broker.records import Header, Record

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_log = structlog.get_logger()
_SCOPE = "stream_router"


class _Passed:
    """A query's own trace context; records nothing."""

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str] | None) -> None:
        self.headers = headers

    def answered(self, routed: RoutedEvent) -> None:
        """Record nothing."""

    def ended(self, run: ModelRun) -> None:
        """Record nothing."""

    def failed(self, reason: str, error: str) -> None:
        """Record nothing."""


class PassedOn:
    """No spans: a query's trace context goes on to the models and the result as it came."""

    def routing(self, record: Record, query_id: str, workload: str) -> AbstractContextManager[Trace]:  # noqa: ARG002 part of the protocol
        """Return the record's own context."""
        return nullcontext(_Passed(trace_context(record.headers)))

    def serving(self, headers: Sequence[Header], query_id: str, workload: str) -> AbstractContextManager[Trace]:  # noqa: ARG002 part of the protocol
        """Return the request's own context."""
        return nullcontext(_Passed(trace_context(headers)))

    def calling(self, call: ModelCall, headers: Mapping[str, str] | None) -> AbstractContextManager[Trace]:  # noqa: ARG002 part of the protocol
        """Return the query's context."""
        return nullcontext(_Passed(headers))


class _Recorded:
    """A span, and the trace context of what it leads to."""

    __slots__ = ("_span", "headers")

    def __init__(self, span: Span, propagator: TraceContextTextMapPropagator) -> None:
        carrier: dict[str, str] = {}
        propagator.inject(carrier)
        self._span = span
        self.headers: Mapping[str, str] | None = carrier or None

    def answered(self, routed: RoutedEvent) -> None:
        """Record what was decided, and by which version."""
        decision = routed.decision
        self._span.set_attribute("ucci.answered_by", routed.answered_by)
        self._span.set_attribute("ucci.decision.reason", decision.reason)
        self._span.set_attribute("ucci.decision.escalated", decision.escalated)
        if decision.uncertainty is not None:
            self._span.set_attribute("ucci.decision.uncertainty", decision.uncertainty)
        if decision.calibration_version is not None:
            self._span.set_attribute("ucci.calibration_version", decision.calibration_version)

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


class OpenTelemetry:
    """A span a query and one a model, in the trace that the query's headers belong to."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer(_SCOPE)
        self._propagator = TraceContextTextMapPropagator()
        self._nothing = Context()
        self._kinds = SpanKind

    @contextmanager
    def routing(self, record: Record, query_id: str, workload: str) -> Iterator[Trace]:
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
        name = f"process {record.source.topic}"
        with self._tracer.start_as_current_span(
            name, context=parent, kind=self._kinds.CONSUMER, attributes=attributes
        ) as span:
            yield _Recorded(span, self._propagator)

    @contextmanager
    def serving(self, headers: Sequence[Header], query_id: str, workload: str) -> Iterator[Trace]:
        """Open the span of a query that came over HTTP; without a valid context in its headers it begins a trace."""
        parent = self._parent(headers)
        attributes = {"http.request.method": "POST", "ucci.query_id": query_id, "ucci.workload": workload}
        with self._tracer.start_as_current_span(
            "answer query", context=parent, kind=self._kinds.SERVER, attributes=attributes
        ) as span:
            yield _Recorded(span, self._propagator)

    def _parent(self, headers: Sequence[Header]) -> Context:
        given = trace_context(headers)
        return self._nothing if given is None else self._propagator.extract(given, context=self._nothing)

    @contextmanager
    def calling(self, call: ModelCall, headers: Mapping[str, str] | None) -> Iterator[Trace]:  # noqa: ARG002 the current span has them
        """Open a model call's span within the query's; retries and the queue for a place are part of it."""
        attributes = {
            "gen_ai.operation.name": call.operation,
            "gen_ai.request.model": call.model,
            "ucci.role": call.role,
        }
        name = f"{call.operation} {call.model}"
        with self._tracer.start_as_current_span(name, kind=self._kinds.CLIENT, attributes=attributes) as span:
            yield _Recorded(span, self._propagator)


def configured_tracing() -> Tracing:
    """Return spans where a tracer provider is configured in this process, else the headers alone."""
    try:
        from opentelemetry import trace
    except ImportError:
        return PassedOn()
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return PassedOn()
    _log.info("tracing", provider=type(provider).__qualname__)
    return OpenTelemetry(provider)
