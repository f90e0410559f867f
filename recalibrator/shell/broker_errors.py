"""Kafka's errors → one of ours, which says what the caller does next. Nowhere else is a Kafka code read.

What is unknown and not fatal aborts the transaction; what is unknown and fatal ends the producer.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from recalibrator.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    Fenced,
    RecreateProducer,
    RetryCall,
)

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})  # noqa: SLF001 client-side codes have underscores
# A consumer group that moved on: the transaction is aborted, and the next poll tells the new assignment.
_GROUP_MOVED_ON = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
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
# After these the next transaction of the same producer fails too; a new producer works at once.
_PRODUCER_SPOILT = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
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


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the client's error object inside its exception."""
    inner = error.args[0]
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))  # noqa: SLF001 the client's own code for "other"


def is_fatal(error: KafkaError) -> bool:
    """Tell whether the client that reported this does nothing more; a poll's fatal error is not marked as such."""
    return error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 a client-side code


def of_consumer(error: KafkaError) -> BrokerError:
    """Turn an error of a consumer's call or report into what the caller does next."""
    # A poll reports a fatal error under a code of its own; what happened stands in its text alone.
    told = error.code() == KafkaError._FATAL and "fenced" in error.str().lower()  # noqa: SLF001 a client-side code
    if told or error.code() in _FENCED or error.code() == KafkaError.FENCED_INSTANCE_ID:
        return Fenced(f"another process joined the group under this instance id ({error.name()}: {error.str()})")
    return _either(error)


def of_producer(error: KafkaError, *, overdue: bool) -> BrokerError:
    """Turn an error of a producer's call into what the caller does next.

    Parameters
    ----------
    error : KafkaError
    overdue : bool
        Whether our own transaction was open longer than its time-out: the coordinator then ended it, and "fenced"
        says nothing of another process.
    """
    line = f"{error.name()}: {error.str()}"
    code = error.code()
    if code in _FENCED:
        if overdue:
            return RecreateProducer(f"the transaction outlived its time-out ({line})")
        return Fenced(f"another process runs under this instance id ({line})")
    if code in _GROUP_MOVED_ON:
        return AbortTransaction(line)
    if code in _PRODUCER_SPOILT:
        return RecreateProducer(line)
    return _either(error)


def _either(error: KafkaError) -> BrokerError:
    line = f"{error.name()}: {error.str()}"
    if error.code() in _DENIED:
        return AccessDenied(f"the broker refuses: {line}; check the credentials and access lists")
    if is_fatal(error):
        return RecreateProducer(line)
    if error.txn_requires_abort():
        return AbortTransaction(line)
    if error.retriable() or error.code() in _TRANSIENT:
        return RetryCall(line)
    return AbortTransaction(line)
