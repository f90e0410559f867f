"""The benchmark of budgets: what it counts, and that the core keeps to a budget where queries change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from research.drift.budget import best_micro_f1, main, work
from research.drift.oracle import LARGE_COST
from research.drift.streams import BLOCK, stream

BUDGET = 1.7


def test_a_budget_is_kept_while_queries_change() -> None:
    """Though u moves to another scale, the mean cost of every 10,000 queries stays within .5 % of the budget."""
    row = work("new_model", 101, 40_000, BUDGET, 0)
    assert len(row.windows) == 4
    assert max(map(abs, row.windows)) < 0.005
    assert abs(row.whole) < 0.002
    assert row.micro_f1 < row.best_micro_f1 < row.micro_f1 + 0.01


def test_the_best_for_the_money_is_right_by_brute_force() -> None:
    """In one block: of all thresholds that cost no more, the one whose expected micro-F1 is highest."""
    drawn = stream("stationary", 3, BLOCK)
    gold, small, large = drawn.expected[:3]
    affordable = []
    for threshold in np.append(np.sort(drawn.u), -1.0):
        above = drawn.u > threshold
        if 1.0 + LARGE_COST * above.mean() <= BUDGET:
            affordable.append(np.where(above, large, small).sum() / gold.sum())
    assert best_micro_f1(drawn, BUDGET) == pytest.approx(max(affordable))


def test_the_report_names_its_command_and_rows(tmp_path: Path) -> None:
    """A reader finds the command and the rows behind the table; a length that is no whole window is refused."""
    given = ["--families", "stationary", "--seeds", "1", "--queries", "10000", "--jobs", "1", "--out", str(tmp_path)]
    assert main(given) == 0
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert f"python -m research.drift.budget {' '.join(given)}" in page
    (row,) = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))["rows"]
    assert f"{abs(row['windows'][0]):.2%}" in page
    assert main(["--queries", "12345"]) == 2
