"""What Kafka clients report on the side, errors and log lines: counted, the first few logged, final ones passed on.

A refused password reaches no call at all; it comes here only. Clients repeat themselves, so after the first few of a
kind only the counter speaks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError

from ucci_runtime.broker.errors import AccessDenied, BrokerError, Fenced
from ucci_runtime.broker.kafka_errors import Side, translate
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.records import Count

_log = structlog.get_logger()
_LOGGED_EACH = 3
#: The client says this nowhere else.
_SESSION_LOST = "SESSTMOUT"


def reports(
    client: str,
    count: Count,
    on_final: Callable[[BrokerError], None],
    *,
    on_session_lost: Callable[[], None] | None = None,
) -> Properties:
    """Return a client's ``error_cb`` and ``logger``; both are served when the client is polled.

    ``on_session_lost``: of a group's consumer: called when it gives its session up because the group has not answered.
    The fencing of such a client is final; a transactional producer's own calls report its fencing, and know whether it
    is ours to mend.
    """
    seen: Counter[str] = Counter()
    is_member = on_session_lost is not None

    def on_error(error: KafkaError) -> None:
        seen[error.name()] += 1
        count("client_errors", client=client, code=error.name())
        if seen[error.name()] <= _LOGGED_EACH:
            _log.warning("kafka client", client=client, code=error.name(), error=error.str())
        final = translate(error, Side.CONSUMER)
        if isinstance(final, AccessDenied) or (is_member and isinstance(final, Fenced)):
            on_final(final)

    return {"error_cb": on_error, "logger": ClientLog(client, on_session_lost)}


class ClientLog:
    """The ``logger`` of one client: its lines join ours instead of breaking them on standard error."""

    def __init__(self, client: str, on_session_lost: Callable[[], None] | None = None) -> None:
        self._client = client
        self._on_session_lost = on_session_lost
        self._seen: Counter[str] = Counter()

    def log(self, level: int, template: str, *parts: str) -> None:
        """Take one line: its facility, the client's own name, the text."""
        facility = str(parts[0]) if parts else template
        self._seen[facility] += 1
        if facility == _SESSION_LOST and self._on_session_lost is not None:
            self._on_session_lost()
        if self._seen[facility] <= _LOGGED_EACH:
            line = template % parts if parts else template
            _log.log(min(level, logging.WARNING), "kafka client", client=self._client, line=line)
