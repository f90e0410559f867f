"""What every command of ours offers: ``--version``, a check of the configuration, and an end by an exit code.

Each writes to whatever takes its output: a terminal, a pipe that somebody closes, or a log whose encoding lacks most
characters. None of them ends a command with a traceback, or with another exit code than its work's.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from io import TextIOWrapper
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


#: What people read alike where the encoding of the output lacks a character.
_ALIKE = {
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "±": "+/-",
    "×": "x",
    "’": "'",
    "“": '"',
    "”": '"',
    "\N{NO-BREAK SPACE}": " ",
}
_REPLACING = "ucci_alike"


def json_escape(character: str) -> str:
    r"""Return a character as JSON escapes it, so that JSON stays what it was.

    Examples
    --------
    >>> json_escape("é"), json_escape("\N{GRINNING FACE}")
    ('\\u00e9', '\\ud83d\\ude00')
    """
    return json.dumps(character)[1:-1]


def in_encoding(text: str, encoding: str | None) -> str:
    r"""Return a JSON text that an encoding has: where it lacks a character, all beyond ASCII are escaped.

    Examples
    --------
    >>> in_encoding('{"a": "é–"}', "latin-1"), in_encoding('{"a": "é"}', "latin-1")
    ('{"a": "\\u00e9\\u2013"}', '{"a": "é"}')
    """
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return "".join(one if one.isascii() else json_escape(one) for one in text)
    return text


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return what stands in place of characters that the output's encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_ALIKE.get(one) or json_escape(one) for one in lacking), error.end


def prepare_output() -> None:
    """Have this process write what its output's encoding lacks as something alike, or escaped; called first."""
    codecs.register_error(_REPLACING, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_REPLACING)


class ReaderGone(SystemExit):
    """Whoever read the output has left, as ``head`` does: the command ends, and nothing is wrong."""

    def __init__(self) -> None:
        super().__init__(0)
        if isinstance(sys.stdout, TextIOWrapper):
            # What is still to be written goes nowhere, that at the interpreter's end included.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def write_json(text: str) -> None:
    """Write a JSON text to standard output at once. Raises ReaderGone."""
    try:
        sys.stdout.write(in_encoding(text, sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


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
            sys.stdout.write(f"{name} {version('ucci-stream')}\n")
            raise typer.Exit

    option = typer.Option(False, "--version", callback=print_version, is_eager=True, help="Print the version and end.")

    @app.callback()
    def options(_version: bool = option) -> None:
        """Take the options that stand before a subcommand."""
        begin()

    return app


def run_service_command(app: typer.Typer) -> None:
    """Run a service's command and end the process with its exit code."""
    prepare_output()
    try:
        app()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def show_settings(settings: Settings) -> None:
    """Print the effective settings, and to standard error what an operator should look at in them, a line each."""
    for warning in settings_warnings(settings):
        sys.stderr.write(f"warning: {warning}\n")
    write_json(render_settings(settings))


def leave(code: int, *, hangs: bool) -> NoReturn:
    """End a service's process. ``hangs``: whether a call into the client library may never return."""
    if hangs:
        # It would also hold up the interpreter's own end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise typer.Exit(code)
