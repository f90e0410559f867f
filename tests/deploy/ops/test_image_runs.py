"""The images as they run: built, started against a live broker, asked, and drained; `make test-image` runs this.

Needs docker or podman. ``IMAGE_BASE`` names another base image, ``IMAGE_BUILD_FLAGS`` adds to the build's command.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from schemas.routed import QueryEvent, RoutedEvent
from tests.deploy.ops.operators import run
from tests.support.broker import coming, produce, read_all
from tests.support.probes import asked
from tests.support.routers import value_of
from tests.support.waiting import eventually
from tools.ops import image
from ucci_demo.model_server import PROMPT
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.image, pytest.mark.timeout(1_800)]

#: terminationGracePeriod of the chart, stop_grace_period of the compose file.
GRACE_S = 30

DEADLINE_S = 120.0
QUERIES = 60
HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp")


@pytest.fixture(scope="module")
def engine() -> str:
    """The engine that runs containers here, with all images built."""
    name = image.engine(("docker", "podman"))
    image.build(name, image.TARGETS, base=os.environ.get("IMAGE_BASE"))
    return name


call = partial(run, timeout_s=DEADLINE_S)


@dataclass
class Container:
    """One container on the host's network, hardened as in the chart."""

    engine: str
    target: str
    arguments: tuple[str, ...]
    config: Path | None = None
    environ: dict[str, str] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f"ucci-test-{uuid.uuid4().hex[:8]}")

    def command(self, *options: str) -> list[str]:
        mounted = () if self.config is None else ("--volume", f"{self.config}:/etc/ucci/ucci.toml:ro")
        given = [word for name, value in self.environ.items() for word in ("--env", f"{name}={value}")]
        more = [word for volume in self.volumes for word in ("--volume", volume)]
        where = ("--name", self.name, "--network", "host")
        return [
            self.engine, "run", *options, *where, *HARDENED, *mounted, *more, *given,
            image.reference(self.target), *self.arguments,
        ]  # fmt: skip

    def start(self) -> None:
        call(*self.command("--detach"))

    def stop(self) -> int:
        """Send SIGTERM, SIGKILL after the grace period; return the exit code, 137 if it came to that."""
        call(self.engine, "stop", "--time", str(GRACE_S), self.name)
        return int(call(self.engine, "inspect", "--format", "{{.State.ExitCode}}", self.name))

    def logs(self) -> list[dict[str, Any]]:
        argv = [self.engine, "logs", self.name]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        return [json.loads(line) for line in (done.stdout + done.stderr).splitlines() if line.startswith("{")]

    def remove(self) -> None:
        subprocess.run([self.engine, "rm", "--force", self.name], capture_output=True, check=False, timeout=DEADLINE_S)


@asynccontextmanager
async def running(container: Container, port: int, path: str = "/readyz") -> AsyncIterator[Container]:
    """Start a container and wait until it is ready."""

    def is_ready() -> bool:
        state = call(container.engine, "inspect", "--format", "{{.State.Status}}", container.name).strip()
        assert state == "running", container.logs()[-3:]
        return asked(f"http://127.0.0.1:{port}{path}")[0] == 200

    container.start()
    try:
        await eventually(is_ready, within_s=DEADLINE_S)
        yield container
    finally:
        container.remove()


def write_config(path: Path, bootstrap: str, prefix: str, ports: Mapping[str, int]) -> Path:
    small, large = (f"http://127.0.0.1:{ports[role]}/v1" for role in ("small", "large"))
    lines = [
        "[kafka]", f'"bootstrap.servers" = "{bootstrap}"', "[topics]", f'prefix = "{prefix}"', "partitions = 2",
        "[workloads.photo-search]", f"prompt = {json.dumps(PROMPT)}", 'fields = ["camera", "lens"]',
        f'small = {{ base_url = "{small}", model = "photo-small" }}',
        f'large = {{ base_url = "{large}", model = "photo-large", timeout_s = 60.0 }}',
        "target = { micro_f1 = 0.9 }",
    ]  # fmt: skip
    path.write_text("\n".join(lines), encoding="utf-8")
    # The containers' user is not ours.
    path.parent.chmod(0o755)
    path.chmod(0o644)
    return path


