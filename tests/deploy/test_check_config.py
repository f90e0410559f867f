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
"""
BOB = """
[recalibrator.api_keys.bob]
key = "%s"
scopes = ["feedback"]
"""
KEY = "bobs-key-01234567"


MAINS = {
    "ucci_stream": ucci_stream.cli.main,
    "recalibrator": recalibrator.cli.main,
    "stream_router": stream_router.cli.main,
}
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


@pytest.mark.parametrize("command", ["ucci_stream", "recalibrator"])
def test_trusted_labeler_without_a_key_is_a_warning(check: Check, command: str) -> None:
    code, out, err = check(command, WORKLOAD + BOB % KEY)
    assert code == 0
    assert json.loads(out)["workloads"]["photo"]["trusted_labelers"] == ["ada"]
    (line,) = err.splitlines()
    assert line.startswith("warning: workloads.photo.trusted_labelers: no API key may speak as ada")


@pytest.mark.parametrize("command", ["ucci_stream", "recalibrator"])
@pytest.mark.parametrize("key", ["", "short-key"])
def test_guessable_key_is_refused_without_printing_it(check: Check, command: str, key: str) -> None:
    code, out, err = check(command, WORKLOAD + BOB % key)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "recalibrator.api_keys.bob.key" in line
    assert "16 characters" in line
    assert not key or key not in line


SERVERS = """
small = { base_url = "http://ada:s3cr3t@127.0.0.1:8001/v1", model = "s" }
large = { base_url = "http://127.0.0.1:8002/v1", model = "l" }
"""
PLAIN = SERVERS.replace("ada:s3cr3t@", "")
COMMANDS = ("ucci_stream", "recalibrator", "stream_router")


@pytest.mark.parametrize("command", COMMANDS)
def test_password_in_base_url_is_a_warning_and_not_shown(check: Check, command: str) -> None:
    code, out, err = check(command, WORKLOAD + SERVERS)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("warning: workloads.photo.small.base_url: carries a user or password")
    assert "s3cr3t" not in out + err
    assert json.loads(out)["workloads"]["photo"]["small"]["base_url"] == "http://********@127.0.0.1:8001/v1"


@pytest.mark.parametrize("command", COMMANDS)
def test_several_workloads_and_no_default_are_a_warning(check: Check, command: str) -> None:
    both = WORKLOAD + PLAIN + WORKLOAD.replace("photo", "reviews") + PLAIN
    code, _, err = check(command, both)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("warning: default_workload: is not set and several workloads are configured")
    assert check(command, f'default_workload = "photo"\n{both}')[2] == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_kafka_value_passed_unnoticed(check: Check, command: str) -> None:
    """It ended the first start with a traceback, or left a router up that took no queries."""
    lines = '"fetch.wait.max.ms" = "abc"\n"sasl.password" = "s3cr3t"'
    code, out, err = check(command, f"[kafka]\n{lines}\n{WORKLOAD}{PLAIN}")
    assert (code, out) == (2, "")
    (fault,) = err.splitlines()
    assert fault.startswith("kafka.fetch.wait.max.ms: Invalid value")
    assert "(got 'abc')" in fault


@pytest.mark.parametrize("command", ["recalibrator", "stream_router"])
def test_start_refuses_what_librdkafka_refuses(tmp_path: Path, command: str) -> None:
    """Before any broker is asked; a router stayed up, alive by its probe, and never took a query."""
    path = tmp_path / "ucci.toml"
    path.write_text('[kafka]\n"fetch.wait.max.ms" = "abc"\n' + WORKLOAD + SERVERS)
    words = [sys.executable, "-m", command, "run", "--config", str(path)]
    done = run(words, capture_output=True, text=True, timeout=60.0, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("kafka.fetch.wait.max.ms: Invalid value")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_handoff_with_guided_decoding_is_one_clear_fault(check: Check, command: str) -> None:
    """A server would force a second object behind what is handed over; every command refuses it before it starts."""
    handed = WORKLOAD + PLAIN + 'decoding = "json_schema"\nhandoff = { margin = 0.9 }\n'
    code, out, err = check(command, handed)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert 'handoff needs decoding = "free"' in line
    assert "leave handoff out" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_prices_of_tokens_are_printed_as_they_are_given(check: Check, command: str) -> None:
    prices = 'cost = { unit = "token", small = 1.0, large = 3.0, prompt_large = 0.5 }\n'
    code, out, _ = check(command, WORKLOAD + PLAIN + prices + "handoff = {}\n")
    photo = json.loads(out)["workloads"]["photo"]
    assert code == 0
    assert photo["cost"] == {"small": 1.0, "large": 3.0, "unit": "token", "prompt_large": 0.5}
    assert photo["handoff"] == {"margin": 0.9, "granularity": "field", "guard_share": 0.01}


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
