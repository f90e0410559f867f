"""The command ``recalibrator``; every failure is one line on standard error, and the exit code names its kind.

0: ended after a signal. 1: the broker, a topic or another process on the same state stopped it. 2: the configuration
is wrong; one line for each fault.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from recalibrator.service import Service, run_until_signalled
from recalibrator.stage import StageName
from schemas.errors import ConfigError, UcciError
from schemas.settings import Settings
from schemas.settings_text import load_settings
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.broker.kafka_properties import require_kafka
from ucci_runtime.cli import (
    ConfigOption,
    LogFormatOption,
    command_app,
    leave,
    require_extra,
    run_service_command,
    show_settings,
)
from ucci_runtime.process import LogFormat, configure_logging, log_settings_warnings, raise_file_limit

app = command_app("recalibrator", "Keep the cascade calibrated. Start with: recalibrator run --config ucci.toml")

StageOption = Annotated[list[StageName] | None, typer.Option("--stage", help="Run this stage alone; may be repeated.")]


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
    raise_file_limit()
    service = Service(settings, kafka_connect(settings, "recalibrator"), stages)
    code = 0
    try:
        run_until_signalled(service, partial(_load, config))
    except (UcciError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        code = int(getattr(error, "exit_code", 1))
    leave(code, hangs=service.hangs)


@app.command("check-config")
def check_config(config: ConfigOption = Path("ucci.toml")) -> None:
    """Validate ucci.toml and print the effective settings, secrets redacted; warn of what is probably not meant.

    Example: recalibrator check-config --config ucci.toml
    """
    show_settings(_load(config))


def main() -> None:
    """Run the command and end the process with its exit code."""
    run_service_command(app)


def _load(config: Path) -> Settings:
    settings = load_settings(config, os.environ)
    if not settings.workloads:
        raise ConfigError(["workloads: none is configured; add a table [workloads.NAME]"])
    require_kafka(settings)
    return settings


if __name__ == "__main__":
    main()
