"""On a broker with SASL_SSL and an authorizer, what `ucci-stream acls` prints is enough, and none of it is too much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Literal

import aiohttp
import pytest
from confluent_kafka import KafkaError, Producer

from recalibrator import service as recalibrator_service
from recalibrator.stage import ReaderName, StageName
from schemas.feedback import FeedbackEvent
from schemas.settings import Settings
from schemas.topics import CALIBRATION_TRIAL, JOIN_REPARTITION, TOPICS
from stream_router import service as router_service
from stream_router.gateway import service as gateway_service
from stream_router.ports import CALIBRATION_READER, GROUP
from tests.support.broker import read_all, running_broker
from tests.support.broker_labs import Notes
from tests.support.gateway_processes import GatewayProcess
from tests.support.gateway_processes import ask as gateway_ask
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, recalibrator_settings
from tests.support.router_processes import RouterProcess, hashed_models, write_config
from tests.support.secured_broker import SecuredBroker, User
from tests.support.waiting import wait_until
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_broker import KafkaBroker
from ucci_runtime.broker.kafka_properties import ClientNames, publisher_properties
from ucci_runtime.broker.ports import CheckedTopics, GroupReader, TopicReader
from ucci_stream.label_tools.label_queue import read_queue
from ucci_stream.label_tools.sync import SyncTopics
from ucci_stream.local.kafka_node import pick_port
from ucci_stream.operate.kafka_diagnosis import group_findings, report_findings, topic_findings
from ucci_stream.topics.access import COMPONENTS, Grant, grants
from ucci_stream.topics.ask import ask
from ucci_stream.topics.feed import send_feedback

pytestmark = [pytest.mark.broker, pytest.mark.slow]

DEADLINE_S = 60.0
USERS = {name: User(name, f"{name}-password") for name in COMPONENTS}
Service = Literal["router", "gateway", "recalibrator"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker whose users may do nothing yet."""
    with running_broker(SecuredBroker(tmp_path_factory.mktemp("secured"))) as broker:
        broker.add_users(USERS.values())
        yield broker


@pytest.fixture
def granted(secured: SecuredBroker, topic_prefix: str) -> SecuredBroker:
    """The broker with the topics of this test, and with what is printed applied."""
    create_all_topics(secured.bootstrap, topic_prefix)
    for name, user in USERS.items():
        secured.allow(user, grants(name, topic_prefix))
    return secured


def settings_as(broker: SecuredBroker, name: str, prefix: str) -> Settings:
    kafka = broker.properties(USERS[name])
    return recalibrator_settings(broker.bootstrap, prefix).model_copy(update={"kafka": kafka})


def write_settings(path: Path, broker: SecuredBroker, name: str, prefix: str, models: str, http_port: int = 0) -> Path:
    more = ["[gateway]", "http_port = 0", "[recalibrator]", f"http_port = {http_port}"]
    more += [f'state_dir = "{path.parent / "state"}"']
    text = write_config(path, "", prefix, models, more).read_text()
    kafka = [f'"{key}" = "{value}"' for key, value in broker.properties(USERS[name]).items()]
    path.write_text(text.replace('"bootstrap.servers" = ""', "\n".join(kafka)))
    return path


async def test_printed_access_is_enough_end_to_end(granted: SecuredBroker, topic_prefix: str, tmp_path: Path) -> None:
    """A query gets its result, its label reaches the fit, and the label queue can be read."""
    port = pick_port()
    async with hashed_models() as (models, _):
        router_toml = write_settings(tmp_path / "r.toml", granted, "router", topic_prefix, models)
        recalibrator_toml = write_settings(tmp_path / "c.toml", granted, "recalibrator", topic_prefix, models, port)
        fit = RecalibratorProcess(recalibrator_toml, "recalibrator", tmp_path / "c.log", stages=tuple(StageName))
        with RouterProcess(router_toml, "router-0", tmp_path / "r.log") as router, fit as recalibrator:
            await router.until_logged("assigned")
            await recalibrator.until_logged("assigned", 2)
            await recalibrator.until_ready(port)
            producer = settings_as(granted, "producer", topic_prefix)
            asked = await asyncio.to_thread(ask, producer, "canon", "photo", DEADLINE_S)
            assert asked.routed.answered_by == "large"
            await asyncio.to_thread(label, granted, topic_prefix, asked.routed.query_id, tmp_path)
            for process in (router, recalibrator):
                process.terminate()
                assert await process.exit_code() == 0


def label(broker: SecuredBroker, prefix: str, query_id: str, folder: Path) -> None:
    """Label a query as the labeler, and wait until the join has sent the example to the fit."""
    settings = settings_as(broker, "labeler", prefix)
    file = folder / "gold.jsonl"
    file.write_text(f'{{"query_id": "{query_id}", "entities": {{"camera": "canon", "lens": null}}, "labeler": "ada"}}')
    assert send_feedback(settings, file).records == 1
    read_queue(settings, "photo", 10, None)

    def is_joined() -> bool:
        return any(b'"labelled"' in (m.value() or b"") for m in read_all(broker.bootstrap, f"{prefix}.observations"))

    wait_until(is_joined, "the example reaches the fit")


