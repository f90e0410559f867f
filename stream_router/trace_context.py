"""The W3C trace context in a record's headers, and the part of it that may be passed on.

What is malformed is not passed on, as the standard asks, and is never an error: the query is answered all the same.
Source: https://www.w3.org/TR/trace-context/, sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ucci_runtime.broker.records import Header

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

    Examples
    --------
    >>> parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    >>> trace_context([("traceparent", parent), ("tracestate", b"a=1"), ("tracestate", b"b=2")])["tracestate"]
    'a=1,b=2'
    >>> trace_context([("traceparent", parent.replace(b"-01", b"-0x"))]) is None
    True
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
