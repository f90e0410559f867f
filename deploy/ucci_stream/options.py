"""What subcommands share: :func:`command` finds the settings they need, and prints what they came to."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints
from urllib.parse import urlsplit

import rich.console
import typer
from pydantic_core import to_json
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from schemas.errors import ConfigError
from schemas.settings import Settings, WorkloadSettings
from schemas.settings_section import sendable
from schemas.settings_text import load_settings
from ucci_runtime.cli import ReaderGone, json_escape, write_json

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

#: Where ``demo`` and ``up`` keep their configuration, logs and results.
STACK_DIRECTORY = Path("ucci-demo")

KEY_VARIABLE = "UCCI_API_KEY"
#: The environment variables of the recalibrator's API: a key to show, and where it is.
URL_VARIABLE = "UCCI_API_URL"

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Path of ucci.toml; by default ./ucci.toml, else that of a running `up` or `demo`."),
]
WorkloadOption = Annotated[str | None, typer.Option("--workload", help="Needed where several are configured.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


class Console(rich.console.Console):
    """A terminal on which texts of senders, models and labelers act as nothing but text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is written, with characters escaped that would steer a terminal or turn its text around."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text="".join(map(_escaped, segment.text)))

    def on_broken_pipe(self) -> None:
        """End the command: nobody reads on."""
        raise ReaderGone


def end_by_sigterm() -> None:
    """Have SIGTERM end this command as Ctrl-C does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def print_json(content: bytes) -> None:
    """Write a JSON document on a line of its own; characters that steer a terminal are escaped within it."""
    text = content.decode()
    write_json((text if text.isprintable() else "".join(map(_escaped, text))) + "\n")


def _escaped(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    # As JSON does, so that JSON stays what it was.
    return json_escape(character) if not "\x7f" <= character <= "\x9f" else f"\\u{ord(character):04x}"


out = Console()
err = Console(stderr=True)


class Outcome(NamedTuple):
    """What a command came to: JSON values for scripts, lines and tables for people, and the exit code."""

    document: Any
    lines: Iterable[RenderableType]
    code: int = 0


class Chosen(NamedTuple):
    """The settings and the workload that is meant."""

    settings: Settings
    workload: WorkloadSettings


class Named(Chosen):
    """The same, where the workload must be named."""


def settings_of(config: Path | None) -> Settings:
    """Return the settings in force. Raises ConfigError."""
    return load_settings(_path(config), os.environ)


def _chosen(config: Path | None, workload: str | None) -> Chosen:
    settings = settings_of(config)
    return Chosen(settings, settings.workloads[workload_of(settings, workload)])


_NAMED = Annotated[str, typer.Option("--workload", help="The workload that is meant.")]
#: The options that say which workload is meant, with their defaults.
CHOICE: Mapping[str, tuple[Any, Any]] = {"config": (ConfigOption, None), "workload": (WorkloadOption, None)}

#: Of which options, by name with annotation and default, a command's parameter of a kind is made, and by what.
SOURCES: dict[type, tuple[Mapping[str, tuple[Any, Any]], Callable[..., Any]]] = {
    Settings: ({"config": (ConfigOption, None)}, settings_of),
    Chosen: (CHOICE, _chosen),
    Named: ({**CHOICE, "workload": (_NAMED, Parameter.empty)}, _chosen),
}
Work = TypeVar("Work", bound=Callable[..., "Outcome | None"])


def command(app: typer.Typer, name: str) -> Callable[[Work], Work]:
    """Return a decorator that makes a function a subcommand.

    A parameter annotated as :class:`Settings`, :class:`Chosen` or another of :data:`SOURCES` is made of that source's
    options. A function that returns an :class:`Outcome` takes ``--json`` as well; what it returns is printed, and its
    code is the exit code.
    """

    def register(work: Work) -> Work:
        hints, own = get_type_hints(work, include_extras=True), signature(work).parameters
        made = {one: SOURCES[hints[one]] for one in own if isinstance(hints[one], type) and hints[one] in SOURCES}
        options = {one: (hints[one], parameter.default) for one, parameter in own.items() if one not in made}
        for taken, _ in made.values():
            options |= taken
        if hints["return"] is Outcome:
            options["as_json"] = (JsonFlag, False)

        def run(**given: Any) -> None:
            values = {one: given[one] for one in own if one not in made}
            values |= {one: make(**{name: given[name] for name in taken}) for one, (taken, make) in made.items()}
            if (done := work(**values)) is not None:
                show(done, as_json=given["as_json"])

        run.__name__, run.__doc__ = name.replace("-", "_"), work.__doc__
        run.__annotations__ = {one: annotation for one, (annotation, _) in options.items()}
        run.__signature__ = Signature(  # type: ignore[attr-defined]  # what inspect.signature looks for first
            [
                Parameter(one, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                for one, (annotation, default) in options.items()
            ]
        )
        app.command(name)(run)
        return work

    return register


def show(done: Outcome, *, as_json: bool) -> None:
    """Print an outcome; a code other than 0 ends the command with it, whether or not somebody reads to the end."""
    try:
        if as_json:
            print_json(to_json(done.document))
        else:
            say(*done.lines)
    except ReaderGone:
        if not done.code:
            raise
    if done.code:
        raise typer.Exit(done.code)


def say(*lines: RenderableType) -> None:
    """Print lines for people, unwrapped and as they are; tables fit the terminal."""
    for line in lines:
        out.print(line, highlight=False, markup=False, emoji=False, soft_wrap=not isinstance(line, Table))


def warn(*lines: str, style: str = "yellow") -> None:
    """Print lines on standard error."""
    for line in lines:
        err.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def progress(*columns: ProgressColumn) -> Progress:
    """Return bars on standard error, with a task's words before and these columns behind; none is drawn unwatched."""
    from rich.progress import BarColumn, Progress, TextColumn

    begin = (TextColumn("{task.description}"), BarColumn())
    return Progress(*begin, *columns, console=err, transient=True, disable=not err.is_terminal)


