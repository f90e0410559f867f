"""A real Apache Kafka on this machine: one KRaft node, which never outlives the process that started it."""

from __future__ import annotations

import atexit
import os
import random
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from schemas.errors import ConfigError
from ucci_stream.local.kafka_install import (
    BrokerUnavailable,
    broker_properties,
    java_command,
    kafka_jars,
    meta_properties,
    properties_text,
    random_kafka_id,
)
from ucci_stream.local.processes import ChildProcess, RunsInBlock, await_signal, unwound_by_signals

# Below the range from which the kernel gives out ports for outgoing connections (32768 on Linux, 49152 elsewhere):
# a connection that another process opens while the broker is down can never take its port.
_PORTS = range(15_000, 32_000)
_PORT_TRIES = 200
_PROBE_TIMEOUT_S = 1.0
_PAUSE_S = 0.05


def pick_port() -> int:
    """Return a loopback port, free a moment ago, that no outgoing connection takes. Raises OSError after 200 draws."""
    for _ in range(_PORT_TRIES):
        port = random.choice(_PORTS)
        if port_is_free(port):
            return port
    raise OSError(f"no free port found between {_PORTS.start} and {_PORTS.stop}")


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        # As the broker itself does: connections of an earlier run that the kernel still remembers are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def cluster_at(bootstrap: str, timeout_s: float) -> str | None:
    """Return the id of the cluster that answers a metadata request here, None when none answers in time."""
    # The client's own log would repeat "connection refused" for every probe.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.ms": 20})
    try:
        metadata = admin.list_topics(timeout=timeout_s)
    except KafkaException:
        return None
    return str(metadata.cluster_id) if metadata.brokers else None


