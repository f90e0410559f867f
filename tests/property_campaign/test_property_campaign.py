"""The campaign runs every property test under every seed, finds what they find, and goes on where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
from hypothesis import given, seed, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule


@settings(max_examples=1)
@seed(5)
@given(st.integers(0, 2**60))
def test_one_in_five_fails(number):
    assert number % 5 != 4


def test_a_property_inside():
    @given(st.integers(0, 2**60))
    def holds(number):
        assert number >= 0

    holds()


def test_no_property():
    raise AssertionError


class Machine(RuleBasedStateMachine):
    @rule(number=st.integers(0, 2**60))
    def fails_seldom(self, number):
        assert number % 50 != 49


TestMachine = Machine.TestCase
"""


def ran(seeds: int, path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    report = path.with_suffix(".json")
    arguments = [str(path), "--seeds", str(seeds), "--examples", "10", "--json", str(report), *more]
    command = [sys.executable, "-m", "tests.property_campaign", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert report.exists(), done.stderr
    tests = json.loads(report.read_text(encoding="utf-8"))["tests"]
    return done.returncode, {name.split("::", 1)[1]: progress for name, progress in tests.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "test_drawn.py"
    file.write_text(TESTS, encoding="utf-8")
    return file


def test_a_campaign_finds_what_few_draws_miss_and_goes_on(path: Path) -> None:
    code, tests = ran(4, path)
    assert code == 1
    assert tests.keys() == {"test_one_in_five_fails", "test_a_property_inside", "TestMachine::runTest"}
    assert {progress["seeds"] for progress in tests.values()} == {4}
    findings = {name: len(progress["findings"]) for name, progress in tests.items()}
    assert findings == {"test_one_in_five_fails": 1, "test_a_property_inside": 0, "TestMachine::runTest": 1}
    (found,) = tests["test_one_in_five_fails"]["findings"]
    assert found["kind"] == "AssertionError"
    assert found["where"].startswith("test_drawn.py:")
    assert "number=" in found["text"]

    _, later = ran(6, path)
    assert {progress["seeds"] for progress in later.values()} == {6}
    assert later["test_a_property_inside"]["examples"] > tests["test_a_property_inside"]["examples"]
    assert later["test_one_in_five_fails"]["findings"][0]["seed"] == found["seed"]


def test_a_campaign_without_findings_is_green(path: Path) -> None:
    code, tests = ran(2, path, "--only", "inside")
    assert code == 0
    assert tests.keys() == {"test_a_property_inside"}
