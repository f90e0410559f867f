"""What every command of ours offers: ``--version``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import typer


def version_option(command: str) -> Any:
    """Return the option ``--version`` of a command, which prints its name and version and ends it.

    Parameters
    ----------
    command : str
        As the user types it.
    """

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{command} {version('ucci-stream')}")
            raise typer.Exit

    return typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")
