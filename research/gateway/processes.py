"""The processes that are measured: the fake model server, ``stream-router serve``, and the latter without its wait."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from research.gateway.callers import PATIENCE_S

SERVE = ("stream_router", "serve")
SERVE_UNACKNOWLEDGED = ("research.gateway.unacknowledged",)


@contextmanager
def model_server(service_ms: int) -> Iterator[int]:
    """Run a fake model server, which answers after its service time whatever the load; yields its port."""
    argv = [sys.executable, "-m", "research.model_calls", "--serve", str(service_ms)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


@contextmanager
def gateway(module: Sequence[str], config: Path) -> Iterator[None]:
    """Run a gateway until the block ends, and see that it drains."""
    ours = ("UCCI_", "KAFKA_BOOTSTRAP_SERVERS")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    argv = [sys.executable, "-m", *module, "--config", str(config), "--log-format", "json"]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


async def until_ready(port: int) -> None:
    """Wait until a gateway answers queries."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)