def await_cluster(process: ChildProcess, bootstrap: str, cluster_id: str, timeout_s: float) -> bool:
    """Block until this broker answers as this cluster; false if it ends, another answers, or the time is up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.exit_code is None:
        if (found := cluster_at(bootstrap, _PROBE_TIMEOUT_S)) is not None:
            return found == cluster_id
        time.sleep(_PAUSE_S)
    return False


_START_TIMEOUT_S = 100.0
_STOP_TIMEOUT_S = 20.0
_REACH_TIMEOUT_S = 10.0
_ATTEMPTS = 3
# Ready sooner and in less memory than with the JVM's own choice; peak throughput is not what a local node is for.
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true")
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
_ADDRESS = re.compile(r"[^\s:,]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


class LocalBroker(RunsInBlock):
    """One Kafka node as a child process; a context manager."""

    def __init__(self, directory: Path, heap_mb: int = 512, port: int | None = None) -> None:
        self.directory = directory.resolve()
        self.bootstrap = ""
        self._heap_mb = heap_mb
        self._port = port
        self._ports: tuple[int, ...] = ()
        self._process: ChildProcess | None = None

    def start(self) -> None:
        """Start the node and block until it answers; on its previous ports if it ran before.

        Call it from a thread that lives as long as the node is wanted: Linux ends a child with the thread that started
        it. Raises BrokerNotInstalled when Java or the jars are missing, and PyPI is no way to them either; raises
        BrokerUnavailable when the node does not come up; with the end of its log.
        """
        if self._process is not None and self._process.exit_code is None:
            raise BrokerUnavailable(f"the broker on {self.bootstrap} is running; stop it first")
        java, jars = java_command(), kafka_jars()
        cluster_id = self._format()
        # A port may be taken between the probe and the start: a node that has not run before then tries others.
        attempts = 1 if self._ports or self._port is not None else _ATTEMPTS
        taken: list[int] = []
        for _ in range(attempts):
            if not self._ports or taken:
                self._choose_ports()
            if self._run(java, jars, cluster_id):
                return
            taken = [port for port in self._ports if not port_is_free(port)]
            if not taken:
                break
        self._raise_not_started(taken)

    def stop(self) -> None:
        """Stop the node cleanly; kill it when it does not end in time."""
        if self._process is not None:
            if self._process.exit_code is None:
                self.thaw()  # a frozen process would not see the signal
            self._process.stop(_STOP_TIMEOUT_S)
            atexit.unregister(self.kill)

    def kill(self) -> None:
        """End the node with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Start it again on the same ports and data; a node that still runs is stopped first."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Stop the process without ending it (SIGSTOP), as a hung machine would."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Process id of the node."""
        if self._process is None:
            raise BrokerUnavailable("the broker was not started")
        return self._process.pid

    def require_alive(self) -> None:
        """Raise BrokerUnavailable where the node has ended by itself."""
        if self._process is None or self._process.exit_code is not None:
            raise BrokerUnavailable(f"the broker has ended; see {self.directory / 'broker.log'}")

    def _format(self) -> str:
        """Mark the data folder as this cluster's, unless it is, and return the cluster's id."""
        data = self.directory / "data"
        if "," in str(data):
            raise BrokerUnavailable(f"{data}: Kafka reads a comma as the end of a folder's name; choose another folder")
        data.mkdir(parents=True, exist_ok=True)
        meta = data / "meta.properties"
        if not meta.exists():
            meta.write_text(meta_properties(random_kafka_id()), encoding="ascii")
        found = re.search(r"^cluster\.id=(\S+)$", meta.read_text(encoding="ascii"), re.MULTILINE)
        if found is None:
            raise BrokerUnavailable(f"{meta}: names no cluster.id; remove the folder to start afresh")
        return found.group(1)

    def _choose_ports(self) -> None:
        port, controller_port = self._port or pick_port(), pick_port()
        settings = broker_properties(str(self.directory / "data"), port, controller_port)
        (self.directory / "server.properties").write_text(properties_text(settings), encoding="ascii")
        self._ports = (port, controller_port)
        self.bootstrap = f"127.0.0.1:{port}"

    def _run(self, java: str, jars: Path, cluster_id: str) -> bool:
        main = ("-cp", f"{jars}/*", "kafka.Kafka", str(self.directory / "server.properties"))
        argv = [java, f"-Xmx{self._heap_mb}m", f"-Xms{self._heap_mb // 2}m", *_JVM, *_LOGGING, *main]
        # With another locale the JVM cannot open a folder whose name is not ASCII.
        self._process = ChildProcess("broker", argv, self.directory / "broker.log", {"LC_ALL": "C.UTF-8"})
        self._process.start()
        atexit.register(self.kill)  # for systems whose kernel does not end a child with its parent
        is_up = self._is_up(self._process, cluster_id)
        if not is_up:
            self._process.kill()
        return is_up

    def _is_up(self, process: ChildProcess, cluster_id: str) -> bool:
        return await_cluster(process, self.bootstrap, cluster_id, _START_TIMEOUT_S)

    def _raise_not_started(self, taken: list[int]) -> None:
        assert self._process is not None
        log = self._process.log_path
        if taken:
            raise BrokerUnavailable(f"Kafka did not start: port {taken[0]} is in use by another process; see {log}")
        raise BrokerUnavailable(f"Kafka did not start; {log} ends:\n{self._process.tail()}")


@contextmanager
def open_broker(spec: str, directory: Path) -> Iterator[str]:
    """Resolve ``--broker``: yield the address of a running broker, or start a local one.

    ``spec``: ``auto``: that of ``$KAFKA_BOOTSTRAP_SERVERS`` if set, else a local node. ``kafka``: a local node,
    whatever the environment says. ``HOST:PORT``: a running broker. What a local node lacks of Java and Maven comes from
    PyPI. Raises ConfigError when ``spec`` is none of these. Raises BrokerUnavailable, saying what to install, or which
    address does not answer.
    """
    source, address = _address(spec)
    if address:
        if cluster_at(address, _REACH_TIMEOUT_S) is None:
            raise BrokerUnavailable(f"{source} {address}: no Kafka answers there within {_REACH_TIMEOUT_S:g} s")
        yield address
        return
    with LocalBroker(directory) as node:
        yield node.bootstrap


def run_broker(directory: Path, port: int, started: Callable[[str], None]) -> None:
    """Run a local node until SIGINT or SIGTERM. Raises BrokerUnavailable when it does not start, or ends by itself."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with unwound_by_signals(), LocalBroker(directory, port=port) as node:
        await_signal(node.require_alive, lambda: started(node.bootstrap), ending)


def _address(spec: str) -> tuple[str, str]:
    """Return where the address stands and the address, empty for a local node."""
    if spec == "kafka":
        return "--broker", ""
    if spec == "auto":
        return "KAFKA_BOOTSTRAP_SERVERS", os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "").strip()
    if not all(_ADDRESS.fullmatch(part.strip()) for part in spec.split(",")):
        raise ConfigError([f"--broker: is {spec!r}; give auto, kafka or HOST:PORT"])
    return "--broker", spec
