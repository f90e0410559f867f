"""What exactly-once rests on cannot be configured away; what is the user's to say comes through."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.settings import Settings
from ucci_runtime.broker.kafka_properties import (
    ClientNames,
    admin_properties,
    group_properties,
    heartbeat_properties,
    publisher_properties,
    reader_properties,
    transactional_properties,
)

STAGES = ClientNames("recalibrator", "p", "i-1")
ROUTER = ClientNames("router", "p", "i-1")


def settings(**kafka: Any) -> Settings:
    return Settings.model_validate({"kafka": {"bootstrap.servers": "b:1", **kafka}, "topics": {"prefix": "p"}})


def test_settings_cannot_weaken_the_transactions() -> None:
    """No setting makes a stage read uncommitted records or commit automatically."""
    given = settings(**{"isolation.level": "read_uncommitted", "enable.auto.commit": True, "group.id": "mine"})
    read = {"isolation.level": "read_committed", "enable.auto.commit": False}
    names = {"group.id": "p-join", "group.instance.id": "i-1"}
    assert group_properties(given, STAGES, "join").items() >= (read | names).items()
    given = settings(**{"enable.idempotence": False, "acks": 1, "transactional.id": "mine", "batch.size": 10**7})
    written = {"enable.idempotence": True, "acks": "all", "transactional.id": "p-fit-i-1"}
    sizes = {"batch.size": 90_000, "message.max.bytes": 90_000}
    assert transactional_properties(given, STAGES, "fit", 90_000).items() >= (written | sizes).items()


def test_how_long_records_wait_for_company_is_the_users() -> None:
    """Unless they say so, records of a transaction wait until it ends: its commit sends them."""
    assert transactional_properties(settings(), ROUTER, "router", 90_000)["linger.ms"] == 50
    assert transactional_properties(settings(**{"linger.ms": 9}), ROUTER, "router", 90_000)["linger.ms"] == 9


def test_fetching_of_queries_is_the_users_to_tune() -> None:
    """A router waits for no end of a partition; a stage does, and its fetches return soon."""
    given = settings(**{"fetch.wait.max.ms": 300, "fetch.min.bytes": 5_000})
    fetched = [group_properties(given, names, "any") for names in (ROUTER, STAGES)]
    assert [found["fetch.wait.max.ms"] for found in fetched] == [300, 50]
    assert [found["fetch.min.bytes"] for found in fetched] == [5_000, 1]


def test_clients_get_only_the_settings_they_know() -> None:
    """Security and addresses reach every client, and each client gets only the properties that it knows."""
    given = settings(**{"sasl.username": "u", "linger.ms": 9, "session.timeout.ms": 6_000})
    clients = {
        "admin": admin_properties(given),
        "reader": reader_properties(given, "x"),
        "group": group_properties(given, STAGES, "join"),
        "transactions": transactional_properties(given, STAGES, "join", 1_000),
        "producer": publisher_properties(given),
        "heartbeat": heartbeat_properties(given),
    }
    assert {(properties["sasl.username"], properties["bootstrap.servers"]) for properties in clients.values()} == {
        ("u", "b:1")
    }
    assert {name for name, p in clients.items() if "linger.ms" in p} == {"transactions", "producer", "heartbeat"}
    assert {name for name, p in clients.items() if p.get("session.timeout.ms") == 6_000} == {"reader", "group"}


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [
        (ROUTER, "router", ("p-router", "i-1", "p-router-i-1", "p-router-i-1-router")),
        (STAGES, "join", ("p-join", "join-i-1", "p-join-i-1", "p-join-i-1")),
    ],
)
def test_ids_of_groups_clients_and_transactions_are_fixed(
    names: ClientNames, name: str, expected: tuple[str, ...]
) -> None:
    """A group's offsets, and the fencing of a former process, hang on them; the last is of a reader of whole topics."""
    ids = (names.group_id, names.client_id, names.transactional_id, names.reader_group_id)
    assert tuple(of(name) for of in ids) == expected
