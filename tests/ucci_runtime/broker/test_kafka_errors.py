"""Each error of the client leads to the one reaction that mends it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from ucci_runtime.broker.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    Fenced,
    NeverAccepted,
    RecreateProducer,
    Rejoin,
    RetryCall,
    TopicShrank,
)
from ucci_runtime.broker.kafka_errors import Side, is_fatal, translate
from ucci_runtime.broker.transaction_states import Remedy, State, remedy

FENCED = KafkaError(KafkaError._FENCED, "", True)


@pytest.mark.parametrize(
    ("error", "reaction"),
    [
        (KafkaError(KafkaError._TIMED_OUT), RetryCall),
        (KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), RetryCall),
        (KafkaError(KafkaError.ILLEGAL_GENERATION), Rejoin),
        (KafkaError(KafkaError.UNKNOWN_MEMBER_ID), Rejoin),
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "", False, False, True), TopicShrank),
        (FENCED, Fenced),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), AccessDenied),
        (KafkaError(KafkaError.UNKNOWN, "", True), RecreateProducer),
        (KafkaError(KafkaError.UNKNOWN), AbortTransaction),
    ],
)
def test_a_producers_error_says_what_to_do_next(error: KafkaError, reaction: type[BrokerError]) -> None:
    assert type(translate(error, Side.PRODUCER)) is reaction


def test_fence_after_a_timeout_recreates_the_producer() -> None:
    """A fence after our own time-out is no sign of another process."""
    assert isinstance(translate(FENCED, Side.PRODUCER, overdue=True), RecreateProducer)


def test_fenced_consumer_ends_the_process() -> None:
    error = KafkaError(KafkaError._FATAL, "Fatal error: Broker: Static consumer fenced by other consumer")
    assert is_fatal(error)
    assert isinstance(translate(error, Side.CONSUMER), Fenced)


@pytest.mark.parametrize(
    ("code", "key"),
    [
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
        (KafkaError.INVALID_SESSION_TIMEOUT, "group.max.session.timeout.ms"),
        (KafkaError._UNSUPPORTED_FEATURE, "upgrade"),
    ],
)
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("is_final", [True, False])
def test_what_no_wait_mends_ends_the_process(code: int, key: str, side: Side, is_final: bool) -> None:
    found = translate(KafkaError(code, "", is_final), side)
    assert isinstance(found, NeverAccepted)
    assert remedy(State.STARTING, found, out_of_time=False) is Remedy.STOP
    assert key in str(found)
