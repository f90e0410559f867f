"""The local stack: broker, two model servers, routers, recalibrator; started in order of need, stopped in reverse."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from rich.console import Console

import ucci_demo
from schemas.basis import Handoff
from schemas.routed import ModelRole
from schemas.settings import Settings
from schemas.settings_text import load_settings
from stream_router.model_client.http_probe import ROLES
from ucci_demo.model_server import PROMPT
from ucci_stream.local.kafka_node import open_broker, pick_port
from ucci_stream.local.processes import ChildProcess, await_signal, unwound_by_signals
from ucci_stream.topics.admin import create_topics

MODELS_DIRECTORY = Path(ucci_demo.__file__).parent / "models"
_RECORDED_READY_S = 60.0
_VLLM_READY_S = 900.0


class ModelServer(NamedTuple):
    """A model server that can be started, and how a router reaches it."""

    role: ModelRole
    process: ChildProcess
    base_url: str
    ready_url: str
    ready_timeout_s: float


def recorded_servers(logs: Path) -> tuple[ModelServer, ModelServer]:
    """Return the servers of the two tiny demo models, not yet started."""
    argv = [sys.executable, "-m", "ucci_demo.model_server"]
    small, large = (_server(role, logs, [*argv, "--model", role], _RECORDED_READY_S, {}) for role in ROLES)
    return small, large


def vllm_servers(logs: Path) -> tuple[ModelServer, ModelServer]:
    """Return two vLLM servers on the same checkpoints, not yet started; installs vLLM. Raises StackFailed."""
    from ucci_stream.local.side_environment import VLLM_ENVIRONMENT, VLLM_VERSION, ensure_side_environment

    python = ensure_side_environment("vllm", VLLM_VERSION, size="3 GB")
    argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--dtype", "float32", "--max-model-len", "512"]
    argv += ["--generation-config", "vllm", "--enforce-eager", "--model"]
    checkpoints = ((role, str(MODELS_DIRECTORY / f"photo_{role}")) for role in ROLES)
    small, large = (_server(role, logs, [*argv, path], _VLLM_READY_S, VLLM_ENVIRONMENT) for role, path in checkpoints)
    return small, large


def _server(
    role: ModelRole, logs: Path, argv: list[str], ready_timeout_s: float, environ: dict[str, str]
) -> ModelServer:
    port = pick_port()
    argv = [*argv, "--served-model-name", f"photo-{role}", "--host", "127.0.0.1", "--port", str(port)]
    process = ChildProcess(f"{role} model", argv, logs / f"model-{role}.log", environ)
    return ModelServer(role, process, f"http://127.0.0.1:{port}/v1", f"http://127.0.0.1:{port}/health", ready_timeout_s)


WORKLOAD = "photo-search"
FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
TOKENS_OF_A_CALL = 50
#: A token of the large model, in those of the small one.
LARGE_TO_SMALL = 3.02

#: What is handed over, where that is asked for: both models cut text into the same tokens.
HANDOFF = Handoff(margin=0.9, granularity="token")

_READY_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 20.0


class StackOptions(NamedTuple):
    """How to start the stack."""

    #: Configuration, logs, broker data and state; what a former run left there is removed.
    directory: Path
    #: ``auto``, ``kafka`` or ``HOST:PORT``.
    broker: str = "auto"
    #: ``recorded`` or ``vllm``.
    models: str = "recorded"

    routers: int = 2
    #: The workload's target and sampling.
    micro_f1: float = 0.91
    exploration: float = 0.03
    label_kept: float = 0.05
    label_escalated: float = 0.10

    prefix: str = "ucci"
    trusted_labelers: tuple[str, ...] = ()
    handoff: bool = False


class _Addresses(NamedTuple):
    recalibrator: str
    routers: list[str]


class Stack:
    """The running stack; a context manager."""

    def __init__(self, options: StackOptions, console: Console) -> None:
        self.options = options
        self._console = console
        self._parts = ExitStack()
        self.routers: list[ChildProcess] = []
        self.addresses = _Addresses("", [])
        self.settings = Settings()
        self.config_path = options.directory / "ucci.toml"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._parts.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._console.print("stopping", style="dim")
        self._parts.close()

    def require_alive(self) -> None:
        """Raise :class:`~ucci_stream.local.processes.StackFailed` when a service has died."""
        for child in self._services:
            child.require_alive()

    def _start(self) -> None:
        directory = self.options.directory
        for leftover in ("state", "logs", "kafka"):
            shutil.rmtree(directory / leftover, ignore_errors=True)
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        servers = (vllm_servers if self.options.models == "vllm" else recorded_servers)(directory / "logs")
        for server in servers:
            server.process.start()
            self._parts.callback(server.process.stop, _STOP_TIMEOUT_S)
        bootstrap = self._parts.enter_context(open_broker(self.options.broker, directory / "kafka"))
        self._say("broker", bootstrap)
        for server in servers:
            server.process.await_http(server.ready_url, server.ready_timeout_s)
            self._say(f"{server.role} model", server.base_url)
        self.config_path.write_text(config_text(self.options, bootstrap, servers, pick_port()), encoding="utf-8")
        self.settings = load_settings(self.config_path, {})
        topics = create_topics(self.settings)
        self._say("topics", f"{len(topics.created)} created, {len(topics.existing)} there before")
        self._start_services()

    def _start_services(self) -> None:
        http_port, ports = self.settings.recalibrator.http_port, [pick_port() for _ in range(self.options.routers)]
        recalibrator = self._service("recalibrator", "recalibrator", {"UCCI_RECALIBRATOR__HTTP_PORT": str(http_port)})
        for index, port in enumerate(ports):
            name = f"router-{index}"
            environ = {"UCCI_ROUTER__INSTANCE_ID": name, "UCCI_ROUTER__HTTP_PORT": str(port)}
            self.routers.append(self._service("stream_router", name, environ))
        addresses = [f"http://127.0.0.1:{port}" for port in (http_port, *ports)]
        self.addresses = _Addresses(addresses[0], addresses[1:])
        self._services = [recalibrator, *self.routers]
        self._parts.callback(self._stop_services)
        for child in self._services:
            child.start()
        for child, address in zip(self._services, addresses, strict=True):
            child.await_http(f"{address}/readyz", _READY_TIMEOUT_S)
            self._say(child.name, address)

    def _service(self, module: str, name: str, environ: dict[str, str]) -> ChildProcess:
        argv = [sys.executable, "-m", module, "run", "--config", str(self.config_path)]
        return ChildProcess(name, argv, self.options.directory / "logs" / f"{name}.log", environ)

    def _stop_services(self) -> None:
        for child in reversed(self._services):
            child.terminate()
        for child in reversed(self._services):
            child.await_end(_STOP_TIMEOUT_S)

    def _say(self, part: str, what: str) -> None:
        self._console.print(f"[green]✓[/] {part:<14} {what}", highlight=False)


def config_text(options: StackOptions, bootstrap: str, servers: tuple[ModelServer, ModelServer], http_port: int) -> str:
    """Return the ``ucci.toml`` of a local stack; commands find the API by its port there."""
    small, large = servers
    handoff = f"handoff = {{ margin = {HANDOFF.margin}, granularity = {json.dumps(HANDOFF.granularity)} }}\n"
    return f"""\
