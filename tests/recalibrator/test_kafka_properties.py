"""What exactly-once rests on cannot be configured away; what is the user's to say comes through."""

from __future__ import annotations

from typing import Any

from recalibrator.kafka_properties import (
    group_properties,
    producer_properties,
    reader_properties,
    transactional_properties,
)
from schemas.settings import Settings
from ucci_runtime.broker.kafka_properties import admin_properties


def settings(**kafka: Any) -> Settings:
    return Settings.model_validate({"kafka": {"bootstrap.servers": "b:1", **kafka}, "topics": {"prefix": "p"}})


def test_no_setting_makes_a_stage_read_what_was_not_committed_or_commit_by_itself() -> None:
    given = settings(**{"isolation.level": "read_uncommitted", "enable.auto.commit": True, "group.id": "mine"})
    properties = group_properties(given, "join", "i-1")
    assert properties["isolation.level"] == "read_committed"
    assert properties["enable.auto.commit"] is False
    assert (properties["group.id"], properties["group.instance.id"]) == ("p-join", "i-1")


def test_no_setting_weakens_the_transactions() -> None:
    given = settings(**{"enable.idempotence": False, "acks": 1, "transactional.id": "mine", "batch.size": 10**7})
    properties = transactional_properties(given, "fit", "i-1", 90_000)
    assert properties["enable.idempotence"] is True
    assert properties["acks"] == "all"
    assert properties["transactional.id"] == "p-fit-i-1"
    assert properties["batch.size"] == properties["message.max.bytes"] == 90_000


def test_security_and_addresses_reach_every_client_and_each_only_what_it_knows() -> None:
    given = settings(**{"sasl.username": "u", "linger.ms": 9, "session.timeout.ms": 6_000})
    clients = {
        "admin": admin_properties(given),
        "reader": reader_properties(given, "x"),
        "group": group_properties(given, "join", "i"),
        "transactions": transactional_properties(given, "join", "i", 1_000),
        "producer": producer_properties(given),
    }
    assert {properties["sasl.username"] for properties in clients.values()} == {"u"}
    assert {properties["bootstrap.servers"] for properties in clients.values()} == {"b:1"}
    assert {name for name, properties in clients.items() if "linger.ms" in properties} == {"transactions", "producer"}
    assert {name for name, p in clients.items() if p.get("session.timeout.ms") == 6_000} == {"reader", "group"}
