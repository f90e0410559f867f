"""A real Apache Kafka on this machine: one KRaft node on free ports, with a data folder and a log of its own.

A folder flows in, a bootstrap address flows out. The settings that differ from Kafka's defaults shorten what only a
cluster needs (session times, replication, delays); durability and transactions are as in production.
"""

from __future__ import annotations

import base64
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ucci_stream.broker_jars import BrokerUnavailable, java_command, kafka_jars
from ucci_stream.processes import ChildProcess, free_port

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
_REACH_TIMEOUT_S = 10.0
_ATTEMPTS = 3
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-Xlog:disable")


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that answers; who started it is none of the user's concern."""

    bootstrap: str


class LocalBroker:
    """One Kafka node as a child process; a context manager.

    Parameters
    ----------
    directory : Path
        Data, configuration and ``broker.log``; created where missing, kept afterwards. Data of a former run is used.
    heap_mb : int
        Heap of the JVM, in MiB.
    """

    def __init__(self, directory: Path, heap_mb: int = 512) -> None:
        self.directory = directory
        self._heap_mb = heap_mb
        self._process: ChildProcess | None = None
        self.bootstrap = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the node and block until it answers.

        Raises
        ------
        BrokerUnavailable
            When Java or the jars are missing, or the node does not come up; with the end of its log.
        """
        java, jars = java_command(), kafka_jars()
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if not (data / "meta.properties").exists():
            (data / "meta.properties").write_text(_meta_properties(), encoding="utf-8")
        for attempt in range(1, _ATTEMPTS + 1):
            if not self.bootstrap or attempt > 1:
                self._write_properties(data)
            self._process = ChildProcess("broker", self._argv(java, jars), self.directory / "broker.log")
            self._process.start()
            if self._await_answer():
                return
            # The port may have been taken between the probe and the start: try another.
            self._process.kill()
        raise BrokerUnavailable(f"Kafka did not start; {self._process.log_path} ends:\n{self._process.tail()}")

    def stop(self) -> None:
        """Stop the node cleanly; kill it when it does not end in time."""
        if self._process is not None:
            self._process.terminate()
            self._process.await_end(_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End the node with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Start it again on the same ports and data."""
        self.start()

    def freeze(self) -> None:
        """Stop the process without ending it (SIGSTOP), as a hung machine would."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Process id of the node."""
        if self._process is None:
            raise BrokerUnavailable("the broker was not started")
        return self._process.pid

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def _write_properties(self, data: Path) -> None:
        port, controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        text = _server_properties(data, port, controller)
        (self.directory / "server.properties").write_text(text, encoding="utf-8")

    def _argv(self, java: str, jars: Path) -> list[str]:
        logging = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
        heap = (f"-Xmx{self._heap_mb}m", f"-Xms{self._heap_mb // 2}m")
        main = ("-cp", f"{jars}/*", "kafka.Kafka", str(self.directory / "server.properties"))
        return [java, *heap, *_JVM, *logging, *main]

    def _await_answer(self) -> bool:
        if self._process is None:
            return False
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.exit_code is not None:
                return False
            if _answers(self.bootstrap, 1.0):
                return True
        return False


def _answers(bootstrap: str, timeout_s: float) -> bool:
    """Tell whether a broker at this address answers a metadata request with at least one node."""
    # The client's own log would repeat "connection refused" for every probe.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.ms": 20})
    try:
        return bool(admin.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


@contextmanager
def open_broker(spec: str, directory: Path) -> Iterator[Broker]:
    """Resolve ``--broker``: start a local node, or use a running broker.

    Parameters
    ----------
    spec : str
        ``auto``: the one of ``$KAFKA_BOOTSTRAP_SERVERS`` if set, else a local node. ``kafka``: a local node.
        ``HOST:PORT``: a running broker.
    directory : Path
        Of the local node.

    Raises
    ------
    BrokerUnavailable
        Saying what to install, or which address does not answer.
    """
    address = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "") if spec == "auto" else spec
    if address and address != "kafka":
        if ":" not in address:
            raise BrokerUnavailable(f"--broker {address}: give auto, kafka or HOST:PORT")
        if not _answers(address, _REACH_TIMEOUT_S):
            raise BrokerUnavailable(f"--broker {address}: no Kafka answers there within {_REACH_TIMEOUT_S:g} s")
        yield Broker(address)
        return
    with LocalBroker(directory) as local:
        yield Broker(local.bootstrap)


def _kafka_uuid() -> str:
    """Return a random id in Kafka's form: 22 base64url characters, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _meta_properties() -> str:
    return f"version=1\ncluster.id={_kafka_uuid()}\nnode.id=1\ndirectory.id={_kafka_uuid()}\n"


def _server_properties(data: Path, port: int, controller: int) -> str:
    """Return the node's configuration; each line beyond addresses says why it is there."""
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
# One node cannot replicate.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Fewer internal partitions start faster; a cluster spreads load over 50.
offsets.topic.num.partitions=8
transaction.state.log.num.partitions=8
# After a crash the old registration must expire before the node may come back.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# A group's members may ask for short sessions, and the first of them need not wait for others.
group.min.session.timeout.ms=1000
group.initial.rebalance.delay.ms=0
# An open transaction of a dead producer is looked for more often than every 10 s.
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
# A mistyped topic must fail, not appear.
auto.create.topics.enable=false
num.partitions=1
log.cleaner.dedupe.buffer.size=8388608
"""
