"""What Kafka clients report on the side, errors and log lines: counted, the first few logged, final ones passed on.

A refused password reaches no call at all; it comes here only. The clients repeat themselves, so after the first few
of a kind only the counter speaks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError

from stream_router.errors import AccessDenied, BrokerError, Fenced
from stream_router.shell.broker_errors import Side, translate
from stream_router.shell.kafka_properties import Properties
from stream_router.shell.metrics import Metrics

_log = structlog.get_logger()
_LOGGED_EACH = 3
_FACILITY = 0


def callbacks(client: str, metrics: Metrics, on_final: Callable[[BrokerError], None]) -> Properties:
    """Return a client's ``error_cb`` and ``logger``; both are served when the client is polled.

    Parameters
    ----------
    client : str
        Its name in logs and metrics.
    on_final : callable
        Called with an error that waiting cannot mend; from whichever thread polls the client.
    """
    return {"error_cb": ClientErrors(client, metrics, on_final), "logger": ClientLog(client)}


class ClientLog:
    """The ``logger`` of one client: its lines join ours instead of breaking them on standard error."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._seen: Counter[str] = Counter()

    def log(self, level: int, template: str, *parts: str) -> None:
        """Take one line: its facility, the client's own name, the text."""
        facility = str(parts[_FACILITY]) if parts else template
        self._seen[facility] += 1
        if self._seen[facility] <= _LOGGED_EACH:
            _log.log(min(level, logging.WARNING), "kafka client", client=self._client, line=template % parts)


class ClientErrors:
    """The ``error_cb`` of one client.

    Parameters
    ----------
    client : str
        Its name in logs and metrics.
    on_final : callable
        Called with an error that waiting cannot mend; from whichever thread polls the client.
    """

    def __init__(self, client: str, metrics: Metrics, on_final: Callable[[BrokerError], None]) -> None:
        self._client = client
        self._metrics = metrics
        self._on_final = on_final
        self._seen: Counter[str] = Counter()

    def __call__(self, error: KafkaError) -> None:
        """Take one report."""
        name = error.name()
        self._seen[name] += 1
        self._metrics.client_errors.labels(self._client, name).inc()
        if self._seen[name] <= _LOGGED_EACH:
            _log.warning("kafka client", client=self._client, code=name, error=error.str(), count=self._seen[name])
        # A transactional producer's own calls report its fencing, and know whether it is ours to mend.
        final = translate(error, Side.CONSUMER)
        if isinstance(final, AccessDenied) or (isinstance(final, Fenced) and self._client == "intake"):
            self._on_final(final)
