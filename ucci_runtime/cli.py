"""What every command of ours offers: ``--version``, and the warnings of ``check-config``."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import typer

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_text import settings_warnings

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
