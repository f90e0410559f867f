"""Turns a Kafka error into one of ours, which says what the caller does next. Nowhere else is a Kafka code read.

The codes were provoked on a real broker (restarts, zombies, time-outs, access lists); what is unknown and not fatal
aborts the transaction, what is unknown and fatal ends the producer.

What clients report on the side, errors and log lines, is counted, the first few of a kind logged and final ones passed
on: clients repeat themselves, and a refused password reaches no call at all.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException

from ucci_runtime.broker.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    Fenced,
    MetadataTooLong,
    NeverAccepted,
    RecreateProducer,
    Rejoin,
    RetryCall,
    TopicShrank,
)
from ucci_runtime.broker.records import Count

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})  # noqa: SLF001 client-side codes have underscores
_GROUP_MOVED_ON = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        # On a producer's call it means: this member's id is from before a rejoin; on the consumer it is final.
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)
_DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 client-side codes have underscores
    }
)
# No wait makes these pass: a limit of the broker's stands against what a client of ours asks for.
_NEVER: Mapping[int, str] = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms: the broker's transaction.max.timeout.ms is lower than what the service needs, 10000 "
        "for routers and recalibrators and 60000 for `ucci-stream bootstrap` and `calibrate`: raise it on every broker"
    ),
    KafkaError.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms: lies outside of the broker's group.min.session.timeout.ms to "
        'group.max.session.timeout.ms: set "session.timeout.ms" in [kafka], 20000 without it, or widen the range on '
        "every broker"
    ),
    KafkaError._UNSUPPORTED_FEATURE: "the broker is too old for what the service needs: upgrade it",  # noqa: SLF001 client-side codes have underscores
}
# After either the next transaction of the same producer fails too, or every one; a new producer works at once.
_PRODUCER_SPOILT = frozenset(
    {KafkaError.INVALID_TXN_STATE, KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID}
)
_TOO_LARGE: Mapping[int, type[BrokerError]] = {
    KafkaError.OFFSET_METADATA_TOO_LARGE: MetadataTooLong,
    KafkaError.MSG_SIZE_TOO_LARGE: TopicShrank,
}
_TRANSIENT = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001 client-side codes have underscores
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._QUEUE_FULL,  # noqa: SLF001
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)


class Side(Enum):
    """Whose call failed."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the client's error object inside its exception."""
    inner = error.args[0]
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))  # noqa: SLF001 the client's own code for "other"


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that reports this takes no further calls; a consumer says so by code, not by flag."""
    return error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 a client-side code


def _is_instance_fenced(error: KafkaError) -> bool:
    """Whether the group has another member under our group.instance.id.

    The consumer wraps the broker's code in its own "fatal", of which only the text names the cause.
    """
    text = error.str().lower()
    wrapped = is_fatal(error) and ("group.instance.id" in text or "fenced" in text)
    return wrapped or error.code() == KafkaError.FENCED_INSTANCE_ID


def translate(  # noqa: PLR0911 one line a case, in the order in which they decide
    error: KafkaError, side: Side, *, overdue: bool = False
) -> BrokerError:
    """Turn one of Kafka's errors into what the caller does next.

    ``side``: the same code may be final for the consumer and passing for the producer. ``overdue``: whether our own
    transaction was open longer than its time-out: the coordinator then ended it, and "fenced" says nothing of another
    process.
    """
    code = error.code()
    line = f"{error.name()}: {error.str()}"
    if side is Side.CONSUMER and _is_instance_fenced(error):
        return Fenced(
            "another process joined the group under this instance id, or the broker served a join of this process that "
            f"had waited in a stall ({line})"
        )
    if code in _FENCED:
        if overdue:
            return RecreateProducer(f"the transaction outlived its time-out ({line})")
        return Fenced(f"another process runs under this instance id ({line})")
    if code in _DENIED or code in _NEVER:
        return _refused(code, line)
    if code in _GROUP_MOVED_ON:
        return Rejoin(line)
    if code in _TOO_LARGE:
        return _TOO_LARGE[code](line)
    if code in _PRODUCER_SPOILT or is_fatal(error):
        return RecreateProducer(line)
    if error.txn_requires_abort():
        return AbortTransaction(line)
    if error.retriable() or code in _TRANSIENT:
        return RetryCall(line)
    return AbortTransaction(line)


def _refused(code: int, line: str) -> AccessDenied:
    """Return what the broker refuses for good."""
    if code in _NEVER:
        return NeverAccepted(f"{_NEVER[code]} ({line})")
    return AccessDenied(f"the broker refuses: {line}; check the credentials and access lists")


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
) -> dict[str, Any]:
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
