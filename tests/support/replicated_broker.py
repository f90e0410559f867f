"""Three Kafka brokers and their controller on this machine: replication 3, two in-sync replicas at least.

The controller is a node of its own, as in production: a broker that is killed takes no election of controllers with it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.waiting import wait_until
from ucci_stream.local.kafka_install import broker_properties, meta_properties, properties_text, random_kafka_id
from ucci_stream.local.kafka_node import LocalBroker, pick_port
from ucci_stream.local.processes import ChildProcess

NODES = 3
#: After which a cluster gives up a broker that is silent, by default.
DEFAULT_SESSION_MS = 9_000

_HEAP_MB = 384
_CONTROLLER = 100
_START_S = 60.0
_IN_SYNC_S = 120.0
_ASK_S = 5.0


class Node(LocalBroker):
    """One broker of the cluster, from 1; once all are up, ``bootstrap`` names all of them.

    ``session_ms``: after which the controller gives it up.
    """

    def __init__(self, directory: Path, number: int, cluster_id: str, controller_port: int, session_ms: int) -> None:
        super().__init__(directory, _HEAP_MB)
        self.number = number
        self._cluster_id = cluster_id
        self._controller_port = controller_port
        self._session_ms = session_ms

    def _format(self) -> str:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        meta = data / "meta.properties"
        if not meta.exists():
            text = meta_properties(self._cluster_id).replace("node.id=1", f"node.id={self.number}")
            meta.write_text(text, encoding="ascii")
        return self._cluster_id

    def _choose_ports(self) -> None:
        port = pick_port()
        listens = {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        self._write(port, self._settings(port) | listens)

    def _write(self, port: int, properties: dict[str, str]) -> None:
        (self.directory / "server.properties").write_text(properties_text(properties), encoding="ascii")
        self._ports = (port,)
        self.bootstrap = f"127.0.0.1:{port}"

    def _settings(self, port: int) -> dict[str, str]:
        return broker_properties(str(self.directory / "data"), port, self._controller_port) | {
            "node.id": str(self.number),
            "controller.quorum.voters": f"{_CONTROLLER}@127.0.0.1:{self._controller_port}",
            "broker.session.timeout.ms": str(self._session_ms),
            "broker.heartbeat.interval.ms": str(self._session_ms // 6),
            "default.replication.factor": str(NODES),
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": str(NODES),
            "transaction.state.log.replication.factor": str(NODES),
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.replication.factor": str(NODES),
            "share.coordinator.state.topic.min.isr": "2",
        }


class Controller(Node):
    """The controller, which no client talks to."""

    def _choose_ports(self) -> None:
        port = self._controller_port
        ours = self._settings(port)
        del ours["advertised.listeners"]
        self._write(port, ours | {"process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{port}"})

    def _is_up(self, _process: ChildProcess, _cluster_id: str) -> bool:
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._controller_port), 1.0):
                return True
            time.sleep(0.1)
        return False


class Cluster:
    """See the module; made by :func:`three_brokers`.

    ``threads`` start the nodes: Linux ends a child with the thread that started it, and these last as long as it.
    """

    def __init__(self, controller: Controller, nodes: tuple[Node, ...], threads: ThreadPoolExecutor) -> None:
        self._controller = controller
        self.nodes = nodes
        self._threads = threads

    @property
    def bootstrap(self) -> str:
        return self.nodes[0].bootstrap

    def start(self) -> None:
        self._threads.submit(self._controller.start).result()
        for started in [self._threads.submit(node.start) for node in self.nodes]:
            started.result()
        everywhere = ",".join(node.bootstrap for node in self.nodes)
        for node in self.nodes:
            node.bootstrap = everywhere

    def restart(self, node: Node) -> None:
        """Start a dead node again on its ports and data, and wait until it has caught up."""
        self._threads.submit(node.start).result()
        self.await_in_sync()

    def await_in_sync(self) -> None:
        """Wait until every partition has all its replicas."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wait_until(lambda: self._behind(admin), "nothing is behind", lambda behind: not behind, within_s=_IN_SYNC_S)

    def stop(self) -> None:
        for node in (*self.nodes, self._controller):
            node.kill()

    def _behind(self, admin: AdminClient) -> list[str]:
        try:
            topics = admin.list_topics(timeout=_ASK_S).topics.values()
        except KafkaException as error:
            return [str(error)]
        return [
            f"{topic.topic}/{number}"
            for topic in topics
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < NODES
        ]


@contextmanager
def three_brokers(directory: Path, session_ms: int = DEFAULT_SESSION_MS) -> Iterator[Cluster]:
    """Run a cluster for the length of a block."""
    settings = (random_kafka_id(), pick_port(), session_ms)
    nodes = tuple(Node(directory / f"node-{number}", number, *settings) for number in range(1, NODES + 1))
    controller = Controller(directory / "controller", _CONTROLLER, *settings)
    with ThreadPoolExecutor(NODES) as threads:
        cluster = Cluster(controller, nodes, threads)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
