"""Routers as processes, and the deterministic model servers that they ask over HTTP."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Self

from aiohttp import web
from aiohttp.test_utils import TestServer

from schemas.calibration import CalibrationMap
from tests.support.broker import produce
from tests.support.checkout import ROOT, plain_environment
from tests.support.forked_process import ForkedProcess, Service
from tests.support.probes import get
from tests.support.versions import sealed_version
from tests.support.waiting import eventually

EXIT_S = 25.0


class HashedModels:
    """Both models behind one HTTP server; what they answer depends on the prompt and the model's name alone.

    A prompt that holds ``slow`` waits for :attr:`release`. While there is a ``refusal``, every request gets it, with
    HTTP 400.
    """

    def __init__(self) -> None:
        self.calls: dict[str, int] = {"small": 0, "large": 0}
        self.release = asyncio.Event()
        self.refusal: str | None = None
        self._called = asyncio.Condition()
        self._jitter = random.Random(0)

    async def until_called(self, model: str, times: int) -> None:
        async with asyncio.timeout(60), self._called:
            await self._called.wait_for(lambda: self.calls[model] >= times)

    async def complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        model, prompt = body["model"], body["prompt"]
        self.calls[model] += 1
        async with self._called:
            self._called.notify_all()
        if self.refusal is not None:
            return web.json_response({"error": {"message": self.refusal, "code": 400}}, status=400)
        if "slow" in prompt:
            await self.release.wait()
        await asyncio.sleep(self._jitter.uniform(0.0, 0.05))
        digest = sha256(f"{model} {prompt}".encode()).digest()
        first, second = -0.001 - digest[0] / 300, -1.5 - digest[1] / 50
        entities = {"camera": prompt.removeprefix("find "), "lens": f"{model} {digest[2]}"}
        top = {"token_id:1": first, "token_id:2": second}
        logprobs = {"tokens": ["token_id:1"], "token_logprobs": [first], "top_logprobs": [top]}
        choice = {"text": json.dumps(entities), "finish_reason": "stop", "logprobs": logprobs}
        return web.json_response({"choices": [choice], "usage": {"completion_tokens": 1}})


@asynccontextmanager
async def hashed_models(models: HashedModels | None = None) -> AsyncIterator[tuple[str, HashedModels]]:
    models = models or HashedModels()
    app = web.Application()
    app.router.add_post("/v1/completions", models.complete)
    async with TestServer(app) as server:
        try:
            yield str(server.make_url("/v1")), models
        finally:
            models.release.set()


def publish_calibration(bootstrap: str, prefix: str) -> None:
    """Put one version in force that keeps some queries and escalates some."""
    version = sealed_version(
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        map=CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.9)),
        uncertainty_threshold=0.6,
        threshold=0.54,
    )
    produce(bootstrap, f"{prefix}.calibration", [("photo", version.to_json())])


def write_config(path: Path, bootstrap: str, prefix: str, models: str, more: Sequence[str] = (), **router: Any) -> Path:
    """Write an ``ucci.toml``, with further lines at its end."""
    lines = [
        *("[kafka]", f'"bootstrap.servers" = "{bootstrap}"', "[topics]", f'prefix = "{prefix}"', "[router]"),
        *(f"{key} = {json.dumps(value)}" for key, value in {"http_port": 0, **router}.items()),
        *("[workloads.photo]", 'prompt = "find {text}"', 'fields = ["camera", "lens"]'),
        *(f'{side} = {{ base_url = "{models}", model = "{side}" }}' for side in ("small", "large")),
        *("target = { micro_f1 = 0.9 }", "cost = { large = 3.0 }", *more),
    ]
    path.write_text("\n".join(lines))
    return path


@dataclass
class RouterProcess:
    """One ``stream-router run``, restarted at will."""

    config: Path
    instance_id: str
    log: Path
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    #: Whether it is forked from a server that has it imported, which saves 2 s of CPU a start. Its end is then that of
    #: a forked process: not for tests of exit codes.
    forked: bool = False

    _file: BinaryIO | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        self._run("stream_router", "run", UCCI_ROUTER__INSTANCE_ID=self.instance_id)

    def _run(self, service: Service, *words: str, **environment: str) -> None:
        """Run a command of a service on this configuration, with nothing else in its environment that overrides it."""
        arguments = [words[0], "--config", str(self.config), "--log-format", "json", *words[1:]]
        if self.forked:
            self.process = ForkedProcess(service, arguments, environment, self.log)
            return
        self._file = self.log.open("ab")
        command = [sys.executable, "-m", service, *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, env=plain_environment(environment), stderr=self._file)

    @property
    def running(self) -> subprocess.Popen[bytes] | ForkedProcess:
        """The process; there is one from the first start on."""
        assert self.process is not None, f"{self.instance_id} was not started"
        return self.process

    def assert_runs(self) -> None:
        assert self.running.poll() is None, f"{self.instance_id} ended: {self.lines()[-5:]}"

    def kill(self) -> None:
        """SIGKILL, as a machine that loses power."""
        self.running.kill()
        self._reap()

    def terminate(self) -> None:
        self.running.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        code = await asyncio.to_thread(self.running.wait, EXIT_S)
        self._reap()
        return code

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def events(self) -> list[dict[str, Any]]:
        """Return its log as objects; lines that are no JSON are left out."""
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    async def until_logged(self, event: str, times: int = 1, within_s: float = 60.0) -> dict[str, Any]:
        """Wait for a log event; returns the last one."""
        async with asyncio.timeout(within_s):
            while True:
                found = [line for line in self.events() if line["event"] == event] if self.log.exists() else []
                if len(found) >= times:
                    return found[-1]
                self.assert_runs()
                await asyncio.sleep(0.02)

    async def until_ready(self, port: int) -> str:
        """Wait until it says on this port that it is ready; return its URL."""

        def ready() -> tuple[int, str]:
            self.assert_runs()
            return get(port, "/readyz")

        await eventually(ready, lambda answer: answer[0] == 200)
        return f"http://127.0.0.1:{port}"

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.process is not None:
            self.process.kill()
        self._reap()

    def _reap(self) -> None:
        if self.process is not None:
            self.process.wait(EXIT_S)
        if self._file is not None:
            self._file.close()
            self._file = None
