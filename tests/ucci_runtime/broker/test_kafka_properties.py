"""What exactly-once rests on cannot be configured away; what is the user's to say comes through."""

from __future__ import annotations

from typing import Any

from schemas.settings import Settings
from ucci_runtime.broker.kafka_properties import ClientNames, group_properties, transactional_properties

ROUTER = ClientNames("router", "p", "i-1")
STAGES = ClientNames("recalibrator", "p", "i-1")


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


def test_fetching_and_batches_are_the_users_to_tune() -> None:
    """A router waits for no end of a partition; a stage does, and its fetches return soon.

    Records of a transaction wait until it ends, unless a user says otherwise: its commit sends them.
    """
    given = settings(**{"fetch.wait.max.ms": 300, "fetch.min.bytes": 5_000, "linger.ms": 9})
    fetched = [group_properties(given, names, "any") for names in (ROUTER, STAGES)]
    assert [found["fetch.wait.max.ms"] for found in fetched] == [300, 50]
    assert [found["fetch.min.bytes"] for found in fetched] == [5_000, 1]
    written = [transactional_properties(one, ROUTER, "router", 90_000) for one in (settings(), given)]
    assert [found["linger.ms"] for found in written] == [50, 9]
