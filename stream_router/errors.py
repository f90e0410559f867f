"""What can go wrong in a router; each class says what the caller does next.

Errors of the broker are in :mod:`ucci_runtime.broker.errors`, refused requests in :mod:`ucci_runtime.refusals`.
"""

from __future__ import annotations

from schemas.errors import UcciError, one_line


class RouterError(UcciError):
    """Root of the router's errors."""


class ModelsFailed(RouterError):
    """Both models failed on this query while the servers answer others: a dead letter says how their attempts ended."""

    reason = "models_failed"

    def __init__(self, small: str, large: str) -> None:
        super().__init__(f"small: {small}; large: {large}")


class ServersDown(RouterError):
    """No server that a query needs is up, and its caller does not wait: answer 503, the caller retries."""


class OffsetsWentBack(RouterError):
    """An offset below one already delivered: the log was cut or recreated while it was read.

    Starting again is safe: the committed offset is then compared with the log as it is now.
    """

    def __init__(self, offset: int, position: int) -> None:
        super().__init__(f"offset {offset} came after {position - 1}: the topic was cut or recreated; start again")


class MalformedReplyError(RouterError):
    """The reply has not the shape of the protocol; the message says where. Another attempt may bring one."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class ErrorReplyError(MalformedReplyError):
    """The server says in place of a reply what went wrong; ``status`` is the HTTP status that means the same."""

    def __init__(self, words: str, status: int | None) -> None:
        self.status = status
        super().__init__(words)


class CallError(RouterError):
    """A model did not answer; the subclass says whose fault it is, ``outcome`` what its attempt is counted as."""

    outcome = "failed"


class RefusedError(CallError):
    """The server refused this very request, and a second one would be refused as well; others may be answered."""

    outcome = "refused"


class MisconfiguredError(CallError):
    """The server will answer nobody as configured: a wrong address, model name, key or parameter."""

    outcome = "misconfigured"


class TransientError(CallError):
    """One attempt failed; another may not."""


class OverloadedError(TransientError):
    """The server has too much to do, no sign of an outage or of a fault of the query: wait longer, then try again."""

    outcome = "overloaded"


class TimedOutError(TransientError):
    """No answer in time: the server has too much to do, or hangs, or hangs on this query alone."""


class UnreachableError(TransientError):
    """No connection: the server never saw the query, which therefore cannot be at fault."""


class FailedError(CallError):
    """Out of attempts on this query, while the server answers others: the query is at fault."""


class ServerDownError(CallError):
    """The server is down: ask the other model, or wait. ``after_attempts``: whether an attempt had reached it."""

    def __init__(self, message: str, *, after_attempts: bool = False) -> None:
        self.after_attempts = after_attempts
        super().__init__(message)


class BusyError(CallError):
    """The server answers others, and had no place for this query within the caller's patience: do without it."""
