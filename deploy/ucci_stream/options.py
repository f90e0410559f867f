"""What several subcommands take: the configuration, the workload, JSON for scripts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_text import load_settings

STACK_DIRECTORY = Path("ucci-demo")
"""Where ``demo`` and ``up`` keep their configuration, logs and results."""

KEY_VARIABLE = "UCCI_API_KEY"
URL_VARIABLE = "UCCI_API_URL"
"""The environment variables of the recalibrator's API: a key to show, and where it is."""

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Path of ucci.toml; by default ./ucci.toml, else that of a running `up` or `demo`."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


class Console(rich.console.Console):
    """A terminal on which texts of senders, models and labelers act as nothing but text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is written, with characters escaped that would steer a terminal or turn its text around."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.replace("\n", "").isprintable():
                yield segment
            else:
                yield segment._replace(text="".join(map(_escaped, text)))


def _escaped(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    # As JSON does, so that JSON stays what it was.
    return json.dumps(character)[1:-1] if not "\x7f" <= character <= "\x9f" else f"\\u{ord(character):04x}"


def settings_of(config: Path | None) -> Settings:
    """Return the settings in force.

    Raises
    ------
    ConfigError
    """
    return load_settings(_path(config), os.environ)


def text_of(path: Path) -> str:
    """Return the text of a configuration file that can be read and is valid.

    Raises
    ------
    ConfigError
    """
    load_settings(path, os.environ)
    return path.read_text(encoding="utf-8-sig")


def has_settings(config: Path | None) -> bool:
    """Return whether a file was named or lies here; that of a running demo describes its own services alone."""
    return config is not None or Path("ucci.toml").exists()


def _path(config: Path | None) -> Path:
    if config is not None:
        return config
    started = STACK_DIRECTORY / "ucci.toml"
    return started if not Path("ucci.toml").exists() and started.exists() else Path("ucci.toml")


def workload_of(settings: Settings, name: str | None) -> str:
    """Return the workload that is meant; none need be named where there is one only.

    Raises
    ------
    ConfigError
    """
    if name is None:
        if settings.only_workload is None:
            raise ConfigError([f"--workload: several are configured; give one of {', '.join(settings.workloads)}"])
        return settings.only_workload
    if name not in settings.workloads:
        raise ConfigError([f"--workload: {name} is not configured; give one of {', '.join(settings.workloads)}"])
    return name


def moment_of(since: str | None) -> datetime | None:
    """Return the time that ``--since`` gives; without an offset it is UTC.

    Raises
    ------
    ConfigError
    """
    if since is None:
        return None
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise ConfigError([f"--since: {since!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"]) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