class Acting:
    """What a service does with each of its grants, as small as it can be done."""

    def __init__(self, settings: Settings, service: Service) -> None:
        self._prefix = settings.topics.prefix
        self._settings = settings
        role: Literal["router", "recalibrator"] = "recalibrator" if service == "recalibrator" else "router"
        self._names = ClientNames(role, self._prefix, "a")
        self._failed: list[BrokerError] = []
        self._broker = KafkaBroker(
            settings, self._names, count=lambda *_, **__: None, on_final=self._failed.append, closing=Event()
        )
        self._touched, self._optional = {
            "router": (router_service.Service.needed, (CALIBRATION_TRIAL,)),
            "gateway": (gateway_service.GatewayService.needed, gateway_service.GatewayService.optional),
            # All its stages run in one process here, the join among them.
            "recalibrator": (
                (*recalibrator_service._TOUCHED, JOIN_REPARTITION),
                tuple(recalibrator_service._OPTIONAL),
            ),
        }[service]
        #: By the names of clients; of groups with the topic that each reads.
        self._readers: tuple[str, ...] = tuple(ReaderName) if role == "recalibrator" else (CALIBRATION_READER,)
        self._groups: dict[str, str] = {GROUP: "queries"}
        if role == "recalibrator":
            self._groups = {StageName.JOIN: "results", StageName.FIT: "observations"}

    def check(self) -> CheckedTopics:
        """Do what a service does at its start."""
        return self._broker.check(self._touched, self._touched, self._optional)

    def refused(self, grant: Grant) -> str | None:
        """Use a grant; return by which error that failed."""
        act: Callable[[Grant], str | None] = {
            ("topic", "Read"): self._start_and_read,
            ("topic", "Write"): self._write,
            ("topic", "DescribeConfigs"): self._check,
            ("group", "Read"): self._join,
            ("group", "Describe"): self._read_in_group,
            ("transactional-id", "Write"): self._begin,
        }[grant.resource, grant.operation]
        self._failed.clear()
        try:
            return act(grant)
        except BrokerError as error:
            return str(error)

    def _check(self, grant: Grant) -> str | None:
        """Return the warning where the start goes on without a topic."""
        return next((line for line in self.check().warnings if f" {grant.name} " in line), None)

    def _start_and_read(self, grant: Grant) -> str | None:
        # A client that reads a topic which it may not describe hears nothing at all: the start finds that.
        refused = self._check(grant)
        if refused is None:
            self._read(grant)
        return refused

    def _read(self, grant: Grant) -> None:
        topic = next(t for t in TOPICS if t.name(self._prefix) == grant.name)
        own = ReaderName.VIEW if ReaderName.VIEW in self._readers else CALIBRATION_READER
        reader = self._broker.topic_reader(own, [grant.name], tail=1 if topic.partitions is None else None)
        self._poll(reader, lambda: reader.has_reached_ends, grant)

    def _read_in_group(self, grant: Grant) -> None:
        (name,) = [name for name in self._readers if self._names.reader_group_id(name).startswith(grant.name)]
        reader = self._broker.topic_reader(name, [f"{self._prefix}.calibration"])
        self._poll(reader, lambda: reader.has_reached_ends, grant)

    def _poll(self, reader: TopicReader | GroupReader, is_done: Callable[[], object], grant: Grant) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        with closing(reader):
            while not is_done():
                list(reader.poll(0.05))
                if self._failed:
                    raise self._failed[0]
                assert time.monotonic() < deadline_s, f"{grant}: neither used nor refused"

    def _write(self, grant: Grant) -> str | None:
        reports: list[KafkaError | None] = []
        producer = Producer(publisher_properties(self._settings))
        producer.produce(grant.name, b"{}", b"k", on_delivery=lambda error, _message: reports.append(error))
        assert producer.flush(DEADLINE_S) == 0
        return None if reports[0] is None else reports[0].name()

    def _join(self, grant: Grant) -> None:
        (name,) = [name for name in self._groups if self._names.group_id(name) == grant.name]
        reader = self._broker.group_reader(name, [f"{self._prefix}.{self._groups[name]}"])
        reader.subscribe(Notes())
        self._poll(reader, reader.lag, grant)

    def _begin(self, grant: Grant) -> None:
        (name,) = [name for name in self._groups if self._names.transactional_id(name).startswith(grant.name)]
        self._check(grant)
        with closing(self._broker.session(name)) as session:
            session.start()