def text_of(path: Path) -> str:
    """Return the text of a configuration file that can be read and is valid. Raises ConfigError."""
    load_settings(path, os.environ)
    return path.read_text(encoding="utf-8-sig")


def has_settings(config: Path | None) -> bool:
    """Return whether a file was named or lies here; that of a running demo describes its own services alone."""
    return config is not None or Path("ucci.toml").exists()


def _path(config: Path | None) -> Path:
    started = STACK_DIRECTORY / "ucci.toml"
    return config or (started if not has_settings(config) and started.exists() else Path("ucci.toml"))


def workload_of(settings: Settings, name: str | None) -> str:
    """Return the workload that is meant; none need be named where there is one only. Raises ConfigError."""
    meant = settings.only_workload if name is None else name
    if meant is None or meant not in settings.workloads:
        what = "several are configured" if meant is None else f"{name} is not configured"
        raise ConfigError([f"--workload: {what}; give one of {', '.join(settings.workloads)}"])
    return meant


def address_of(option: str, given: str, example: str) -> str:
    """Return the address of a server that an option gives, without a slash at its end. Raises ConfigError for none."""
    given = given.strip()
    parts = urlsplit(given)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError([f"{option}: {given!r} is not an address such as {example}"])
    return given.rstrip("/")


def key_of(option: str) -> Callable[[str | None], str | None]:
    """Return what reads a key that an option or its variable gives; none and an empty one stay what they are.

    It raises ConfigError for a key that no header can carry.
    """

    def read(given: str | None) -> str | None:
        try:
            return sendable(given) if given and given.strip() else given and given.strip()
        except ValueError as error:
            raise ConfigError([f"{option}: {error}"]) from None

    return read


def moment_of(since: str | None, option: str = "--since") -> datetime | None:
    """Return the time that an option gives; without an offset it is UTC. Raises ConfigError."""
    if since is None:
        return None
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise ConfigError([f"{option}: {since!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"]) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
