"""What every command of ours offers: ``--version``, a check of the configuration, and an end by an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_text import render_settings, settings_warnings
from ucci_runtime.process import LogFormat

ConfigOption = Annotated[Path, typer.Option("--config", help="Path of ucci.toml.")]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="console for people, json for machines.")]

#: The packages that an extra of the distribution brings, by its name.
EXTRAS: dict[str, tuple[str, ...]] = {
    "api": ("fastapi", "jinja2", "matplotlib", "uvicorn"),
    "demo": ("ucci_demo", "fastapi", "jinja2", "matplotlib", "uvicorn", "scipy"),
    "fit": ("scipy",),
    "what-moved": ("py3langid", "scipy"),
}


def require_extra(extra: str, needed_by: str) -> None:
    """Check that an extra is installed, without importing it.

    ``extra``: one of :data:`EXTRAS`. Raises ConfigError, naming what is missing and how to install it.
    """
    missing = [package for package in EXTRAS[extra] if find_spec(package) is None]
    if missing:
        raise ConfigError([f'{needed_by} needs {", ".join(missing)}: pip install "ucci-stream[{extra}]"'])


def command_app(name: str, purpose: str, begin: Callable[[], object] = lambda: None) -> typer.Typer:
    """Return a command that knows ``--version``. ``purpose``: said by ``--help``; ``begin``: before any subcommand."""
    app = typer.Typer(help=purpose, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{name} {version('ucci-stream')}")
            raise typer.Exit

    option = typer.Option(False, "--version", callback=print_version, is_eager=True, help="Print the version and end.")

    @app.callback()
    def options(_version: bool = option) -> None:
        """Take the options that stand before a subcommand."""
        begin()

    return app


def run_service_command(app: typer.Typer) -> None:
    """Run a service's command and end the process with its exit code."""
    try:
        app()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def show_settings(settings: Settings) -> None:
    """Print the effective settings, and to standard error what an operator should look at in them, a line each."""
    for warning in settings_warnings(settings):
        typer.echo(f"warning: {warning}", err=True)
    sys.stdout.write(render_settings(settings))


def leave(code: int, *, hangs: bool) -> NoReturn:
    """End a service's process. ``hangs``: whether a call into the client library may never return."""
    if hangs:
        # It would also hold up the interpreter's own end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise typer.Exit(code)
