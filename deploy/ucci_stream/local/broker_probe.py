"""Whether a broker answers, and whether it is ours: only a metadata request answered by the node counts as ready.

A broker that merely listens on the expected port is never taken for ours.
"""

from __future__ import annotations

import random
import socket
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ucci_stream.local.processes import ChildProcess

# Below the range from which the kernel gives out ports for outgoing connections (32768 on Linux, 49152 elsewhere):
# a connection that another process opens while the broker is down can never take its port.
_PORTS = range(15_000, 32_000)
_PORT_TRIES = 200
_PROBE_TIMEOUT_S = 1.0
_PAUSE_S = 0.05


def pick_port() -> int:
    """Return a loopback port that was free a moment ago and that no outgoing connection can take.

    Raises OSError when 200 draws found none.
    """
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
    """Block until the broker of this process answers as this cluster.

    False when the process has ended, another cluster answers on its port, or the time is up.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.exit_code is None:
        found = cluster_at(bootstrap, _PROBE_TIMEOUT_S)
        if found is not None:
            return found == cluster_id
        time.sleep(_PAUSE_S)
    return False