# Written by the local stack; usable by every command: ucci-stream ask --config {options.directory}/ucci.toml "…"
[kafka]
"bootstrap.servers" = {json.dumps(bootstrap)}

[topics]
prefix = {json.dumps(options.prefix)}

[recalibrator]
http_port = {http_port}
state_dir = {json.dumps(str(options.directory / "state"))}

[workloads.{WORKLOAD}]
prompt = {json.dumps(PROMPT)}
fields = {json.dumps(FIELDS)}
small = {{ base_url = {json.dumps(small.base_url)}, model = "photo-small", timeout_s = 10.0 }}
large = {{ base_url = {json.dumps(large.base_url)}, model = "photo-large", timeout_s = 30.0 }}
target = {{ micro_f1 = {options.micro_f1}, safety = 0.65 }}
sampling = {{ exploration_probability = {options.exploration}, label_probability_kept = {options.label_kept}, \
label_probability_escalated = {options.label_escalated} }}
# 1 is a small call of {TOKENS_OF_A_CALL} tokens, about the mean; what is never generated costs nothing
cost = {{ unit = "token", small = {1.0 / TOKENS_OF_A_CALL}, large = {LARGE_TO_SMALL / TOKENS_OF_A_CALL} }}
trusted_labelers = {json.dumps(options.trusted_labelers)}
{handoff if options.handoff else ""}"""


def run_until_interrupted(options: StackOptions, console: Console) -> None:
    """Start the stack and keep it until SIGINT or SIGTERM."""
    with unwound_by_signals(), Stack(options, console) as stack:
        lines = (
            f"\nstatus page   {stack.addresses.recalibrator}/",
            f"configuration {stack.config_path}",
            'try           ucci-stream ask "canon 5d f2.8 at night"\n',
        )
        await_signal(stack.require_alive, lambda: console.print("\n".join(lines), highlight=False))
