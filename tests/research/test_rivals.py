"""Rivals: one rule chooses, twins cost the same, and every variant walks both benchmarks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from research.answers.streams import Judged, draw_judged
from research.rivals import on_answers, on_drift
from research.rivals.__main__ import OUT
from research.rivals.grids import CONSTANT, OURS, choose
from research.rivals.report import page


def test_the_variant_that_is_worth_most_is_chosen() -> None:
    rows = [
        {"rival": "ACI", "variant": "dear", "on_target": 1.0, "regret": 0.4},
        {"rival": "ACI", "variant": "fair", "on_target": 0.9, "regret": 0.1},
        {"rival": "ACI", "variant": "cheap", "on_target": 0.5, "regret": -0.9},
    ]
    assert choose(rows) == {"ACI": "fair"}


def test_each_rival_of_both_benchmarks_walks_and_is_scored() -> None:
    some = {rival: list(variants)[:1] for rival, variants in on_drift.GRIDS.items()} | {CONSTANT: [""]}
    found = list(on_drift.rows("small_abrupt", 1, 8_000, some))
    assert [row["rival"] for row in found] == list(some)
    assert set(on_answers.GRIDS) == set(on_drift.GRIDS)
    for row in found:
        assert 0.0 <= row["on_target"] <= 1.0


@pytest.fixture(scope="module")
def judged() -> Judged:
    return draw_judged("tuning", 2, scale=0.1, drifts=3)


def test_the_best_constant_is_worth_no_less_than_any_other(judged: Judged) -> None:
    best = on_answers._best_constant(judged)
    for rate in np.linspace(0.0, 1.0, 5):
        other = on_answers._scored_constant(judged, float(rate))
        assert best["on_target"] - max(best["regret"], 0) >= other["on_target"] - max(other["regret"], 0)


def test_the_stored_page_is_that_of_the_stored_rows() -> None:
    found = {name: json.loads((OUT / f"{name}.json").read_text(encoding="utf-8")) for name in ("answers", "drift")}
    assert page(found) == (OUT / "README.md").read_text(encoding="utf-8")
    assert OURS in page(found)
