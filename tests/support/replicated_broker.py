"""Three Kafka nodes on this machine, each broker and controller: replication 3, two in-sync replicas at least."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ucci_stream.local.broker_probe import pick_port
from ucci_stream.local.kafka_install import broker_properties, meta_properties, properties_text, random_kafka_id
from ucci_stream.local.kafka_node import LocalBroker

NODES = 3
_HEAP_MB = 384
_IN_SYNC_S = 120.0
_ASK_S = 5.0


class Node(LocalBroker):
    """One node of the cluster; once all are up, ``bootstrap`` names all of them.

    Parameters
    ----------
    directory : Path
    number : int
        From 1.
    cluster_id : str
    controllers : dict of int to int
        The controller's port of each node.
    """

    def __init__(self, directory: Path, number: int, cluster_id: str, controllers: dict[int, int]) -> None:
        super().__init__(directory, _HEAP_MB)
        self.number = number
        self._cluster_id = cluster_id
        self._controllers = controllers

    def _format(self) -> str:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        meta = data / "meta.properties"
        if not meta.exists():
            text = meta_properties(self._cluster_id).replace("node.id=1", f"node.id={self.number}")
            meta.write_text(text, encoding="ascii")
        return self._cluster_id

    def _choose_ports(self) -> None:
        port, controller = pick_port(), self._controllers[self.number]
        voters = ",".join(f"{number}@127.0.0.1:{at}" for number, at in self._controllers.items())
        ours = {
            "node.id": str(self.number),
            "controller.quorum.voters": voters,
            "default.replication.factor": str(NODES),
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": str(NODES),
            "transaction.state.log.replication.factor": str(NODES),
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.replication.factor": str(NODES),
            "share.coordinator.state.topic.min.isr": "2",
            # As a cluster has it by default: a dead node is given up after this time, which is what users wait for.
            "broker.session.timeout.ms": "9000",
        }
        settings = broker_properties(str(self.directory / "data"), port, controller) | ours
        (self.directory / "server.properties").write_text(properties_text(settings), encoding="ascii")
        self._ports = (port, controller)
        self.bootstrap = f"127.0.0.1:{port}"


class Cluster:
    """See the module; made by :func:`three_brokers`.

    Parameters
    ----------
    nodes : tuple of Node
    threads : ThreadPoolExecutor
        Which starts them: Linux ends a child with the thread that started it, and these last as long as the cluster.
    """

    def __init__(self, nodes: tuple[Node, ...], threads: ThreadPoolExecutor) -> None:
        self.nodes = nodes
        self._threads = threads

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return self.nodes[0].bootstrap

    def start(self) -> None:
        """Start all nodes at once, since none is ready before most are."""
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
        admin, deadline = AdminClient({"bootstrap.servers": self.bootstrap}), time.monotonic() + _IN_SYNC_S
        while behind := self._behind(admin):
            assert time.monotonic() < deadline, f"not in sync within {_IN_SYNC_S:g} s: {behind}"
            time.sleep(0.2)

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
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
def three_brokers(directory: Path) -> Iterator[Cluster]:
    """Run a cluster for the length of a block."""
    cluster_id = random_kafka_id()
    controllers = {number: pick_port() for number in range(1, NODES + 1)}
    nodes = tuple(Node(directory / f"node-{number}", number, cluster_id, controllers) for number in controllers)
    with ThreadPoolExecutor(NODES) as threads:
        cluster = Cluster(nodes, threads)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
