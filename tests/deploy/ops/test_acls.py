"""The rights that we hand out, on a real broker that grants nothing else: enough for the services, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import KafkaException, Producer

from schemas.settings import Settings
from tests.support.broker import running_broker
from tests.support.probes import until_ready
from tests.support.recalibrator_processes import RecalibratorProcess
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tests.support.secured_broker import SecuredBroker, User
from tools.ops.acls import PREFIX, USERS, Rule, rules
from ucci_stream.topics.access import Grant, Operation, Resource
from ucci_stream.topics.admin import create_topics
from ucci_stream.topics.ask import ask

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

LOGINS = {name: User(name, f"{name}-password") for name in USERS}
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that refuses what no rule allows."""
    with running_broker(SecuredBroker(tmp_path_factory.mktemp("secured"))) as broker:
        broker.add_users(LOGINS.values())
        yield broker


def allow(broker: SecuredBroker, prefix: str) -> None:
    """Give each user its rights, as the generated files do."""
    for name, login in LOGINS.items():
        broker.allow(login, [grant for rule in rules(name) for grant in grants_of(rule, prefix)])


def grants_of(rule: Rule, prefix: str) -> Iterator[Grant]:
    kinds: dict[str, Resource] = {"topic": "topic", "group": "group", "transactionalId": "transactional-id"}
    for operation in rule.operations:
        name = rule.name.replace(PREFIX, prefix)
        yield Grant(kinds[rule.kind], name, rule.pattern == "prefix", cast(Operation, operation))


def with_login(path: Path, broker: SecuredBroker, user: str) -> Path:
    """Write a copy of a configuration, for one user."""
    login = broker.properties(LOGINS[user])
    lines = "\n".join(f'"{key}" = "{value}"' for key, value in login.items() if key != "bootstrap.servers")
    copy = path.with_name(f"{user}.toml")
    copy.write_text(path.read_text().replace("[kafka]", f"[kafka]\n{lines}", 1))
    return copy


def topics_made_by_operator(broker: SecuredBroker, prefix: str) -> Settings:
    """Make the topics with the operator's rights; return the operator's settings."""
    workload = {"fields": ["camera", "lens"], "target": {"micro_f1": 0.9}}
    tables = {
        "kafka": broker.properties(LOGINS["operator"]),
        "topics": {"prefix": prefix, "partitions": 2},
        "workloads": {"photo": workload},
    }
    settings = Settings.model_validate(tables)
    create_topics(settings)
    return settings


async def test_services_work_with_their_rights_alone(secured: SecuredBroker, topic_prefix: str, tmp_path: Path) -> None:
    """Topics made, a query sent, answered and read by three users, of whom none may do another's work."""
    await asyncio.to_thread(allow, secured, topic_prefix)
    async with hashed_models() as (models, _):
        config = write_config(tmp_path / "ucci.toml", secured.secured, topic_prefix, models)
        settings = await asyncio.to_thread(topics_made_by_operator, secured, topic_prefix)
        state = {"state_dir": str(tmp_path / "state"), "probe_port": 0}
        more = "\n[recalibrator]\n" + "\n".join(f"{key} = {value!r}" for key, value in state.items())
        recalibrating = with_login(config, secured, "recalibrator")
        recalibrating.write_text(recalibrating.read_text() + more)
        recalibrator = RecalibratorProcess(recalibrating, "recalibrator", tmp_path / "recalibrator.log")
        router = RouterProcess(with_login(config, secured, "router"), "router-0", tmp_path / "router.log")
        try:
            for process in (recalibrator, router):
                process.start()
            probes = await recalibrator.until_logged("serving probes")
            await asyncio.to_thread(until_ready, probes["port"])
            asked = await asyncio.to_thread(ask, settings, "canon", "photo", DEADLINE_S)
            assert asked.routed.answered_by
            for process in (router, recalibrator):
                process.terminate()
                assert await process.exit_code() == 0, process.lines()[-5:]
        finally:
            router.close()
            recalibrator.close()


async def test_router_cannot_put_a_version_in_force(secured: SecuredBroker, topic_prefix: str) -> None:
    await asyncio.to_thread(allow, secured, topic_prefix)
    await asyncio.to_thread(topics_made_by_operator, secured, topic_prefix)
    router = secured.properties(LOGINS["router"])
    refused = await asyncio.to_thread(_produced, router, f"{topic_prefix}.calibration")
    assert refused == "TOPIC_AUTHORIZATION_FAILED"


def _produced(login: dict[str, str], topic: str) -> str:
    """Return the name of the error with which a record is refused."""
    failed: list[str] = []
    producer = Producer(login)
    try:
        producer.produce(topic, b"{}", on_delivery=lambda error, _: failed.append(error.name() if error else ""))
        producer.flush(DEADLINE_S)
    except KafkaException as error:
        failed.append(error.args[0].name())
    return failed[0]
