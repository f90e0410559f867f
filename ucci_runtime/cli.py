"""What every command of ours offers: ``--version``, and the warnings of ``check-config``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import typer

from schemas.settings import Settings
from schemas.settings_text import settings_warnings


def version_option(command: str) -> Any:
    """Return the option ``--version`` of a command, which prints its name and version and ends it."""

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{command} {version('ucci-stream')}")
            raise typer.Exit

    return typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")


def echo_warnings(settings: Settings) -> None:
    """Write what an operator should look at in the settings to standard error, a line each."""
    for warning in settings_warnings(settings):
        typer.echo(f"warning: {warning}", err=True)
