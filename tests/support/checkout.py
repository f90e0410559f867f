"""This checkout, and the operator's command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OURS = ("UCCI_", "KAFKA_BOOTSTRAP_SERVERS")


def plain_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment, with nothing in it that overrides a configuration but ``more``."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_OURS)} | dict(more)


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ucci_stream", *map(str, words)]


def run_command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with nothing but these variables to override its configuration."""
    plain = plain_environment(environment)
    return subprocess.run(command(*words), cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
