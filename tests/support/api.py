"""The recalibrator's HTTP application, results in memory, a producer that keeps its records, a clock that tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from starlette.testclient import TestClient

from recalibrator.api.http_context import Context
from recalibrator.api.http_stage import create_app
from recalibrator.api.keys import Keys
from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.api.routes_movement import MOST_READ
from recalibrator.labelling.queue import LabelQueue
from recalibrator.prometheus_metrics import Metrics
from schemas.calibration import CalibrationVersion, Target
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from schemas.status import DriftStatus, HappeningEvent, RecalibratorStatus, RouterStatus, VersionInUse, WorkloadStatus
from tests.support import clocks
from tests.support.clocks import ManualClock
from tests.support.memory_broker.broker import MemoryBroker, MemoryCluster, create_topics
from ucci_runtime.broker.contact import Heard
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.ports import Publisher

Told = CalibrationVersion | HappeningEvent | LabelRequested | RecalibratorStatus | RouterStatus | WorkloadStatus

START = clocks.START
WORKLOAD = "photo-search"
KEY = "a-key-long-enough"


def plain_status(**changes: Any) -> WorkloadStatus:
    content = {"workload": WORKLOAD, "state": "active", "sentence": "It holds.", "target": Target(micro_f1=0.9)}
    return WorkloadStatus(**content | {"drift": DriftStatus(state="ok"), "updated_at": START} | changes)


def plain_router(name: str = "router-0", version: int | None = None, **changes: Any) -> RouterStatus:
    in_use = {WORKLOAD: VersionInUse(version=version)}
    content = {"instance_id": name, "started_at": START, "updated_at": START, "ready": True, "versions": in_use}
    return RouterStatus(**content | changes)


@dataclass
class KeepingProducer:
    """Acknowledges at once and keeps the records; or refuses, as a broker that is away."""

    records: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    is_away: bool = False
    takes_s: float = 0.0

    def queue(
        self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_away:
            future.set_exception(BrokerUnreachable("not acknowledged"))
            return future
        self.records.append((topic, key, value))
        if self.takes_s:
            future.get_loop().call_later(self.takes_s, future.set_result, None)
        else:
            future.set_result(None)
        return future


@dataclass
class Api:
    client: TestClient
    producer: KeepingProducer
    cache: TopicCache
    letters: DeadLetterLog
    queue: LabelQueue
    clock: ManualClock
    settings: Settings
    #: Where results are; two partitions.
    cluster: MemoryCluster
    #: When Kafka was last heard, the latest last; the first alone: up to now.
    kafka: list[Heard]

    def tell(self, *records: Told) -> None:
        """Have the API read these records, each on its topic."""
        for record in records:
            value = record.to_json()
            if isinstance(record, LabelRequested):
                assert self.queue.take("ucci.label-requests", record.query_id.encode(), value)
                continue
            if isinstance(record, CalibrationVersion):
                topic, key = "calibration-history", f"{record.workload}:{record.version}"
            elif isinstance(record, RouterStatus | RecalibratorStatus):
                topic = "routers" if isinstance(record, RouterStatus) else "recalibrators"
                key = record.instance_id
            else:
                topic, key = "status" if isinstance(record, WorkloadStatus) else "happenings", record.workload
            assert self.cache.take(f"ucci.{topic}", key.encode(), value)


def make_settings(
    workloads: tuple[str, ...] = (WORKLOAD,), workload: Mapping[str, Any] | None = None, **recalibrator: Any
) -> Settings:
    """Return settings of one workload, or of several alike; ``workload`` holds further keys of each."""
    table = {"fields": ["camera", "lens"], "target": {"micro_f1": 0.9}, "cost": {"small": 1.0, "large": 3.0}}
    tables = dict.fromkeys(workloads, table | dict(workload or {}))
    return Settings.model_validate({"recalibrator": recalibrator, "workloads": tables})


def make_api(
    missing: Sequence[str] = (),
    workloads: tuple[str, ...] = (WORKLOAD,),
    workload: Mapping[str, Any] | None = None,
    **recalibrator: Any,
) -> Api:
    """Return an application with these settings of ``[recalibrator]``, and of each workload."""
    settings = make_settings(workloads, workload, **recalibrator)
    producer, clock = KeepingProducer(), ManualClock()
    cache = TopicCache(tuple(settings.workloads), settings.topics.prefix)
    letters, queue = DeadLetterLog(tuple(settings.workloads)), LabelQueue.configured(settings)
    cluster = MemoryCluster(clock, clock.advance)
    create_topics(cluster, 2)
    kafka = [Heard(START, START - timedelta(hours=1), is_away=False, address="kafka:9092")]
    broker = MemoryBroker(cluster, "api", lambda *_, **__: None)

    def heard() -> Heard:
        return kafka[-1] if len(kafka) > 1 else kafka[0]._replace(at=clock.now())

    context = Context(
        Metrics(),
        clock,
        lambda: list(missing),
        settings=settings,
        keys=Keys(settings.recalibrator.api_keys),
        cache=cache,
        letters=letters,
        documents=StatusDocuments(settings, cache, letters, heard),
        queue=queue,
        producer=cast(Publisher, producer),
        results=lambda: broker.topic_reader("results", ["ucci.results"], tail=MOST_READ),
    )
    client = TestClient(create_app(context), base_url="http://127.0.0.1:8080", raise_server_exceptions=False)
    return Api(client, producer, cache, letters, queue, clock, settings, cluster, kafka)
