"""Which trace contexts are passed on: those that the W3C's recommendation calls valid, and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stream_router.otel_tracing import as_headers, trace_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


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
        b"garbage",
        b"\xff\xfe",
        PARENT.upper().encode(),
        PARENT.encode() + b"\n",
        f"00-{TRACE}-{SPAN}-01-more".encode(),
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE}-{SPAN}".encode(),
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


def test_without_headers_there_is_no_context() -> None:
    assert trace_context(()) is None
    assert trace_context([("tracestate", b"a=1")]) is None
    assert as_headers(None) == ()


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
