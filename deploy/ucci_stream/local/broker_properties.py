"""The settings of a one-node Kafka: a file for the JVM, environment variables for the container.

Ports and a data folder flow in, text flows out. Durability and transactions stay as in production; what differs from
Kafka's defaults shortens only what a cluster needs: replication, session times, delays.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping

NODE_HOST = "127.0.0.1"


def broker_properties(data: str, port: int, controller_port: int, listen_host: str = NODE_HOST) -> dict[str, str]:
    """Return the settings of a node that is broker and controller in one.

    Parameters
    ----------
    data : str
        Folder of the log segments, as the node sees it.
    port, controller_port : int
        TCP ports of the clients' listener, advertised on the loopback interface, and of the controller.
    listen_host : str
        Interface of the clients' listener; ``0.0.0.0`` inside a container.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{NODE_HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{listen_host}:{port},CONTROLLER://{NODE_HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{NODE_HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data,
        # One node cannot replicate.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A cluster spreads its coordinators over 50 partitions; here each costs files and start-up time only.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        # On a busy machine the node must not lose patience with itself and give up its own partitions.
        "broker.session.timeout.ms": "30000",
        "broker.heartbeat.interval.ms": "2000",
        # Members may ask for sessions of a few seconds, and the first member need not wait for others.
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        # The open transaction of a dead producer is looked for every second instead of every ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # A mistyped topic must fail, not appear.
        "auto.create.topics.enable": "false",
        # 128 MiB by default, a quarter of this heap; 8 MiB still hold 300,000 keys.
        "log.cleaner.dedupe.buffer.size": "8388608",
    }


def properties_text(settings: Mapping[str, str]) -> str:
    r"""Return the settings as a Java properties file, which is ASCII: other characters become ``\uXXXX``."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def container_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings as the variables that the ``apache/kafka`` image reads: ``KAFKA_`` and underscores."""
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in settings.items()}


def meta_properties(cluster_id: str) -> str:
    """Return what marks a data folder as formatted, so that Kafka's storage tool need not run."""
    return properties_text(
        {"version": "1", "cluster.id": cluster_id, "node.id": "1", "directory.id": random_kafka_id()}
    )


def random_kafka_id() -> str:
    """Return a random id in Kafka's form: 22 base64url characters, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if ord(" ") <= code <= ord("~") else f"\\u{code:04x}" for code in codes)
