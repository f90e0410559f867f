"""The rights that we hand out, on a real broker that grants nothing else: enough for the services, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from schemas.settings import Settings
from tests.support.probes import until_ready
from tests.support.recalibrator_processes import RecalibratorProcess
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tools.ops.acls import PREFIX, USERS, rules
from ucci_stream.local import kafka_install, kafka_node
from ucci_stream.local.broker_probe import pick_port
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import create_topics
from ucci_stream.topics.ask import ask

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

PASSWORD = "a-password-of-the-tests"
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, str]]:
    """A broker that refuses what no rule allows, and the address at which it asks for passwords."""
    address = f"127.0.0.1:{pick_port()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_node, "broker_properties", lambda *given: guarded_properties(address, *given))
        local = LocalBroker(tmp_path_factory.mktemp("kafka"))
        local.start()
    yield local, address
    local.stop()


def guarded_properties(address: str, data: str, port: int, controller_port: int) -> dict[str, str]:
    found = kafka_install.broker_properties(data, port, controller_port)
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return found | {
        "listeners": f"{found['listeners']},SASL_PLAINTEXT://{address}",
        "advertised.listeners": f"{found['advertised.listeners']},SASL_PLAINTEXT://{address}",
        "listener.security.protocol.map": (f"{found['listener.security.protocol.map']},SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The listener without passwords is the broker's own, and the tests'.
        "super.users": "User:ANONYMOUS",
    }


def allow(broker: LocalBroker, prefix: str) -> None:
    """Give each user its rights, as the generated files do."""
    kinds = {"topic": "TOPIC", "group": "GROUP", "transactionalId": "TRANSACTIONAL_ID"}
    operations = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
    bindings = [
        AclBinding(
            ResourceType[kinds[rule.kind]],
            rule.name.replace(PREFIX, prefix),
            ResourcePatternType["PREFIXED" if rule.pattern == "prefix" else "LITERAL"],
            f"User:{user}",
            "*",
            AclOperation[operations.get(operation, operation.upper())],
            AclPermissionType.ALLOW,
        )
        for user in USERS
        for rule in rules(user)
        for operation in rule.operations
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_acls(bindings).values():
        future.result(DEADLINE_S)


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


def with_login(path: Path, user: str) -> Path:
    """Write a copy of a configuration, for one user."""
    lines = "\n".join(f'"{key}" = "{value}"' for key, value in login(user).items())
    copy = path.with_name(f"{user}.toml")
    copy.write_text(path.read_text().replace("[kafka]", f"[kafka]\n{lines}", 1))
    return copy


def topics_made_by_operator(address: str, prefix: str) -> Settings:
    """Make the topics with the operator's rights; return the operator's settings."""
    workload = {"fields": ["camera", "lens"], "target": {"micro_f1": 0.9}}
    tables = {
        "kafka": {"bootstrap.servers": address, **login("operator")},
        "topics": {"prefix": prefix, "partitions": 2},
        "workloads": {"photo": workload},
    }
    settings = Settings.model_validate(tables)
    create_topics(settings)
    return settings


async def test_services_work_with_their_rights_alone(
    guarded: tuple[LocalBroker, str], topic_prefix: str, tmp_path: Path
) -> None:
    """Topics made, a query sent, answered and read by three users, of whom none may do another's work."""
    broker, address = guarded
    await asyncio.to_thread(allow, broker, topic_prefix)
    async with hashed_models() as (models, _):
        config = write_config(tmp_path / "ucci.toml", address, topic_prefix, models)
        settings = await asyncio.to_thread(topics_made_by_operator, address, topic_prefix)
        state = {"state_dir": str(tmp_path / "state"), "probe_port": 0}
        more = "\n[recalibrator]\n" + "\n".join(f"{key} = {value!r}" for key, value in state.items())
        recalibrating = with_login(config, "recalibrator")
        recalibrating.write_text(recalibrating.read_text() + more)
        recalibrator = RecalibratorProcess(recalibrating, "recalibrator", tmp_path / "recalibrator.log")
        router = RouterProcess(with_login(config, "router"), "router-0", tmp_path / "router.log")
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


async def test_router_cannot_put_a_version_in_force(guarded: tuple[LocalBroker, str], topic_prefix: str) -> None:
    broker, address = guarded
    await asyncio.to_thread(allow, broker, topic_prefix)
    await asyncio.to_thread(topics_made_by_operator, address, topic_prefix)
    refused = await asyncio.to_thread(_produced, address, "router", f"{topic_prefix}.calibration")
    assert refused == "TOPIC_AUTHORIZATION_FAILED"


def _produced(address: str, user: str, topic: str) -> str:
    """Return the name of the error with which a record is refused."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": address, **login(user)})
    try:
        producer.produce(topic, b"{}", on_delivery=lambda error, _: failed.append(error.name() if error else ""))
        producer.flush(DEADLINE_S)
    except KafkaException as error:
        failed.append(error.args[0].name())
    return failed[0]
