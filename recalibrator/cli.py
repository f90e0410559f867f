"""The command ``recalibrator``; every failure is one line on standard error, and the exit code names its kind.

0: ended after a signal. 1: the broker, a topic or another process on the same state stopped it. 2: the configuration
is wrong; one line for each fault.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from recalibrator.service import Service, run_until_signalled
from recalibrator.stage import StageName
from schemas.errors import ConfigError, UcciError
from schemas.settings import Settings
from schemas.settings_text import load_settings, render_settings
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.broker.kafka_properties import require_kafka
from ucci_runtime.cli import echo_warnings, require_extra, version_option
from ucci_runtime.process import LogFormat, configure_logging, log_settings_warnings, raise_file_limit

app = typer.Typer(
    help="Keep the cascade calibrated. Start with: recalibrator run --config ucci.toml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

VersionOption = Annotated[bool, version_option("recalibrator")]
ConfigOption = Annotated[Path, typer.Option("--config", help="Path of ucci.toml.")]
StageOption = Annotated[list[StageName] | None, typer.Option("--stage", help="Run this stage alone; may be repeated.")]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="console for people, json for machines.")]


@app.callback()
def options(version: VersionOption = False) -> None:
    """Take the options that stand before a subcommand."""


@app.command()
def run(
    config: ConfigOption = Path("ucci.toml"),
    stage: StageOption = None,
    log_format: LogFormatOption = LogFormat.CONSOLE,
) -> None:
    """Run join, fit and the HTTP API until SIGTERM, or only the stages asked for.

    SIGHUP reloads the file: what may change in a running process does, and the log names what needs a restart.

    Example: recalibrator run --config ucci.toml --stage join --stage fit
    """
    stages = frozenset(stage or StageName)
    if StageName.API in stages:
        require_extra("api", "--stage api" if stage else "the stage api (--stage join --stage fit runs without it)")
    if StageName.FIT in stages:
        require_extra("fit", "--stage fit" if stage else "the stage fit (--stage join runs without it)")
    settings = _load(config)
    configure_logging(log_format)
    log_settings_warnings(settings)
    raise typer.Exit(_run(settings, stages, partial(_load, config)))


@app.command("check-config")
def check_config(config: ConfigOption = Path("ucci.toml")) -> None:
    """Validate ucci.toml and print the effective settings, secrets redacted; warn of what is probably not meant.

    Example: recalibrator check-config --config ucci.toml
    """
    settings = _load(config)
    echo_warnings(settings)
    sys.stdout.write(render_settings(settings))


def main() -> None:
    """Run the command and end the process with its exit code."""
    try:
        app()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def _load(config: Path) -> Settings:
    settings = load_settings(config, os.environ)
    if not settings.workloads:
        raise ConfigError(["workloads: none is configured; add a table [workloads.NAME]"])
    require_kafka(settings)
    return settings


def _run(settings: Settings, stages: frozenset[StageName], read: Callable[[], Settings]) -> int:
    raise_file_limit()
    service = Service(settings, kafka_connect(settings, "recalibrator"), stages)
    code = 0
    try:
        run_until_signalled(service, read)
    except ConfigError:
        raise
    except (UcciError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        code = int(getattr(error, "exit_code", 1))
    if service.hangs:
        # A call into the client library that never returns would also hold up the interpreter's own end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    main()
