"""A client that hears nothing: the broker is away, or this client alone is cut off, and `/healthz` tells which."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from ucci_runtime.broker import kafka_lifeline
from ucci_runtime.broker.contact import SILENT_S, UNASSIGNED_S, Contact, health
from ucci_runtime.broker.kafka_lifeline import is_answered
from ucci_runtime.broker.records import Input

NOON_S = 1_800_000_000.0


def test_healthz_said_alive_while_a_client_was_cut_off() -> None:
    """A router that its client had lost for good called itself alive for eight minutes."""
    contact = Contact("intake", 0.0)
    assert not contact.cut_off(10.0)
    found = health([contact, Contact("calibration", 10.0)], 10.0, NOON_S)
    assert found.status == "stuck"
    assert "intake" in found.reason
    assert found.answer()[1] == HTTPStatus.SERVICE_UNAVAILABLE, "a restart makes its clients anew"
    contact.heard(11.0)
    assert health([contact], 11.0, NOON_S).status == "alive"


def test_a_broker_that_is_away_is_named_and_restarts_nobody() -> None:
    contact = Contact("intake", 0.0)
    assert health([contact], SILENT_S - 0.1, NOON_S).status == "alive"
    found = health([contact], 60.0, NOON_S)
    assert found[:2] == ("waiting", "Kafka has not answered since 2027-01-15T07:59:00Z")
    assert found.answer()[1] == HTTPStatus.OK


def heard(now_s: float, *contacts: Contact) -> tuple[bool, float, float]:
    """Return whether Kafka is away, how long ago it was heard last, and since when without a gap, in seconds."""
    found = health(contacts, now_s, NOON_S).heard
    assert found is not None
    return found.is_away, NOON_S - found.at.timestamp(), NOON_S - found.since.timestamp()


def test_one_client_that_hears_kafka_is_enough() -> None:
    """Kafka is away only where no client of the process has heard it, and is back since the first that has again."""
    idle, busy = Contact("tail", 0.0), Contact("view", 0.0)
    busy.heard(9.0)
    assert heard(18.0, idle, busy) == (False, 9.0, 18.0)
    assert heard(19.0, idle, busy) == (True, 10.0, 19.0)
    busy.heard(60.0)
    assert heard(61.0, idle, busy) == (False, 1.0, 1.0)


def test_a_client_made_anew_began_everybodys_silence_again() -> None:
    """The join begins again after its disk was full: a fit that is lost then was named half a minute later."""
    old, new = Contact("status", 0.0), Contact("join", 90.0)
    for now_s in range(8, 101, 8):
        old.heard(float(now_s))
    new.heard(100.0)
    assert heard(100.0, old, new) == (False, 0.0, 100.0)


def test_a_second_client_that_is_cut_off_ends_the_process() -> None:
    """Only where nothing was heard between the two."""
    contact = Contact("intake", 0.0)
    assert not contact.cut_off(10.0)
    assert contact.cut_off(20.0)
    contact.heard(21.0)
    assert not contact.cut_off(30.0)


def test_a_member_without_partitions_stood_still_behind_answers() -> None:
    """Its metadata were answered all the while, and its join was not."""
    contact = Contact("intake", 0.0)
    contact.joining(0.0)
    contact.answered(UNASSIGNED_S - 1.0)
    assert not contact.waits_too_long(UNASSIGNED_S - 0.1)
    assert contact.waits_too_long(UNASSIGNED_S)
    contact.assigned(UNASSIGNED_S)
    assert not contact.waits_too_long(10 * UNASSIGNED_S)


def test_a_broker_that_woke_between_questions_cut_clients_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked while it stood still, a client had no answer; another one, asked three seconds later, had one."""
    awake = False

    class Asked:
        def __init__(self, wakes: bool) -> None:
            self._wakes = wakes

        def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
            nonlocal awake
            if not (awake := awake or self._wakes):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return 0, 1

        def close(self) -> None: ...

    monkeypatch.setattr(kafka_lifeline, "Consumer", lambda _: Asked(wakes=True))
    monkeypatch.setattr(Contact, "is_due", lambda *_: True)
    lifeline = kafka_lifeline.Lifeline("intake", {})
    assert not lifeline.is_cut(cast(Consumer, Asked(wakes=False)), Input("queries", 0))
    assert not lifeline.contact.is_cut_off


@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, True),
        (None, True),
    ],
)
def test_a_broker_that_loaded_its_coordinators_had_routers_end(code: int | None, *, answered: bool) -> None:
    """For the minute that it took to start, members called themselves cut off: "the broker answers others"."""

    def ask() -> None:
        if code is not None:
            raise KafkaException(KafkaError(code))

    assert is_answered(ask) is answered


def test_a_transaction_that_does_not_end_is_no_life() -> None:
    found = health([Contact("intake", 60.0)], 60.0, NOON_S, [0.0, None])
    assert found.status == "waiting"
    assert "a transaction has not ended" in found.reason


@pytest.mark.parametrize("closes", [True, False])
def test_a_client_that_was_closed_is_not_waited_for(*, closes: bool) -> None:
    contact = Contact("intake", 0.0)
    if closes:
        contact.closed()
    assert (health([contact], 1_000.0, NOON_S).status == "alive") is closes
    assert contact.is_due(1_000.0) is not closes
