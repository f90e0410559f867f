"""The rights that acls.sh hands out, on a real broker that grants nothing else.

Those of the services are what `ucci-stream acls` prints (test_generated.py), which is tried whole by
tests/deploy/topics/test_secured_broker.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import KafkaException, Producer

from schemas.settings import Settings
from schemas.topics import TOPICS
from tests.support.broker import running_broker
from tests.support.secured_broker import SecuredBroker, User
from tools.ops.acls import PREFIX, USERS, Rule, rules
from ucci_stream.topics.access import Grant, Operation, Resource
from ucci_stream.topics.admin import create_topics

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

LOGINS = {name: User(name, f"{name}-password") for name in USERS}
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that refuses what no rule allows."""
    with running_broker(SecuredBroker(tmp_path_factory.mktemp("secured"))) as broker:
        broker.add_users(LOGINS.values())
        yield broker


def grants_of(rule: Rule, prefix: str) -> Iterator[Grant]:
    kinds: dict[str, Resource] = {"topic": "topic", "group": "group", "transactionalId": "transactional-id"}
    for operation in rule.operations:
        name = rule.name.replace(PREFIX, prefix)
        yield Grant(kinds[rule.kind], name, rule.pattern == "prefix", cast(Operation, operation))


def test_operator_makes_topics_and_a_router_no_version(secured: SecuredBroker, topic_prefix: str) -> None:
    """A router that could put a version in force would decide for all others."""
    for name, login in LOGINS.items():
        secured.allow(login, [grant for rule in rules(name) for grant in grants_of(rule, topic_prefix)])
    tables = {"kafka": secured.properties(LOGINS["operator"]), "topics": {"prefix": topic_prefix, "partitions": 2}}
    assert len(create_topics(Settings.model_validate(tables)).created) == len(TOPICS)
    router = secured.properties(LOGINS["router"])
    assert produced(router, f"{topic_prefix}.calibration") == "TOPIC_AUTHORIZATION_FAILED"


def produced(login: dict[str, str], topic: str) -> str:
    """Return the name of the error with which a record is refused."""
    failed: list[str] = []
    producer = Producer(login)
    try:
        producer.produce(topic, b"{}", on_delivery=lambda error, _: failed.append(error.name() if error else ""))
        producer.flush(DEADLINE_S)
    except KafkaException as error:
        failed.append(error.args[0].name())
    return failed[0]
