"""The page on reliability: each fault in its tables names the tests that hold us to what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
HEAD = "| fault | what a user sees | what to do | test |"
TEST_FILE = re.compile(r"`(tests/[\w/]+\.py)`: ((?:`test_\w+`(?:, )?)+)")


def _rows() -> list[list[str]]:
    tables = PAGE.split(HEAD)[1:]
    lines = (line for table in tables for line in table.split("\n\n")[0].strip().splitlines()[1:])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ROWS = _rows()


def test_the_page_has_faults_of_every_kind() -> None:
    assert PAGE.count(HEAD) == PAGE.count("\n### ")
    assert len(ROWS) > 25


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_fault_names_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 4
    assert all(row)
    named = TEST_FILE.findall(row[3])
    assert named
    for path, tests in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        for test in re.findall(r"`(test_\w+)`", tests):
            assert f"def {test}(" in source, f"{test} is not in {path}"
