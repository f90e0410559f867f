"""The operator's command, run in the process of the test, and shell scripts that stand for other commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from schemas.errors import ConfigError
from ucci_stream.cli import app


async def invoke(*words: object) -> Result:
    """Run the command beside the test's own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, app, list(map(str, words)))


def said(done: Result) -> Any:
    """Return what a command that ended well has printed as JSON."""
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def refused(done: Result, kind: type[Exception] = ConfigError) -> str:
    """Return the line by which a command was refused for such a reason."""
    assert isinstance(done.exception, kind), (done.output, done.exception)
    return str(done.exception)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def call(*words: object) -> Any:
    """Run the command and return what it prints as JSON; what it raises is raised."""
    return said(CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False))
