"""The two model servers of the local stack: the tiny recorded models by default, vLLM where asked for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ucci_demo
from ucci_stream.local.processes import ChildProcess, free_port

MODELS_DIRECTORY = Path(ucci_demo.__file__).parent / "models"
_RECORDED_READY_S = 60.0
_VLLM_READY_S = 900.0
_ROLES: tuple[Literal["small", "large"], Literal["small", "large"]] = ("small", "large")


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A model server that can be started, and how a router reaches it."""

    role: Literal["small", "large"]
    process: ChildProcess
    base_url: str
    ready_url: str
    model: str
    prompt: str
    ready_timeout_s: float


def recorded_servers(logs: Path) -> tuple[ModelServer, ModelServer]:
    """Return the servers of the two tiny demo models, not yet started."""
    small, large = (_recorded(role, logs) for role in _ROLES)
    return small, large


def vllm_servers(logs: Path) -> tuple[ModelServer, ModelServer]:
    """Return two vLLM servers on the same checkpoints, not yet started; installs vLLM first where it is missing.

    Raises StackFailed when vLLM cannot be installed.
    """
    from ucci_stream.local.side_environment import VLLM_ENVIRONMENT, ensure_vllm

    python = ensure_vllm()
    small, large = (_vllm(role, logs, str(python), VLLM_ENVIRONMENT) for role in _ROLES)
    return small, large


def _recorded(role: Literal["small", "large"], logs: Path) -> ModelServer:
    port = free_port()
    argv = [sys.executable, "-m", "ucci_demo.model_server", "--model", role, "--served-model-name", f"photo-{role}"]
    return _server(role, logs, [*argv, "--port", str(port)], port, _RECORDED_READY_S, {})


def _vllm(role: Literal["small", "large"], logs: Path, python: str, environ: dict[str, str]) -> ModelServer:
    port = free_port()
    argv = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODELS_DIRECTORY / f"photo_{role}")]
    argv += ["--served-model-name", f"photo-{role}", "--dtype", "float32", "--max-model-len", "512"]
    argv += ["--generation-config", "vllm", "--enforce-eager", "--host", "127.0.0.1", "--port", str(port)]
    return _server(role, logs, argv, port, _VLLM_READY_S, environ)


def _server(
    role: Literal["small", "large"],
    logs: Path,
    argv: list[str],
    port: int,
    ready_timeout_s: float,
    environ: dict[str, str],
) -> ModelServer:
    from ucci_demo.model_server import PROMPT

    address = f"http://127.0.0.1:{port}"
    process = ChildProcess(f"{role} model", argv, logs / f"model-{role}.log", environ)
    return ModelServer(role, process, f"{address}/v1", f"{address}/health", f"photo-{role}", PROMPT, ready_timeout_s)
