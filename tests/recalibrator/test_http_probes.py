"""Probes and metrics of a stage that runs alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from recalibrator.http_probes import MAX_CONNECTIONS, ProbeServer
from recalibrator.prometheus_metrics import Metrics
from tests.support.probes import get


class Probes:
    """A server whose readiness the test decides, and requests to it."""

    def __init__(self, host: str) -> None:
        self.missing = ["join"]
        self.metrics = Metrics()
        self.host = f"[{host}]" if ":" in host else host
        registry = self.metrics.registry
        self.server = ProbeServer(host, 0, missing=lambda: self.missing, registry=registry, stray_timeout_s=600.0)

    def get(self, path: str) -> tuple[int, str]:
        return get(self.server.port, path, self.host)


@pytest.fixture
def probes(request: pytest.FixtureRequest) -> Iterator[Probes]:
    made = Probes(getattr(request, "param", "127.0.0.1"))
    made.server.start()
    yield made
    made.server.close()


@pytest.mark.parametrize("probes", ["127.0.0.1", "::1"], indirect=True)
def test_a_process_is_alive_before_it_is_ready(probes: Probes) -> None:
    assert probes.get("/healthz") == (200, '{"status": "alive"}')
    assert probes.get("/readyz") == (503, '{"status": "not ready", "missing": ["join"]}')
    probes.missing = []
    assert probes.get("/readyz?verbose") == (200, '{"status": "ready"}')
    probes.metrics.gauge("ready", 1.0, stage="join")
    status, body = probes.get("/metrics")
    assert (status, 'ucci_recalibrator_ready{stage="join"} 1.0' in body) == (200, True)
    assert probes.get("/v1/status")[0] == 404


def test_silent_clients_took_a_thread_and_a_file_each(probes: Probes) -> None:
    """The oldest go when there are too many, so that files are left for the stores, and probes are answered."""
    strangers = [socket.create_connection(("127.0.0.1", probes.server.port), 30.0) for _ in range(2 * MAX_CONNECTIONS)]
    strangers[-2].sendall(b"GET /healthz")
    assert probes.get("/healthz")[0] == 200
    assert [stranger.recv(1) for stranger in strangers[:MAX_CONNECTIONS]] == [b""] * MAX_CONNECTIONS
    strangers[-1].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert strangers[-1].recv(12) == b"HTTP/1.0 200"
    for stranger in strangers:
        stranger.close()
