"""`check-config`: faults end it with exit code 2, doubts are said and do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run

import pytest

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


def check(directory: Path, command: str, text: str) -> tuple[int, str, str]:
    path = directory / "ucci.toml"
    path.write_text(text)
    words = [sys.executable, "-m", command, "check-config", "--config", str(path)]
    done = run(words, capture_output=True, text=True, timeout=60.0, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["ucci_stream", "recalibrator"])
def test_trusted_labeler_without_a_key_is_a_warning(tmp_path: Path, command: str) -> None:
    code, out, err = check(tmp_path, command, WORKLOAD + BOB % KEY)
    assert code == 0
    assert json.loads(out)["workloads"]["photo"]["trusted_labelers"] == ["ada"]
    (line,) = err.splitlines()
    assert line.startswith("warning: workloads.photo.trusted_labelers: no API key may speak as ada")


@pytest.mark.parametrize("command", ["ucci_stream", "recalibrator"])
@pytest.mark.parametrize("key", ["", "short-key"])
def test_guessable_key_is_refused_without_printing_it(tmp_path: Path, command: str, key: str) -> None:
    code, out, err = check(tmp_path, command, WORKLOAD + BOB % key)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "recalibrator.api_keys.bob.key" in line
    assert "16 characters" in line
    assert not key or key not in line


SERVERS = """
small = { base_url = "http://ada:s3cr3t@127.0.0.1:8001/v1", model = "s" }
large = { base_url = "http://127.0.0.1:8002/v1", model = "l" }
"""
COMMANDS = ("ucci_stream", "recalibrator", "stream_router")


@pytest.mark.parametrize("command", COMMANDS)
def test_password_in_base_url_is_a_warning_and_not_shown(tmp_path: Path, command: str) -> None:
    code, out, err = check(tmp_path, command, WORKLOAD + SERVERS)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("warning: workloads.photo.small.base_url: carries a user or password")
    assert "s3cr3t" not in out + err
    assert json.loads(out)["workloads"]["photo"]["small"]["base_url"] == "http://********@127.0.0.1:8001/v1"


@pytest.mark.parametrize("command", COMMANDS)
def test_several_workloads_and_no_default_are_a_warning(tmp_path: Path, command: str) -> None:
    servers = SERVERS.replace("ada:s3cr3t@", "")
    both = WORKLOAD + servers + WORKLOAD.replace("photo", "reviews") + servers
    code, _, err = check(tmp_path, command, both)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("warning: default_workload: is not set and several workloads are configured")
    assert check(tmp_path, command, f'default_workload = "photo"\n{both}')[2] == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_kafka_value_passed_unnoticed(tmp_path: Path, command: str) -> None:
    """It ended the first start with a traceback, or left a router up that took no queries."""
    servers = SERVERS.replace("ada:s3cr3t@", "")
    lines = '"fetch.wait.max.ms" = "abc"\n"sasl.password" = "s3cr3t"'
    code, out, err = check(tmp_path, command, f"[kafka]\n{lines}\n{WORKLOAD}{servers}")
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
def test_a_handoff_with_guided_decoding_is_one_clear_fault(tmp_path: Path, command: str) -> None:
    """A server would force a second object behind what is handed over; every command refuses it before it starts."""
    servers = SERVERS.replace("ada:s3cr3t@", "")
    handed = WORKLOAD + servers + 'decoding = "json_schema"\nhandoff = { margin = 0.9 }\n'
    code, out, err = check(tmp_path, command, handed)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert 'handoff needs decoding = "free"' in line
    assert "leave handoff out" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_prices_of_tokens_are_printed_as_they_are_given(tmp_path: Path, command: str) -> None:
    prices = 'cost = { unit = "token", small = 1.0, large = 3.0, prompt_large = 0.5 }\n'
    servers = SERVERS.replace("ada:s3cr3t@", "")
    code, out, _ = check(tmp_path, command, WORKLOAD + servers + prices + "handoff = {}\n")
    photo = json.loads(out)["workloads"]["photo"]
    assert code == 0
    assert photo["cost"] == {"small": 1.0, "large": 3.0, "unit": "token", "prompt_large": 0.5}
    assert photo["handoff"] == {"margin": 0.9, "granularity": "field", "guard_share": 0.01, "micro_f1_loss": 0.002}
