"""`check-config`: faults end it with exit code 2, doubts are said and do not; and where log lines go."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run

import pytest
import structlog
from typer.testing import CliRunner

import recalibrator.cli
import stream_router.cli
import ucci_stream.cli

WORKLOAD = """
[workloads.photo]
fields = ["iso"]
target = { micro_f1 = 0.9 }
trusted_labelers = ["ada"]
small = { base_url = "http://127.0.0.1:8001/v1", model = "s" }
large = { base_url = "http://127.0.0.1:8002/v1", model = "l" }
"""
REVIEWS = WORKLOAD.replace("photo", "reviews")
BOB = '\n[recalibrator.api_keys.bob]\nkey = "%s"\nscopes = ["feedback"]\n'
KAFKA = '[kafka]\n"fetch.wait.max.ms" = "abc"\n"sasl.password" = "s3cr3t"\n'
MAINS = {
    "ucci_stream": ucci_stream.cli.main,
    "recalibrator": recalibrator.cli.main,
    "stream_router": stream_router.cli.main,
}
every_command = pytest.mark.parametrize("command", MAINS)
Check = Callable[[str, str], tuple[int, str, str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run a command's ``check-config`` on a text, in this process: its code, its output and its errors."""

    monkeypatch.setenv("UCCI_ROUTER__DRAW_KEY", "0123456789abcdef" * 2)

    def ended(command: str, text: str) -> tuple[int, str, str]:
        path = tmp_path / "ucci.toml"
        path.write_text(text)
        monkeypatch.setattr("sys.argv", [command, "check-config", "--config", str(path)])
        with pytest.raises(SystemExit) as end:
            MAINS[command]()
        return int(end.value.code or 0), *capsys.readouterr()

    return ended


@every_command
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WORKLOAD + BOB % "bobs-key-01234567", "workloads.photo.trusted_labelers: no API key may speak as ada"),
        (
            WORKLOAD.replace("//127.0.0.1:8001", "//ada:s3cr3t@127.0.0.1:8001"),
            "workloads.photo.small.base_url: carries",
        ),
        (WORKLOAD + REVIEWS, "default_workload: is not set and several workloads are configured"),
        ('default_workload = "photo"\n' + WORKLOAD + REVIEWS, None),
    ],
    ids=["trusted labeler without a key", "password in base_url", "several workloads", "several and a default"],
)
def test_a_doubt_is_a_warning_and_no_secret_is_shown(check: Check, command: str, text: str, said: str | None) -> None:
    code, out, err = check(command, text)
    photo = json.loads(out)["workloads"]["photo"]
    assert (code, photo["trusted_labelers"]) == (0, ["ada"])
    assert [line.startswith(f"warning: {said}") for line in err.splitlines()] == [True] * (said is not None)
    assert "s3cr3t" not in out + err
    assert ("********@127" in photo["small"]["base_url"]) is ("s3cr3t" in text)


@every_command
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WORKLOAD + BOB % "s3cr3t", ("recalibrator.api_keys.bob.key", "16 characters")),
        # It ended the first start with a traceback, or left a router up that took no queries.
        (KAFKA + WORKLOAD, ("kafka.fetch.wait.max.ms: Invalid value", "(got 'abc')")),
        # A server would force a second object behind what is handed over.
        (
            WORKLOAD + 'decoding = "json_schema"\nhandoff = { margin = 0.9 }\n',
            ('handoff needs decoding = "free"', "leave handoff out"),
        ),
    ],
    ids=["guessable key", "wrong Kafka value", "handoff with guided decoding"],
)
def test_a_fault_is_one_line_and_no_secret_is_shown(
    check: Check, command: str, text: str, said: tuple[str, str]
) -> None:
    code, out, err = check(command, text)
    (line,) = err.splitlines()
    assert (code, out, [words in line for words in said], "s3cr3t" in line) == (2, "", [True, True], False)


@pytest.mark.parametrize("command", ["recalibrator", "stream_router"])
def test_start_refuses_what_librdkafka_refuses(tmp_path: Path, command: str) -> None:
    """Before any broker is asked; a router stayed up, alive by its probe, and never took a query."""
    path = tmp_path / "ucci.toml"
    path.write_text(KAFKA + WORKLOAD)
    words = [sys.executable, "-m", command, "run", "--config", str(path)]
    done = run(words, capture_output=True, text=True, timeout=60.0, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("kafka.fetch.wait.max.ms: Invalid value")
    assert "Traceback" not in done.stderr


def test_log_lines_do_not_mix_with_the_outcome() -> None:
    """A warning on the way leaves standard output to what a script reads from it."""

    @ucci_stream.cli.app.command(hidden=True)
    def warn() -> None:
        structlog.get_logger().warning("the large model is slow")
        print(json.dumps({"answered": True}))  # noqa: T201 what a command with --json does

    try:
        result = CliRunner().invoke(ucci_stream.cli.app, ["warn"])
    finally:
        ucci_stream.cli.app.registered_commands.pop()
    assert json.loads(result.stdout) == {"answered": True}
    assert "the large model is slow" in result.stderr