def model(engine: str, role: str, port: int) -> Container:
    words = ("--model", role, "--served-model-name", f"photo-{role}", "--host", "127.0.0.1", "--port", str(port))
    return Container(engine, "demo-models", words)


@pytest.fixture
def volume(engine: str) -> Iterator[str]:
    """A named volume, as the chart's disk of a stage."""
    name = f"ucci-test-{uuid.uuid4().hex[:8]}"
    call(engine, "volume", "create", name)
    yield name
    subprocess.run([engine, "volume", "rm", "--force", name], capture_output=True, check=False, timeout=DEADLINE_S)


async def test_images_answer_queries_and_drain(
    engine: str, volume: str, broker: LocalBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """Stopped with queries in flight, a router ends by itself within the grace period; its successor does the rest."""
    ports = {name: pick_port() for name in ("small", "large", "router", "api")}
    config = write_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, ports)
    create = Container(engine, "ucci-stream", ("topics", "create", "--config", "/etc/ucci/ucci.toml"), config)
    call(*create.command("--rm"))
    router = Container(engine, "stream-router", (), config, {"UCCI_ROUTER__HTTP_PORT": str(ports["router"])})
    api = {"UCCI_RECALIBRATOR__HTTP_PORT": str(ports["api"])}
    recalibrator = Container(engine, "recalibrator", (), config, api, (f"{volume}:/var/lib/ucci",))
    results = f"{topic_prefix}.results"
    wanted = {f"q{number}" for number in range(QUERIES)}
    async with AsyncExitStack() as stack:
        for role in ("small", "large"):
            await stack.enter_async_context(running(model(engine, role, ports[role]), ports[role], "/health"))
        await stack.enter_async_context(running(recalibrator, ports["api"]))
        await stack.enter_async_context(running(router, ports["router"]))
        sent = [(name, QueryEvent(query_id=name, text=f"canon 5d {name}").to_json()) for name in sorted(wanted)]
        await asyncio.to_thread(produce, broker.bootstrap, f"{topic_prefix}.queries", sent)
        await asyncio.to_thread(next, coming(broker.bootstrap, results))
        assert await asyncio.to_thread(router.stop) == 0
        assert [line["event"] for line in router.logs() if line["event"] == "ended"] == ["ended"]
        # Under the same name, and nothing is answered twice.
        successor = Container(engine, "stream-router", (), config, router.environ)
        await stack.enter_async_context(running(successor, ports["router"]))
        await asyncio.to_thread(list, islice(coming(broker.bootstrap, results), QUERIES))
        assert await asyncio.to_thread(recalibrator.stop) == 0
        assert await asyncio.to_thread(successor.stop) == 0
    answered = [RoutedEvent.from_json(value_of(one)).query_id for one in read_all(broker.bootstrap, results)]
    assert sorted(answered) == sorted(wanted)


def inside(engine: str, target: str, *argv: str) -> str:
    entry, *rest = argv
    options = ("--rm", "--network", "host", *HARDENED, "--entrypoint", entry)
    return call(engine, "run", *options, image.reference(target), *rest).strip()


@pytest.mark.parametrize("target", image.TARGETS)
def test_image_runs_as_nobody_and_holds_no_compiler(engine: str, target: str) -> None:
    """Nor an installer of packages."""
    code = (
        "import os, shutil, importlib.util as u;"
        "print(os.getuid(), os.getgid(), os.access('/opt/ucci', os.W_OK), os.access('/tmp', os.W_OK),"
        " [n for n in ('cc', 'gcc', 'g++', 'clang', 'make', 'ld', 'git', 'curl') if shutil.which(n)],"
        " u.find_spec('pip'))"
    )
    assert inside(engine, target, "python3", "-c", code) == "10001 10001 False True [] None"


@pytest.mark.parametrize("command", ["stream-router", "recalibrator", "ucci-stream"])
def test_image_says_what_it_is(engine: str, command: str) -> None:
    assert inside(engine, command, command, "--version") == f"{command} {image.version()}"
    found = json.loads(call(engine, "inspect", "--format", "{{json .Config.Labels}}", image.reference(command)))
    version, title, revision = (found[f"org.opencontainers.image.{name}"] for name in ("version", "title", "revision"))
    assert (version, title, len(revision)) == (image.version(), command, 40)
