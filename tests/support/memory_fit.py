"""A fit on memory and real snapshot files, driven by hand, and what is sent to it."""

from __future__ import annotations

import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

from recalibrator.decoding import Observation
from recalibrator.fit.file_snapshots import SnapshotFiles
from recalibrator.fit.publish.version_topics import TopicVersionLog
from recalibrator.fit.stage import FitPorts, FitStage, FitTopics
from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence
from schemas.command import Command
from schemas.labelled import LabelledExample
from schemas.status import WorkloadStatus
from tests.support.memory_broker.broker import MemoryTopicReader
from tests.support.recalibrator_events import FIELDS, START, feedback, routed, workload
from tests.support.recalibrator_memory import FAULTS, Counts, Crash, Fate, ManualClock, MemoryBroker, MemoryLog
from tests.support.recalibrator_memory import MemoryTransactions as Transactions
from tests.support.versions import sealed_version
from ucci_runtime.broker.records import Input, OutputRecord

TOPICS = FitTopics("observations", "calibration", "history", "status", "dead-letters", "trial", "happenings")
VERSION_TOPICS = ("calibration", "trial")
WORKLOADS = ("photo", "audio", "video")
SETTINGS = {name: workload(name) for name in WORKLOADS}
MAP = CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.9))
FOREIGN = "foreign"


def bootstrap(workload: str, number: int) -> Command:
    """A command that publishes a version whose threshold tells which command it was."""
    return act("bootstrap", number, workload=workload, map=MAP, uncertainty_threshold=number / 1_000)


def label(workload: str, number: int) -> LabelledExample:
    return LabelledExample.from_events(routed(number, workload=workload), feedback(number), fields=FIELDS)


def act(action: str, number: int, **arguments: Any) -> Command:
    fixed = {"workload": "photo", "issued_by": "test", "issued_at": START + timedelta(seconds=number)}
    return Command.model_validate(fixed | {"action": action} | arguments)


class Fit:
    """A fit on memory and real snapshot files; crashed, rebalanced and made anew at will."""

    def __init__(
        self, directory: Path, seed: int = 0, faults: int = 0, kept_versions: int = 1_000, key: bytes | None = None
    ) -> None:
        self.directory = directory
        self.draw = random.Random(seed)
        self.key = key
        self.budget: list[Fate] = [self.draw.choice(FAULTS) for _ in range(faults)]
        self.kept_versions = kept_versions
        self.settings = SETTINGS
        self.clock = ManualClock()
        self.count = Counts()
        self.broker = MemoryBroker(self.clock)
        self.broker.create(TOPICS.observations, 2)
        self.begin()

    def begin(self) -> None:
        self.log = MemoryLog(self.broker, (TOPICS.observations,), self.draw, self.clock)
        versions = MemoryTopicReader(self.broker.cluster, VERSION_TOPICS, None)
        ports = FitPorts(
            self.log,
            Transactions(self.broker, self.draw, self.budget),
            SnapshotFiles(self.directory, self.settings),
            TopicVersionLog(versions, TOPICS.trial, () if self.key is None else (self.key,)),
        )
        shared: dict[str, Any] = {"clock": self.clock, "count": self.count, "signing_key": self.key}
        self.stage = FitStage(frozenset(WORKLOADS), TOPICS, ports, kept_versions=self.kept_versions, **shared)
        self.stage.start()

    def send(self, event: Observation) -> None:
        self.send_bytes(event.workload, event.to_json())

    def send_bytes(self, workload: str, value: bytes | None) -> None:
        source = Input(TOPICS.observations, 0 if workload == "photo" else 1)
        self.broker.append(source, workload.encode(), value, headers=(("trace", b"7"),))
        if self.draw.random() < 0.3:
            self.broker.mark(source)

    def take(self, *events: Observation) -> None:
        """Send events, and settle."""
        for event in events:
            self.send(event)
        self.settle()

    def publish_foreign(self, workload: str, number: int) -> None:
        signal, evidence = SETTINGS[workload].signal, Evidence(trigger=FOREIGN)
        version = sealed_version(workload=workload, version=number, signal=signal, evidence=evidence)
        self.broker.publish(TOPICS.calibration, workload.encode(), version.to_json())

    def turn(self) -> None:
        try:
            self.stage.turn()
        except Crash:
            self.begin()

    def disturb(self) -> None:
        event = self.draw.choice(["revoke", "lose", "crash", "lose_state"])
        if event == "lose_state":
            shutil.rmtree(self.directory)
        try:
            {"revoke": self.log.revoke, "lose": self.log.lose}.get(event, self.begin)()
        except Crash:
            self.begin()

    def settle(self) -> None:
        """Turn until everything is folded and committed, statuses included."""
        for _ in range(2_000):
            self.turn()
            if self.stage.is_ready and self.broker.settled():
                break
        else:
            raise AssertionError("did not settle")
        for _ in range(60):
            self.turn()

    def versions(self, workload: str, *, foreign: bool = False) -> list[CalibrationVersion]:
        found = [CalibrationVersion.from_json(value) for value in self.broker.values(TOPICS.calibration)]
        return [v for v in found if v.workload == workload and (foreign or v.evidence.trigger != FOREIGN)]

    def numbers(self, workload: str = "photo") -> list[int]:
        """Return the numbers of all versions, foreign ones included."""
        return [version.version for version in self.versions(workload, foreign=True)]

    def status(self, workload: str = "photo") -> WorkloadStatus:
        """Return a workload's latest status."""
        found = map(WorkloadStatus.from_json, self.broker.values(TOPICS.status))
        return [one for one in found if one.workload == workload][-1]

    def written(self, topic: str | None) -> list[OutputRecord]:
        return [record for record in self.broker.outputs if record.topic == topic]
