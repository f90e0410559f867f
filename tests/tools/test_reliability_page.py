"""The page on reliability: each fault in its tables names the tests that hold us to what it says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = "| fault | what a user sees | what to do | test |"
TEST_FILE = re.compile(r"`(tests/[\w/]+\.py)`: ((?:`test_\w+`(?:, )?)+)")


def test_each_fault_of_every_kind_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    tables = [table.split("\n\n")[0].strip().splitlines()[1:] for table in page.split(HEAD)[1:]]
    assert len(tables) == page.count("\n### ")
    for row in (row for table in tables for row in table):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        named = TEST_FILE.findall(cells[3])
        assert all(cells), row
        assert named, row
        for path, tests in named:
            source = (ROOT / path).read_text(encoding="utf-8")
            for test in re.findall(r"`(test_\w+)`", tests):
                assert f"def {test}(" in source, f"{test} is not in {path}"
