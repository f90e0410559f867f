"""Strangers who open connections and say nothing, to services that may open 256 files: the work goes on."""

from __future__ import annotations

import asyncio
import resource
import subprocess
from contextlib import closing
from pathlib import Path
from socket import create_connection

import pytest

from tests.support.broker import follow, produce
from tests.support.gateway_processes import GatewayProcess
from tests.support.probes import get
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.router_processes import RouterProcess, hashed_models, publish_calibration, write_config
from tests.support.routers import query
from ucci_stream.local.kafka_node import LocalBroker, pick_port

FILES, STRANGERS, QUERIES = 256, 400, 100
PATIENCE_S = 30.0
STAGES = {"api": ("join", "fit", "api"), "join": ("join",)}


@pytest.mark.broker
@pytest.mark.parametrize("server", ["router", "gateway", "api", "join"])
async def test_idle_connections_take_every_file_of_a_service(
    server: str, broker: LocalBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """400 silent callers under ``ulimit -n 256`` ended the recalibrator, and kept a router from its queries."""
    create_all_topics(broker.bootstrap, topic_prefix)
    publish_calibration(broker.bootstrap, topic_prefix)
    port = pick_port()
    async with hashed_models() as (models, _):
        process = _process(server, tmp_path, (broker.bootstrap, topic_prefix), models, port)
        with closing(follow(broker.bootstrap, f"{topic_prefix}.results")) as results, closing(process):
            _start_with_few_files(process)
            await process.until_ready(port)
            silent = [create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(STRANGERS)]
            silent[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            if server == "router":
                queries = [query(f"q{n}", f"text {n}") for n in range(QUERIES)]
                produce(broker.bootstrap, f"{topic_prefix}.queries", queries)
                assert len(await asyncio.to_thread(results.consume, QUERIES, PATIENCE_S)) == QUERIES
            assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
            for stranger in silent:
                stranger.close()
            assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
            assert sum("accept" in line for line in process.lines()) <= 1
            if server == "join":
                assert 'ucci_recalibrator_ready{stage="join"}' in get(port, "/metrics")[1], "it has no API"
                process.terminate()
                assert await process.exit_code() == 0


def _process(server: str, directory: Path, cluster: tuple[str, str], models: str, port: int) -> RouterProcess:
    path, log = directory / "ucci.toml", directory / "log"
    if server in STAGES:
        listens = {"probe_port" if server == "join" else "http_port": port}
        write_recalibrator_config(path, cluster[0], cluster[1], directory / "state", **listens)
        return RecalibratorProcess(path, server, log, stages=STAGES[server])
    write_config(path, *cluster, models, ["[gateway]", f"http_port = {port}"], http_port=port)
    return (RouterProcess if server == "router" else GatewayProcess)(path, server, log)


def _start_with_few_files(process: RouterProcess) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, before[1]))
    try:
        process.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert isinstance(process.running, subprocess.Popen)
    # Nor may it raise that.
    resource.prlimit(process.running.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