@pytest.mark.parametrize("service", ["router", "gateway", pytest.param("recalibrator", marks=pytest.mark.thorough)])
def test_without_any_grant_a_service_is_refused(granted: SecuredBroker, topic_prefix: str, service: Service) -> None:
    acting = Acting(settings_as(granted, service, topic_prefix), service)
    everything = grants(service, topic_prefix)
    for grant in everything:
        # A change of access lists is in force soon, not at once.
        wait_until(lambda grant=grant: acting.refused(grant) is None, f"{grant}: as granted")  # type: ignore[misc]
    for grant in everything:
        granted.forbid(USERS[service], [grant])

        def is_refused(grant: Grant = grant) -> bool:
            return "AUTHORIZATION_FAILED" in (acting.refused(grant) or "")

        wait_until(is_refused, f"{grant}: needed")
        granted.allow(USERS[service], [grant])


async def test_a_gateway_answers_with_its_own_access(granted: SecuredBroker, topic_prefix: str, tmp_path: Path) -> None:
    """There was no access to print for it: it had to be given a router's, and could have fenced one."""
    async with hashed_models() as (models, _), aiohttp.ClientSession() as http:
        config = write_settings(tmp_path / "g.toml", granted, "gateway", topic_prefix, models)
        with GatewayProcess(config, "gateway-0", tmp_path / "g.log") as process:
            status, answer = await gateway_ask(http, await process.until_serving(), "q-1")
            process.terminate()
            assert await process.exit_code() == 0
    assert (status, answer["ucci"]["query_id"]) == (200, "q-1")
    assert len(read_all(granted.bootstrap, f"{topic_prefix}.results")) == 1


def test_a_refused_topic_was_said_not_to_be_there(granted: SecuredBroker, topic_prefix: str) -> None:
    """Kafka hides a topic from who may not describe it; the line named `topics create` as the remedy.

    Topics whose configuration is refused stand in one line; those that services can do without stop none, and the log
    names the grant that older access lists lack.
    """
    acting = Acting(settings_as(granted, "router", topic_prefix), "router")
    trial = CALIBRATION_TRIAL.name(topic_prefix)
    granted.forbid(USERS["router"], [Grant("topic", trial, False, "Read")])

    def is_missing() -> bool:
        checked = acting.check()
        line = f"the broker refuses Describe on {trial} "
        return checked.missing == {CALIBRATION_TRIAL} and any(found.startswith(line) for found in checked.warnings)

    wait_until(is_missing, "missed")
    check = [g for g in grants("router", topic_prefix) if g.operation == "DescribeConfigs" and g.name != trial][:2]
    granted.forbid(USERS["router"], check)
    named = f"the broker refuses DescribeConfigs on {', '.join(sorted(grant.name for grant in check))} "
    wait_until(lambda: named in (acting.refused(check[0]) or ""), "both named")
    granted.allow(USERS["router"], check)
    hidden = [g for g in grants("router", topic_prefix) if g.name.endswith(".queries") and g.operation == "Read"]
    granted.forbid(USERS["router"], hidden)
    line = f"the broker refuses Describe on {topic_prefix}.queries (TOPIC_AUTHORIZATION_FAILED)"
    wait_until(lambda: (acting.refused(check[0]) or "").startswith(line), line)


def test_an_operator_may_diagnose_and_no_more(granted: SecuredBroker, topic_prefix: str) -> None:
    """The doctor sees every group and topic by its grants, and says which one it lacks."""
    settings = settings_as(granted, "operator", topic_prefix)

    def faults() -> list[str]:
        found = [*topic_findings(settings), *group_findings(settings)]
        return [finding.message for finding in found if finding.severity == "fault"]

    wait_until(lambda: not faults(), "as granted")
    assert "photo: no version" in next(report_findings(settings)).message
    operations = {grant.operation for grant in grants("operator", topic_prefix)}
    assert operations == {"Read", "Describe", "DescribeConfigs"}
    group = Grant("group", f"{topic_prefix}-router", False, "Describe")
    granted.forbid(USERS["operator"], [group])
    line = f"{topic_prefix}-router: the broker refuses: GROUP_AUTHORIZATION_FAILED"
    wait_until(lambda: any(fault.startswith(line) for fault in faults()), "the missing grant is named")


def test_a_label_tool_had_no_access_of_its_own(granted: SecuredBroker, topic_prefix: str) -> None:
    """`label-studio sync` needs what neither a labeler nor an operator has: to read feedback, under its own groups."""
    said = FeedbackEvent(query_id="q-1", entities=None, source="label-studio", feedback_id="label-studio:3:7:1")
    with closing(SyncTopics(settings_as(granted, "label-tool", topic_prefix), "photo", "label-studio", "3")) as topics:
        assert topics.requests(datetime.now(UTC), 10) == ()
        topics.send([said])
        assert len(topics.sent()) == 1
