"""The command ``stream-router``; every failure is one line on standard error, and the exit code names its kind.

0: drained after a signal. 1: the broker, a topic or another instance of the same name stopped it. 2: the
configuration is wrong; one line for each fault.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from schemas.errors import UcciError
from schemas.settings import Settings
from schemas.settings_text import load_settings, require_models
from stream_router.model_client.http_probe import probe_settings
from stream_router.otel_tracing import Tracing, configured_tracing
from stream_router.ports import Answerer, Calibrations
from stream_router.process import RouterProcess, run_until_signalled
from stream_router.prometheus_metrics import Metrics
from stream_router.service import Service
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.broker.kafka_properties import require_kafka
from ucci_runtime.cli import ConfigOption, LogFormatOption, command_app, leave, run_service_command, show_settings
from ucci_runtime.clock import Clock
from ucci_runtime.process import (
    LogFormat,
    configure_logging,
    log_settings_warnings,
    raise_file_limit,
    search_cycles_seldom,
)

app = command_app(
    "stream-router", "Answer queries with a cascade of two models. Start with: stream-router run --config ucci.toml"
)

ProbeOption = Annotated[bool, typer.Option("--probe", help="Ask each model one query too; exit 1 on a fault.")]


@app.command()
def run(config: ConfigOption = Path("ucci.toml"), log_format: LogFormatOption = LogFormat.CONSOLE) -> None:
    """Run one router instance until SIGTERM, which drains it.

    SIGHUP reloads the file: what may change in a running process does, and the log names what needs a restart.

    Example: stream-router run --config ucci.toml --log-format json
    """
    _run(config, log_format)


@app.command()
def serve(config: ConfigOption = Path("ucci.toml"), log_format: LogFormatOption = LogFormat.CONSOLE) -> None:
    """Run one gateway until SIGTERM, which drains it: queries over HTTP in OpenAI's protocol, by the same cascade.

    SIGHUP reloads the file, as it does for a router.

    Example: stream-router serve --config ucci.toml --log-format json
    """
    _run(config, log_format, is_gateway=True)


@app.command("check-config")
def check_config(config: ConfigOption = Path("ucci.toml"), probe: ProbeOption = False) -> None:
    """Validate ucci.toml and print the effective settings, secrets redacted; warn of what is probably not meant.

    Example: stream-router check-config --config ucci.toml --probe
    """
    settings = _load(config)
    show_settings(settings)
    if probe:
        raise typer.Exit(int(echo_probe(settings)))


def echo_probe(settings: Settings) -> bool:
    """Ask both models of every workload one query and print what is found, a line each; return whether any is a fault.

    A server that is down is a fault here, though a router waits for it: who asks wants to know whether it answers.
    """
    findings = asyncio.run(probe_settings(settings))
    for finding in findings:
        sys.stderr.write(f"{'warning' if finding.kind == 'doubt' else 'fault'}: {finding.line}\n")
    if not findings:
        sys.stderr.write("both models of every workload answer, with log-probabilities\n")
    return any(finding.kind != "doubt" for finding in findings)


def main() -> None:
    """Run the command and end the process with its exit code."""
    run_service_command(app)


def _load(config: Path) -> Settings:
    settings = load_settings(config, os.environ)
    require_models(settings)
    require_kafka(settings)
    return settings


def _run(config: Path, log_format: LogFormat, *, is_gateway: bool = False) -> NoReturn:
    settings = _load(config)
    configure_logging(log_format)
    log_settings_warnings(settings)
    raise_file_limit(settings.gateway.max_connections if is_gateway else 0)
    port = "gateway.http_port" if is_gateway else "router.http_port"
    _until_signalled(partial(_service, settings, is_gateway=is_gateway), partial(_load, config), port)


def _until_signalled(build: Callable[[Tracing], RouterProcess], read: Callable[[], Settings], port: str) -> NoReturn:
    """Run what is built until it ends, and end the process. ``port`` is the setting to name where it is taken."""
    service: RouterProcess | None = None
    code = 0
    try:
        service = build(configured_tracing())
        search_cycles_seldom()
        asyncio.run(run_until_signalled(service, read))
    except OSError as error:
        sys.stderr.write(f"{port}: {error}; give a free port, or 0 for any\n")
        code = 1
    except UcciError as error:
        sys.stderr.write(f"{error}\n")
        code = error.exit_code
    leave(code, hangs=service is not None and service.hangs)


def _service(settings: Settings, tracing: Tracing, *, is_gateway: bool) -> RouterProcess:
    from stream_router.cascade.answerer import CascadeAnswerer

    def answerer(given: Settings, calibrations: Calibrations, clock: Clock, metrics: Metrics) -> Answerer:
        own = given.gateway if is_gateway else given.router
        return CascadeAnswerer(given, calibrations, clock, own.instance_id, metrics, tracing, waits=not is_gateway)

    connect = kafka_connect(settings, "router")
    if not is_gateway:
        return Service(settings, connect, answerer, tracing=tracing)
    from stream_router.gateway.service import GatewayService

    return GatewayService(settings, connect, answerer, tracing=tracing)


if __name__ == "__main__":
    main()
