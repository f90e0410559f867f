"""Where a command's log lines go."""

from __future__ import annotations

import json

import structlog
from typer.testing import CliRunner

from ucci_stream.cli import app


def test_log_lines_do_not_mix_with_the_outcome() -> None:
    """A warning on the way leaves standard output to what a script reads from it."""

    @app.command(hidden=True)
    def warn() -> None:
        structlog.get_logger().warning("the large model is slow")
        print(json.dumps({"answered": True}))  # noqa: T201 what a command with --json does

    try:
        result = CliRunner().invoke(app, ["warn"])
    finally:
        app.registered_commands.pop()
    assert json.loads(result.stdout) == {"answered": True}
    assert "the large model is slow" in result.stderr
