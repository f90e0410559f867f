"""The same one-node Kafka as a container, for machines with Docker and without Java.

The container holds its data itself and is removed when it
stops. The image is fetched by the engine on first use. Tests cover the command line and its failures; they run where
there is no engine, so the container's own start is not among them.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

from ucci_stream.local.broker_probe import await_cluster, pick_port
from ucci_stream.local.kafka_install import (
    KAFKA_VERSION,
    BrokerUnavailable,
    broker_properties,
    container_environment,
    random_kafka_id,
)
from ucci_stream.local.processes import ChildProcess, RunsInBlock

IMAGE = f"apache/kafka:{KAFKA_VERSION}"
_CONTROLLER_PORT = 9093
_DATA = "/tmp/kraft-combined-logs"  # noqa: S108  inside the container, which is ours alone
_ENGINE_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 600.0  # the first start downloads the image
_STOP_TIMEOUT_S = 20.0


def docker_answers() -> bool:
    """Return whether there is a Docker engine that answers."""
    return _docker("version", "--format", "{{.Server.Version}}")


class DockerBroker(RunsInBlock):
    """One Kafka node in a container; a context manager.

    The engine owns the container: a parent that dies by SIGKILL leaves it behind, labelled ``ucci-stream``.

    Parameters
    ----------
    directory : Path
        Where ``broker.log`` goes.
    heap_mb : int
        Heap of the JVM, in MiB.
    """

    def __init__(self, directory: Path, heap_mb: int = 512) -> None:
        self.directory = directory
        self.bootstrap = ""
        self._heap_mb = heap_mb
        self._name = f"ucci-stream-{uuid.uuid4().hex[:8]}"
        self._process: ChildProcess | None = None

    def start(self) -> None:
        """Start the container and block until its broker answers.

        Raises
        ------
        BrokerUnavailable
            With the end of the container's log.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        port, cluster_id = pick_port(), random_kafka_id()
        argv = docker_argv(self._name, port, cluster_id, self._heap_mb)
        self._process = ChildProcess("broker", argv, self.directory / "broker.log")
        self.bootstrap = f"127.0.0.1:{port}"
        self._process.start()
        if not await_cluster(self._process, self.bootstrap, cluster_id, _START_TIMEOUT_S):
            self.stop()
            raise BrokerUnavailable(
                f"Kafka did not start in Docker; {self._process.log_path} ends:\n{self._process.tail()}"
            )

    def stop(self) -> None:
        """Stop and remove the container."""
        if self._process is not None:
            # The docker command hands SIGTERM on to the container.
            self._process.terminate()
            self._process.await_end(_STOP_TIMEOUT_S)
            _docker("rm", "--force", self._name)


def docker_argv(name: str, port: int, cluster_id: str, heap_mb: int) -> list[str]:
    """Return the command that runs the node in the foreground."""
    settings = broker_properties(_DATA, port, _CONTROLLER_PORT, listen_host="0.0.0.0")  # noqa: S104  published on loopback only
    environ = {
        **container_environment(settings),
        "CLUSTER_ID": cluster_id,
        "KAFKA_HEAP_OPTS": f"-Xmx{heap_mb}m -Xms{heap_mb // 2}m",
    }
    variables = [word for key, value in environ.items() for word in ("--env", f"{key}={value}")]
    published = ("--publish", f"127.0.0.1:{port}:{port}")
    return ["docker", "run", "--rm", "--name", name, "--label", "ucci-stream", *published, *variables, IMAGE]


def _docker(*arguments: str) -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        done = subprocess.run([docker, *arguments], capture_output=True, timeout=_ENGINE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
