"""Targets that need more than Python say what, before they begin."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "named"), [("test-ops", "prometheus-alertmanager"), ("test-image", "podman")])
def test_a_target_fails_without_saying_what_it_lacks(target: str, named: str, tmp_path: Path) -> None:
    for command in ("make", "sh"):
        (tmp_path / command).symlink_to(shutil.which(command) or command)
    made = [str(tmp_path / "make"), "-o", "x/.installed", "VENV=x", "WORKERS=1", f"SHELL={tmp_path / 'sh'}", target]
    environ = {"PATH": str(tmp_path)}
    done = subprocess.run(made, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    # Beside make's own line.
    first, _ = done.stderr.splitlines()
    assert first.startswith(f"{target}: ")
    assert named in first
