"""`make test` says the same of the same code everywhere: what its property tests draw follows from no machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
#: Every event, one test of its own for each, and a state machine.
DRAWING = ["tests/schemas/test_event.py", "tests/stream_router/commit/test_ledger.py"]
#: Loads modules that those do not: Hypothesis would draw their constants.
BESIDE = "tests/recalibrator/fit/data/test_revisions.py"
HERE = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"}
ELSEWHERE = {"PYTHONHASHSEED": "1", "TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "CI": "1", "REVERSED": "1"}
#: What would choose others.
ASKED_FOR = ("HYPOTHESIS_PROFILE", "CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")


def test_make_test_draws_the_same_in_every_run() -> None:
    profile = settings.get_profile("quick")
    assert profile.derandomize
    assert profile.database is None
    assert profile.deadline is None
    assert HealthCheck.too_slow in profile.suppress_health_check


def test_make_test_thorough_draws_anew_and_remembers() -> None:
    profile = settings.get_profile("thorough")
    assert not profile.derandomize
    assert profile.database is not None
    assert profile.max_examples > settings.get_profile("quick").max_examples


def test_draws_do_not_depend_on_the_process(tmp_path: Path) -> None:
    """Not on hashes, order, zone or locale, nor on what else a process runs, which differs by the number of cores."""
    here, elsewhere = tmp_path / "here.json", tmp_path / "elsewhere.json"
    with _drawn(here, DRAWING, HERE), _drawn(elsewhere, [BESIDE, *DRAWING], ELSEWHERE):
        pass
    draws: dict[str, Any] = json.loads(here.read_bytes())
    draws_elsewhere: dict[str, Any] = json.loads(elsewhere.read_bytes())
    assert len(draws) > len(DRAWING)
    assert {name: draws_elsewhere.get(name) for name in draws} == draws


@contextmanager
def _drawn(into: Path, paths: list[str], environ: dict[str, str]) -> Iterator[None]:
    """Run tests in a process of their own, which writes what they draw; wait for it at the end."""
    own = {name: value for name, value in os.environ.items() if name not in ASKED_FOR}
    plugins = ["-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tests.support.drawn_choices"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *plugins, *paths],
        cwd=ROOT,
        env=own | environ | {"DRAWN_CHOICES": str(into)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield
    finally:
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
