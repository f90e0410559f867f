"""A whole recalibrator in this process, over the broker in memory: join, fit and the API on a real port."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from recalibrator.service import Service
from schemas.command import Command
from schemas.event import Event
from schemas.settings import Settings
from schemas.status import WorkloadStatus
from schemas.topics import OBSERVATIONS, STATUS
from tests.support.memory_broker.broker import MemoryCluster, create_topics, memory_connect
from tests.support.orders import MAP
from tests.support.waiting import wait_until
from ucci_runtime.process import SystemClock
from ucci_stream.local.kafka_node import pick_port

WORKLOAD = "photo"
DEADLINE_S = 60.0
_FIELDS = {"fields": ["camera", "lens"], "target": {"micro_f1": 0.9}, "cost": {"small": 1.0, "large": 3.0}}


class LiveRecalibrator:
    """One that runs; its topics outlive it, so that another can follow."""

    def __init__(self, settings: Settings, cluster: MemoryCluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.service = Service(settings, memory_connect(cluster))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.recalibrator.http_port}"

    def write(self, event: Event) -> None:
        topic = OBSERVATIONS.name(self.cluster.prefix)
        key = WORKLOAD.encode()
        self.cluster.append(self.cluster.place(topic, key), key, event.to_json())

    def command(self, action: str, **arguments: Any) -> None:
        fixed = {"workload": WORKLOAD, "action": action, "issued_by": "test", "issued_at": SystemClock().now()}
        self.write(Command.model_validate(fixed | arguments))

    def bootstrap(self, *thresholds: float) -> None:
        """Have a version published for each threshold."""
        for threshold in thresholds:
            self.command("bootstrap", map=MAP, uncertainty_threshold=threshold)

    def status(self) -> WorkloadStatus | None:
        records = self.cluster.records(STATUS.name(self.cluster.prefix))
        return WorkloadStatus.from_json(records[-1].value or b"") if records else None


def new_cluster() -> MemoryCluster:
    cluster = MemoryCluster(SystemClock(), idle=lambda seconds: time.sleep(min(seconds, 0.01)))
    create_topics(cluster, 1)
    return cluster


def live_settings(state_dir: Path, recalibrator: Mapping[str, Any] | None = None, **tables: Any) -> Settings:
    """Return settings of one workload, with the API on a free port."""
    options = {"http_port": pick_port(), "state_dir": str(state_dir)} | dict(recalibrator or {})
    return Settings.model_validate({"recalibrator": options, "workloads": {WORKLOAD: _FIELDS}} | tables)


@contextmanager
def running(settings: Settings, cluster: MemoryCluster) -> Iterator[LiveRecalibrator]:
    """Run a recalibrator until the block ends; an error that ended it is raised."""
    live, failures = LiveRecalibrator(settings, cluster), list[BaseException]()

    def run() -> None:
        try:
            live.service.run()
        except BaseException as error:  # noqa: BLE001 raised in the test
            failures.append(error)

    thread = Thread(target=run, name="recalibrator")
    thread.start()
    try:
        # Not started yet, it has no stage that could be missing.
        wait_until(lambda: bool(failures) or _is_ready(live), "the recalibrator is ready")
        yield live
    finally:
        live.service.end()
        thread.join(DEADLINE_S)
    if failures:
        raise failures[0]


def _is_ready(live: LiveRecalibrator) -> bool:
    recalibrators = live.cluster.records(f"{live.cluster.prefix}.recalibrators")
    return bool(recalibrators) and not live.service.missing()
